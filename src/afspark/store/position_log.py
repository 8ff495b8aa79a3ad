"""Where each batch of pushed items ended on its lanes, if no record says so yet: a lost worker applies it once more.

One small object a batch. A batch that ran again under a later driver has ended where that one says, and has done what
that one says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from afspark.numbers import Batch
from afspark.store.base import Store
from afspark.store.batch_log import BatchLog
from afspark.store.commits import LanePositions
from afspark.store.effect_log import BatchEffects, effects_from_json, effects_to_json
from afspark.store.itemlosses import Gap
from afspark.store.lane_order import LaneOrder, order_from_json, order_to_json

POSITIONS = "positions"

#: by source and lane
LaneGaps = Mapping[str, Mapping[int, tuple[Gap, ...]]]
LaneOrders = Mapping[str, Mapping[int, LaneOrder]]


@dataclass(frozen=True)
class BatchEnd:
    """Where a batch has ended, by source and lane, and what it has done."""

    lanes: Mapping[str, LanePositions]
    effects: BatchEffects = field(default_factory=dict)
    #: items that were gone before: nobody has to send them again
    gaps: LaneGaps = field(default_factory=dict)
    #: in which order they were taken
    orders: LaneOrders = field(default_factory=dict)


class PositionLog(BatchLog):
    """The positions of the batches of one query."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, POSITIONS)

    def write(self, batch: Batch, epoch: str, end: BatchEnd) -> None:
        """Makes durable how ``batch`` has ended."""
        lanes = {name: {str(lane): dict(ends) for lane, ends in of.items()} for name, of in end.lanes.items()}
        gaps = {
            name: {str(lane): [vars(gap) for gap in found] for lane, found in of.items()}
            for name, of in end.gaps.items()
        }
        orders = {
            name: {str(lane): order_to_json(order) for lane, order in of.items()} for name, of in end.orders.items()
        }
        found = {"lanes": lanes, "effects": effects_to_json(end.effects), "gaps": gaps, "orders": orders}
        self.put(batch, epoch, found)

    def read(self, first: Batch, last: Batch) -> dict[Batch, BatchEnd]:
        """How the batches from ``first`` to ``last`` have ended, as far as that can be read."""
        newest = {entry.batch: entry for entry in self.entries() if first <= entry.batch <= last}
        return {
            batch: BatchEnd(
                {name: {int(lane): dict(ends) for lane, ends in of.items()} for name, of in meta["lanes"].items()},
                effects_from_json(meta.get("effects", {})),
                {
                    name: {int(lane): tuple(Gap(**gap) for gap in found) for lane, found in of.items()}
                    for name, of in meta.get("gaps", {}).items()
                },
                {
                    name: {int(lane): order_from_json(order) for lane, order in of.items()}
                    for name, of in meta.get("orders", {}).items()
                },
            )
            for batch, meta in self.contents(newest.values())
        }
