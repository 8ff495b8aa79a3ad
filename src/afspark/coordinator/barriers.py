"""When a batch is a barrier: its end is a state of the whole query that can be recovered."""

from __future__ import annotations

from collections.abc import Sequence

from afspark.policies import BarrierSnapshot, Tolerance


class Barriers:
    """The barriers of one query: the end of every batch, unless an operator asks for snapshots further apart.

    A snapshot is of the whole query. So a barrier is one for all operators, and comes when the first of them is due.
    """

    def __init__(self, tolerances: Sequence[Tolerance]) -> None:
        self._snapshots = [one for one in tolerances if isinstance(one, BarrierSnapshot)]
        self._since = (0.0, 0, 0)
        #: barriers that were due and skipped since the last one, because the snapshot before was still on its way
        self.skipped = 0

    @property
    def asynchronous(self) -> bool:
        """Whether workers go on while a snapshot is on its way to the store."""
        return all(one.asynchronous for one in self._snapshots)

    @property
    def full_recovery(self) -> bool:
        """Whether a loss takes everybody back to the last snapshot."""
        return any(one.recovery == "full" for one in self._snapshots)

    @property
    def seconds(self) -> float:
        """How far apart barriers are at least; 0 if every batch may be one."""
        return max((one.interval or 0.0 for one in self._snapshots), default=0.0)

    def is_barrier(self, now: float, batch: int, items: int, *, under_way: bool) -> bool:
        """Whether ``batch``, which begins now after so many items, is to end with a snapshot."""
        if not self._snapshots:
            return True
        seconds, batches, before = self._since
        due = any(
            one.is_due(seconds=now - seconds, batches=batch - batches, items=items - before) for one in self._snapshots
        )
        if due and under_way:
            self.skipped += 1
            return False
        return due

    def passed(self, now: float, batch: int, items: int) -> None:
        """``batch`` has ended with a snapshot."""
        self._since = (now, batch, items)
        self.skipped = 0
