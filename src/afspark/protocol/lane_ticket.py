"""What a worker is told about its lane of a pushed source for one batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from afspark.push.wire.messages import Allowance
from afspark.push.wire.security import Access
from afspark.store.itemlosses import Gap
from afspark.store.lane_order import LaneOrder


@dataclass(frozen=True, kw_only=True)
class LaneTicket:
    """All that a worker needs to take items off its lane."""

    lane: int
    #: of the receiver that has the lane, and what lets the worker in
    address: str
    access: Access
    #: how long the batch takes items while they keep coming
    seconds: float
    #: how far the lane was taken, as of the last committed batch
    positions: Mapping[str, int]
    #: what the receiver may forget, if that is less: the rest may have to be applied once more
    released: Mapping[str, int] | None = None
    #: where the batch ended when it was applied first; None: it is new
    until: Mapping[str, int] | None = None
    #: what was missing then, and nobody will send
    gone: tuple[Gap, ...] = ()
    #: in which order it was taken then
    order: LaneOrder = ()
    #: what the receiver may hold without backup
    allow: Allowance
