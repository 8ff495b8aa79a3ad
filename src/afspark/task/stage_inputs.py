"""What a stage brings to the workers of one operator, and the user's code that it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from afspark.model.operator import Operator, Transform
from afspark.model.windows import Window
from afspark.numbers import Batch
from afspark.protocol.lane_ticket import LaneTicket
from afspark.protocol.parcels import Parcel
from afspark.protocol.ports import ALL, feedback_for, items_for
from afspark.protocol.requests import TaskRequest
from afspark.resident.residents import Residents
from afspark.sources import Chunk, Source
from afspark.task.ingest import IncomingPackets, Ingest


@dataclass(frozen=True)
class UserCode:
    """The user's code, as it travels to the tasks."""

    operator: Operator
    keyed: bool = False
    window: Window | None = None

    def ingest(self, packets: IncomingPackets, transforms: Sequence[Transform], now: float) -> Ingest:
        return Ingest(packets, transforms, self.operator.combiner, self.window, now)

    @property
    def key(self) -> tuple[str, ...]:
        return self.operator.key if self.keyed else ()


@dataclass(frozen=True)
class SourceInput:
    """Shares of a source that workers read themselves: the chunks of each worker."""

    may_send_nothing: ClassVar[bool] = False
    name: str
    source: Source
    transforms: tuple[Transform, ...]
    shares: Mapping[int, Sequence[Chunk]]


@dataclass(frozen=True)
class LaneInput:
    """Lanes of a pushed source, by worker. A batch that no tick of the source belongs to has none."""

    name: str
    transforms: tuple[Transform, ...]
    tickets: Mapping[int, LaneTicket]


@dataclass(frozen=True)
class OutputInput:
    """What the workers of another operator keep for this one: items of this batch, or feedback of the last."""

    may_send_nothing: ClassVar[bool] = False
    residents: Residents
    #: hosts by worker
    homes: Mapping[int, str]
    batch: Batch
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

    #: an empty partition sends nothing at all
    may_send_nothing: ClassVar[bool] = True
    name: str
    frame: Any
    transforms: tuple[Transform, ...]


DirectInput = SourceInput | LaneInput
"""What a worker can read itself."""

SentInput = SourceInput | OutputInput | FrameInput
"""What can come to the workers in parcels."""

StageInput = DirectInput | OutputInput | FrameInput


def split_inputs(inputs: Iterable[StageInput], *, keyed: bool) -> tuple[tuple[DirectInput, ...], list[SentInput]]:
    """What workers read themselves, and what is sent to them: with keys, the items of sources as well."""
    direct: list[DirectInput] = []
    sent: list[SentInput] = []
    for one in inputs:
        match one:
            case LaneInput():
                direct.append(one)
            case SourceInput() if not keyed:
                direct.append(one)
            case _:
                sent.append(one)
    return tuple(direct), sent


def hosts_of(requests: Iterable[TaskRequest], inputs: Iterable[StageInput]) -> set[str]:
    """The hosts without which a stage cannot end: those of its workers, and of those whose outputs they are brought."""
    kept = (home for one in inputs if isinstance(one, OutputInput) for home in one.homes.values())
    return {*(request.home for request in requests), *kept}


Addressed = tuple[int, Parcel]
