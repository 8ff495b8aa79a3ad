"""What a stage brings to the workers of one operator, and the user's code that it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from afspark.model.operator import Operator, Transform
from afspark.model.windows import Window
from afspark.protocol.parcels import Packet, Parcel
from afspark.protocol.ports import ALL, feedback_for, items_for
from afspark.resident.residents import Residents
from afspark.sources import Chunk, Source
from afspark.task.ingest import Ingest


@dataclass(frozen=True)
class UserCode:
    """The user's code, as it travels to the tasks."""

    operator: Operator
    keyed: bool = False
    window: Window | None = None

    def ingest(self, packets: Iterable[Packet], transforms: Sequence[Transform], now: float) -> Ingest:
        return Ingest(packets, transforms, self.operator.combiner, self.window, now)

    @property
    def key(self) -> tuple[str, ...]:
        return self.operator.key if self.keyed else ()


@dataclass(frozen=True)
class SourceInput:
    """Shares of a source that workers read themselves: one list of chunks per worker."""

    name: str
    source: Source
    transforms: tuple[Transform, ...]
    shares: Sequence[Sequence[Chunk]]


@dataclass(frozen=True)
class OutputInput:
    """What the workers of another operator keep for this one: items of this batch, or feedback of the last."""

    residents: Residents
    homes: tuple[str, ...]
    batch: int
    receiver: str
    transforms: tuple[Transform, ...] = ()
    feedback: bool = False

    @property
    def name(self) -> str:
        return self.residents.config.operator_name

    @property
    def ports(self) -> tuple[str, ...]:
        return (feedback_for(self.receiver),) if self.feedback else (ALL, items_for(self.receiver))


@dataclass(frozen=True)
class FrameInput:
    """A batch of a streaming DataFrame. ``frame`` is the cluster's business."""

    name: str
    frame: Any
    transforms: tuple[Transform, ...]


StageInput = SourceInput | OutputInput | FrameInput


Addressed = tuple[int, Parcel]
