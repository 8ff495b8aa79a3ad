"""Batches of the past whose items wait beside all workers that lack them: one stage applies several. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from afspark.coordinator.worker_state import WorkerState
from afspark.numbers import Batch
from afspark.protocol.replicas import ReplicaId
from afspark.protocol.reports import Status, TaskReport

#: How many batches one stage applies at most: nobody hears of any of them before its end.
MOST_BATCHES = 16

#: What workers say of several batches.
SpanReports = Mapping[Batch, Mapping[ReplicaId, TaskReport]]


@dataclass(frozen=True)
class QueuedSpan:
    """The batches from ``first`` to ``last``, which ``members`` lack, and nobody else of their operator."""

    members: tuple[WorkerState, ...]
    first: Batch
    last: Batch

    @classmethod
    def of(cls, members: Sequence[WorkerState], first: Batch, last: Batch, changes: int) -> QueuedSpan | None:
        """As many batches from ``first`` as wait, up to ``last`` at most; None if ``first`` does not.

        ``changes``: how often what is sent to the workers has changed; what waits from before that does not count.
        """
        lacking = tuple(one for one in members if one.version < first)
        others = [Batch(one.version) for one in members if one.version >= first]
        last = min(last, Batch(first + MOST_BATCHES - 1), *others)
        waiting = Batch(first - 1)
        while waiting < last and all(one.queued.get(Batch(waiting + 1)) == changes for one in lacking):
            waiting = Batch(waiting + 1)
        return cls(lacking, first, waiting) if lacking and waiting >= first else None

    @property
    def batches(self) -> list[Batch]:
        return [Batch(batch) for batch in range(self.first, self.last + 1)]

    def applied(self, found: SpanReports) -> list[Batch]:
        """The first of the batches that all have applied: up to one that somebody has not."""
        done: list[Batch] = []
        for batch in self.batches:
            reports = [found.get(batch, {}).get(one.primary.id) for one in self.members]
            if any(one is None or one.status is not Status.APPLIED or one.lacks_batch for one in reports):
                break
            done.append(batch)
        return done
