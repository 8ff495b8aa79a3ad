"""The batches that no durable record covers yet: lost workers apply them once more.

A lost worker is given the state that the newest durable record names. It then applies the batches since that record
again: its own share of them, and with what each of them meant for windows. Everybody else keeps its state; a worker
that has applied such a batch answers what it answered then. Nothing is handed to a sink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from afspark.clock import Clock
from afspark.coordinator.batch_input import BatchInput
from afspark.coordinator.operator_run import OperatorRun
from afspark.numbers import Batch
from afspark.protocol.replicas import ReplicaId
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest

#: Runs the stage of an operator for a batch of the past, with what belonged to it.
PastStage = Callable[[OperatorRun, Sequence[OperatorRun], Batch, BatchInput], Mapping[ReplicaId, TaskReport]]


class Replay:
    """Remembers the batches since the newest durable record, and has lost workers apply them again."""

    def __init__(self, stage: PastStage, clock: Clock) -> None:
        self._stage, self._clock = stage, clock
        #: what belonged to each batch; what it meant, its operators' workers know
        self._past: dict[Batch, BatchInput] = {}

    def remember(self, batch: Batch, given: BatchInput, runs: Sequence[OperatorRun]) -> None:
        """Notes a batch that begins, until `forget` is called for it or a later one."""
        self._past[batch] = given
        for run in runs:
            run.group.remember(batch)

    def forget(self, covered: Batch) -> None:
        """A durable record covers ``covered`` and all batches before it."""
        self._past = {batch: given for batch, given in self._past.items() if batch > covered}

    def next_requests(self, run: OperatorRun, batch: Batch) -> list[TaskRequest]:
        """What each worker would be asked to do next, wherever it stands on its way to ``batch``."""
        requests = []
        for member in run.group.members:
            following = Batch(member.version + 1)
            if following == batch:
                requests.append(run.group.request(member, batch))
                continue
            with run.group.at(following):
                requests.append(replace(run.group.request(member, following), replay=True))
        return requests

    def is_needed(self, runs: Sequence[OperatorRun], batch: Batch) -> bool:
        """Whether any worker lacks something of the batches before ``batch``."""
        return any(member.version < batch - 1 for run in runs for member in run.group.members)

    def catch_up(self, runs: Sequence[OperatorRun], batch: Batch) -> bool:
        """Has every worker apply what it lacks of the batches before ``batch``; False if that has to be tried again.

        Operators that are connected go through the past batch by batch: what one of them sends in a batch is there
        when the next one asks for it.
        """
        lacking = [member.version for run in runs for member in run.group.members if member.version < batch - 1]
        if not lacking:
            return True
        for past in range(min(lacking) + 1, batch):
            for run in runs:
                if any(member.version < past for member in run.group.members) and not self._replay(
                    run, runs, Batch(past)
                ):
                    return False
        return True

    def _replay(self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch) -> bool:
        """One try of a past batch at one operator; whether all of its workers have applied it now."""
        group, started = run.group, self._clock.monotonic()
        self._past[batch].tell()
        with group.at(batch):
            reports = self._stage(run, runs, batch, self._past[batch])
        if not group.act_on(batch, reports):
            return False
        group.replayed(batch, list(reports.values()), self._clock.monotonic() - started)
        return True
