"""The batches that no durable record covers yet: lost workers apply them once more.

A lost worker is given the state that the newest durable record names. It then applies the batches since that record
again: its own share of them, and with what each of them meant for windows. Everybody else keeps its state; a worker
that has applied such a batch answers what it answered then. Nothing is handed to a sink.

If a replayed batch does something else than the first time, whoever has had what is different now goes back as well,
so that all have applied the same. An approximate operator may do something else, because it was given another state
than it had. Of any other one it is said loudly: it is not deterministic, and nothing downstream of it is exact.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from afspark.clock import Clock
from afspark.coordinator.batch_input import BatchInput
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.recovery.coverage import declare_difference
from afspark.coordinator.recovery.queued_span import QueuedSpan, SpanReports
from afspark.coordinator.recovery.replay_check import ReplayCheck
from afspark.coordinator.told_bounds import is_whole
from afspark.coordinator.worker_state import WorkerState
from afspark.graph.node import Node
from afspark.numbers import Batch, Incarnation
from afspark.protocol.replicas import ReplicaId
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest

LOG = logging.getLogger("afspark")

#: Runs the stage of an operator for a batch of the past, with what belonged to it.
PastStage = Callable[[OperatorRun, Sequence[OperatorRun], Batch, BatchInput], Mapping[ReplicaId, TaskReport]]

#: Runs a stage that applies batches of the past from the queues of workers.
QueuedStage = Callable[[OperatorRun, QueuedSpan], SpanReports]


class Replay:
    """Remembers the batches since the newest durable record, and has lost workers apply them again."""

    def __init__(
        self,
        stage: PastStage,
        queued_stage: QueuedStage,
        clock: Clock,
        nodes: Sequence[Node],
        frames: Collection[str],
    ) -> None:
        self._stage, self._queued_stage, self._clock = stage, queued_stage, clock
        self.check = ReplayCheck(nodes, frames)
        #: what belonged to each batch; what it meant, its operators' workers know
        self._past: dict[Batch, BatchInput] = {}
        #: the newest batch that workers were asked to apply again, and which incarnation of them was
        self._asked: dict[tuple[str, int], tuple[Incarnation, Batch]] = {}

    def remember(self, batch: Batch, given: BatchInput, runs: Sequence[OperatorRun]) -> None:
        """Notes a batch that begins, until `forget` is called for it or a later one."""
        self._past[batch] = given
        for run in runs:
            run.group.remember(batch)

    def note(self, batch: Batch, runs: Sequence[OperatorRun]) -> None:
        """Notes what ``batch``, which all workers have applied, has done."""
        for run in runs:
            self.check.note(run.name, batch, run.reports, whole=is_whole(run))

    def forget(self, covered: Batch) -> None:
        """A durable record covers ``covered`` and all batches before it."""
        self._past = {batch: given for batch, given in self._past.items() if batch > covered}
        self.check.forget(covered)

    def next_requests(self, run: OperatorRun, batch: Batch) -> list[TaskRequest]:
        """What each worker would be asked to do next, wherever it stands on its way to ``batch``."""
        requests = []
        for member in run.group.members:
            following = Batch(member.version + 1)
            if following >= batch:
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
        past = self._first_lacking(runs, batch)
        while past < batch:
            for run in runs:
                lacks = any(member.version < past for member in run.group.members)
                if lacks and not self._replay(run, runs, past, batch):
                    return False
                if self._first_lacking(runs, batch) < past:
                    # Somebody has gone back.
                    break
            past = self._first_lacking(runs, batch)
        return True

    def _first_lacking(self, runs: Sequence[OperatorRun], batch: Batch) -> Batch:
        """The first batch that any worker lacks; ``batch`` if none before it."""
        return Batch(min([batch - 1, *(member.version for run in runs for member in run.group.members)]) + 1)

    def _replay(self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch, until: Batch) -> bool:
        """One try of a past batch at one operator; whether all of its workers have applied it now.

        With it come those that follow, before ``until``, if nothing has to be read or sent for them.
        """
        span = self._queued_span(run, runs, batch, until)
        if span is not None and self._replay_queued(run, runs, span):
            return True
        group, started = run.group, self._clock.monotonic()
        self._past[batch].tell()
        self._note_asked(run, [member for member in group.members if member.version < batch], batch)
        with group.at(batch):
            reports = self._stage(run, runs, batch, self._past[batch])
        if not group.act_on(batch, reports):
            return False
        group.replayed(batch, list(reports.values()), self._clock.monotonic() - started)
        self.compare(run, runs, batch, list(reports.values()))
        return True

    def _queued_span(
        self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch, until: Batch
    ) -> QueuedSpan | None:
        """The batches from ``batch`` on that wait beside the workers of an operator; not beyond those that whoever
        sends to it has applied, because what comes of them may be something else this time.
        """
        senders = [one for one in runs if run.name in self.check.reached_from(one.name)]
        reached = [Batch(member.version) for one in senders for member in one.group.members]
        last = max(batch, min([Batch(until - 1), *reached]))
        return QueuedSpan.of(run.group.members, batch, last, self.check.changes_reaching(run.name))

    def _replay_queued(self, run: OperatorRun, runs: Sequence[OperatorRun], span: QueuedSpan) -> bool:
        """One try of batches that wait; whether the first of them was applied. If not, it is to be read."""
        group, started = run.group, self._clock.monotonic()
        for batch in span.batches:
            self._past[batch].tell()
        self._note_asked(run, span.members, span.last)
        found = self._queued_stage(run, span)
        done = span.applied(found)
        if not done:
            alive = group.cluster.slots_by_host()
            if all(member.home in alive for member in span.members):
                group.without_queued(span.first)
            return False
        seconds = (self._clock.monotonic() - started) / len(done)
        for batch in done:
            reports = list(found[batch].values())
            group.recoveries.hear(reports)
            group.replayed(batch, reports, seconds)
            self.compare(run, runs, batch, reports)
            if any(group.member(one.worker).version != batch for one in span.members):
                # Somebody has gone back.
                break
        return True

    def _note_asked(self, run: OperatorRun, members: Sequence[WorkerState], batch: Batch) -> None:
        for member in members:
            self._asked[run.name, member.worker] = (member.incarnation, batch)

    def _may_have(self, run: OperatorRun, member: WorkerState, batch: Batch) -> bool:
        """Whether a worker may have applied ``batch``: also in a stage of which nothing was heard."""
        incarnation, asked = self._asked.get((run.name, member.worker), (member.incarnation, Batch(-1)))
        return member.version >= batch or (incarnation == member.incarnation and asked >= batch)

    def compare(
        self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch, reports: Sequence[TaskReport]
    ) -> None:
        """Acts on what a batch of the past has done, if that is something else than the first time."""
        found = self.check.differences(run.name, batch, reports)
        self.check.note(run.name, batch, reports, whole=is_whole(run))
        blamed = [one for one in found if self.check.is_to_blame(one, exact=run.group.restores_exactly)]
        for one in blamed:
            for name in self.check.suspects(run.name):
                reason = next(other for other in runs if other.name == name)
                self._tell(
                    reason, runs, batch, f"{one} has done something else than the first time when it was replayed"
                )
        for one in found:
            self.check.changed(run.name, batch)
            for name, since in self.check.receivers(one).items():
                receiver = next(other for other in runs if other.name == name)
                members = receiver.group.members
                workers = [member.worker for member in members if self._may_have(receiver, member, since)]
                self.take_back(receiver, runs, batch, workers, f"{run.name!r} has sent something else in batch {batch}")

    def take_back(
        self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch, workers: Sequence[int], why: str
    ) -> bool:
        """Has workers apply again what no record covers, because they were given other items then than there are now.

        False if that does not come to an end, which is told: nobody knows any more what has been applied.
        """
        back = [worker for worker in workers if self.check.may_go_back(run.name, worker)]
        for worker in workers:
            if worker in back:
                run.group.go_back_alone(worker, batch, why)
            else:
                self._tell(run, runs, batch, f"worker {worker} of {run.name!r} has other items than were sent: {why}")
        return bool(back)

    def _tell(self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch, what: str) -> None:
        reached = self.check.reached_from(run.name)
        LOG.warning(
            "%s. %s is not exact any more, nor is anything that its items reach%s: "
            "an operator or an input that is not deterministic cannot be recovered by replay.",
            what,
            run.name,
            f" ({', '.join(sorted(reached))})" if reached else "",
        )
        for one in runs:
            if one.name in {run.name, *reached}:
                declare_difference(one, batch, what)
