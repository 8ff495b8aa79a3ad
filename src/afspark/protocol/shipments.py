"""Checkpoints on their way from a primary into the memory of its secondary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from afspark.numbers import Batch, Fence, Incarnation
from afspark.protocol.operator_config import OperatorConfig


@dataclass(frozen=True)
class Shipping:
    """What a primary is told whose checkpoints go to a secondary: its last checkpoint was at the end of batch
    ``since``, on which the next one builds, and the secondary has all up to ``reached``.
    """

    since: int
    reached: int


@dataclass(frozen=True, kw_only=True)
class ShipOrder:
    """Which checkpoints are to go where: those after ``version`` of one incarnation of a worker, up to ``until``, which
    all workers have applied: what only some have applied may be taken back.
    """

    config: OperatorConfig
    worker: int
    incarnation: Incarnation
    fence: Fence
    source: str
    target: str
    version: int
    until: Batch


@dataclass(frozen=True, kw_only=True)
class Shipment:
    """Checkpoints of a worker, one after the other, and what it keeps of the batches that they cover.

    ``deltas``: (since, until, sealed backup). ``kept``: reports and outputs by file. ``kept_from``: they are complete
    for the batches after this one.
    """

    incarnation: Incarnation
    deltas: tuple[tuple[int, int, bytes], ...]
    kept: Mapping[str, bytes] = field(default_factory=dict)
    kept_from: Batch


@dataclass(frozen=True)
class ShipAnswer:
    """What a secondary says of a shipment: the version that it has now, or why it has taken nothing."""

    worker: int
    version: int
    refused: str = ""
    bytes: int = 0
