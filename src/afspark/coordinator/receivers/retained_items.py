"""Pushed items that may have to be applied once more: which batch had which of them, and when they are forgotten.

A batch of pushed items is whatever had arrived, so where it ended is made durable with each batch, before Spark commits
it. A worker that is lost later applies the same items again, and a receiver forgets none before a durable record covers
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.receivers.receivers import Receivers
from afspark.errors import CheckpointError
from afspark.numbers import Batch
from afspark.push.receiver.session_listing import is_receiver_start
from afspark.store import CommitRecord, RecordLog
from afspark.store.effect_log import BatchEffects
from afspark.store.position_log import BatchEnd, PositionLog


def _agree(reported: Mapping[str, int], recorded: Mapping[str, int]) -> bool:
    """Whether two accounts of where a batch ended say the same; one may know already that some sessions are over."""
    both = [name for name in reported if name in recorded and not is_receiver_start(name)]
    return all(reported[name] == recorded[name] for name in both)


#: The operators that take pushed items off lanes, with the source of each.
Drained = Iterable[tuple[str, OperatorRun]]


class RetainedItems:
    """The retained items of one query. ``active``: it has any."""

    def __init__(self, receivers: Receivers, positions: PositionLog, records: RecordLog, *, active: bool) -> None:
        self._receivers, self._positions, self._records, self.active = receivers, positions, records, active
        #: the newest batch that a durable record covered when the last one had ended
        self._covered = Batch(-1)

    def open(self, record: CommitRecord | None, first: Batch, batch: Batch) -> dict[Batch, BatchEffects]:
        """Takes up where the batches since ``record`` have ended, and returns what they have done. A driver that starts
        with ``batch`` applies them once more, from ``first`` on.
        """
        if not self._receivers.sources:
            return {}
        since = Batch(0 if record is None else record.batch + 1)
        past = self._positions.read(since, Batch(batch - 1)) if since < batch else {}
        if past and first != since:
            raise CheckpointError(
                f"Batches {since} to {batch - 1} of pushed items are covered by no record and cannot be applied again.",
                remedy="Start the query once more as it was; with BarrierSnapshot(batches=1) every batch is covered.",
                batch=batch,
            )
        if not self.active:
            return {}
        unknown = [one for one in range(first, batch) if one not in past]
        if unknown:
            raise CheckpointError(
                f"Where batch {unknown[0]} of pushed items ended cannot be read.",
                remedy="Bring back the folder afspark/positions of the checkpoint, or start with a new one.",
                batch=unknown[0],
            )
        self._receivers.past.begin(Batch(first - 1), self._receivers.recorded(), past)
        return {past_batch: end.effects for past_batch, end in past.items()}

    def take_up(self, batch: Batch, drained: Drained) -> None:
        """Goes on to where a batch of an earlier driver ended, after all workers have it."""
        if not self.active:
            return
        recorded = self._receivers.past.ends_of(batch)
        for name, run in drained:
            for report in run.reports:
                known = recorded.get(name, {}).get(report.worker, {})
                if not _agree(report.positions or {}, known):
                    raise CheckpointError(
                        f"Worker {report.worker} of {run.name!r} has ended batch {batch} elsewhere than was recorded.",
                        remedy="Start with a new checkpoint.",
                        worker=report.worker,
                        batch=batch,
                    )
        self._receivers.restore(recorded)

    def keep(self, batch: Batch, effects: BatchEffects) -> None:
        """Makes durable where a batch has ended on its lanes, and what it has done, before Spark commits it: its record
        may come later.
        """
        if not self.active:
            return
        lanes = self._receivers.recorded()
        end = BatchEnd(lanes, effects, dict(self._receivers.gaps), dict(self._receivers.orders))
        self._receivers.past.note(batch, end)
        self._positions.write(batch, self._records.epoch, end)
        # Of two drivers either the older one sees the newer one now, or the newer one reads this.
        self._records.refuse_if_superseded()

    def release(self, batch: Batch, covered: Batch) -> None:
        """A durable record covers ``covered``, when ``batch`` has ended: receivers may forget what came before.

        If everything dies before Spark has committed ``batch``, its own record is not used.
        """
        if self.active:
            self._receivers.past.release(covered if covered < batch else self._covered)
            self._covered = covered
            self._positions.prune(self._records.oldest)
