"""How far lanes were taken by the batches that may have to be applied once more. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from afspark.numbers import Batch
from afspark.push.receiver.session_listing import is_receiver_start
from afspark.store.commits import LanePositions
from afspark.store.itemlosses import Gap
from afspark.store.lane_order import LaneOrder
from afspark.store.position_log import BatchEnd, LaneGaps, LaneOrders

Lanes = dict[int, dict[str, int]]


def copied(lanes: Mapping[str, LanePositions]) -> dict[str, Lanes]:
    """The positions by source and lane, as values of their own."""
    return {name: {lane: dict(ends) for lane, ends in of.items()} for name, of in lanes.items()}


class PastPositions:
    """Where each batch since the newest durable record ended on every lane, and that record's own batch.

    ``released``: what receivers may forget, because a durable record covers it whose batch Spark has committed.
    """

    def __init__(self) -> None:
        self._ends: dict[Batch, dict[str, Lanes]] = {}
        self._gaps: dict[Batch, LaneGaps] = {}
        self._orders: dict[Batch, LaneOrders] = {}
        self.released: dict[str, Lanes] = {}

    def begin(self, covered: Batch, recorded: Mapping[str, LanePositions], past: Mapping[Batch, BatchEnd]) -> None:
        """A driver starts from the record of ``covered``; ``past``: how the batches after it ended."""
        self._ends = {covered: copied(recorded), **{batch: copied(end.lanes) for batch, end in past.items()}}
        self._gaps = {batch: end.gaps for batch, end in past.items()}
        self._orders = {batch: end.orders for batch, end in past.items()}
        self.released = copied(recorded)
        newest = self._ends[max(self._ends)]
        for name, lanes in self.released.items():
            for lane, ends in lanes.items():
                now = newest.get(name, {}).get(lane, {})
                # Whoever was left out since then is over, and the count says so.
                lanes[lane] = {producer: end for producer, end in ends.items() if producer in now} | {
                    start: count for start, count in now.items() if is_receiver_start(start)
                }

    def note(self, batch: Batch, end: BatchEnd) -> None:
        """``batch`` has ended there."""
        self._ends[batch], self._gaps[batch], self._orders[batch] = copied(end.lanes), end.gaps, end.orders

    def release(self, covered: Batch) -> None:
        """A durable record covers ``covered``, which Spark has committed: nobody will apply it once more."""
        if covered in self._ends:
            self.released = copied(self._ends[covered])
            self._ends = {batch: lanes for batch, lanes in self._ends.items() if batch >= covered}
            self._gaps = {batch: gaps for batch, gaps in self._gaps.items() if batch >= covered}
            self._orders = {batch: orders for batch, orders in self._orders.items() if batch >= covered}

    def span(self, name: str, lane: int, batch: Batch) -> tuple[dict[str, int], dict[str, int]] | None:
        """Where a batch that has ended begins and ends on a lane; None if it has not ended yet."""
        if batch not in self._ends:
            return None
        return self._at(Batch(batch - 1), name, lane), self._at(batch, name, lane)

    def gaps_of(self, name: str, lane: int, batch: Batch) -> tuple[Gap, ...]:
        """What was missing on a lane when a batch was applied first."""
        return self._gaps.get(batch, {}).get(name, {}).get(lane, ())

    def order_of(self, name: str, lane: int, batch: Batch) -> LaneOrder:
        """In which order items were taken off a lane when a batch was applied first."""
        return self._orders.get(batch, {}).get(name, {}).get(lane, ())

    def ends_of(self, batch: Batch) -> Mapping[str, LanePositions]:
        """Where a batch ended."""
        return self._ends[batch]

    def change(self, name: str, lane: int, how: Callable[[dict[str, int]], dict[str, int]]) -> None:
        """Sessions are over, or counted: what is known of a lane changes as of all batches."""
        for lanes in (self.released, *self._ends.values()):
            if lane in lanes.get(name, {}):
                lanes[name][lane] = how(lanes[name][lane])

    def _at(self, batch: Batch, name: str, lane: int) -> dict[str, int]:
        return dict(self._ends.get(batch, {}).get(name, {}).get(lane, {}))
