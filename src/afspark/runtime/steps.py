"""How far a batch of pushed items has come: what a worker must know to go on where a process has died.

Items of a receiver cannot be read again once they are confirmed, so a batch of them is applied in steps, each final
once it is closed. Its note is kept beside the state, and its positions go into every backup of the batch.

A step is closed while its backup is still being written, and the next one begins. Its items are confirmed only when
that backup is durable: until then they stay with their receiver, which hands them out again if the state is lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from afspark.model.windows import PaneReport
from afspark.push.workerwire import NO_BACKUP, BackupNumber
from afspark.runtime.orders import Mission, Order, Trace
from afspark.store import Damage, ObjectRef, Sealed
from afspark.store.naming import OBJECTS, parse_object_name
from afspark.store.quarantine import BadBatch
from afspark.store.reading import read_sealed

Positions = Mapping[str, int]

#: Where a backup's meta holds the passage it was made in.
PASSAGE = "passage"


@dataclass(frozen=True)
class Gap:
    """Items of a producer that were acknowledged and never came: numbers [first, end) of a lane."""

    producer: str
    first: int
    end: int
    #: between the last item before the gap and the first sign of it
    seconds: float = 0.0

    @property
    def items(self) -> int:
        return self.end - self.first

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Passage:
    """What has gone into the state of one lane's worker in the batch at work."""

    positions: Positions = field(default_factory=dict)
    items: int = 0
    bytes: int = 0
    gaps: tuple[Gap, ...] = ()
    #: the durable ones
    backups: tuple[ObjectRef, ...] = ()
    #: another one was being written: the state takes it for durable, and nobody knows whether it is
    writing: bool = False
    panes: PaneReport | None = None
    #: the newest backup that the state has begun to count on
    newest: BackupNumber = NO_BACKUP
    #: found damaged when the state was restored
    damaged: tuple[str, ...] = ()
    #: what was left out
    bad: tuple[BadBatch, ...] = ()

    def to_text(self) -> str:
        return json.dumps(
            {
                "positions": dict(self.positions),
                "items": self.items,
                "bytes": self.bytes,
                "gaps": [gap.to_json() for gap in self.gaps],
                "backups": [ref.to_json() for ref in self.backups],
                "writing": self.writing,
                "panes": self.panes.to_json() if self.panes else None,
                "newest": self.newest,
                "damaged": self.damaged,
                "bad": [bad.to_json() for bad in self.bad],
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Passage:
        found = json.loads(text)
        return cls(
            positions=found["positions"],
            items=found["items"],
            bytes=found["bytes"],
            gaps=tuple(Gap(**gap) for gap in found["gaps"]),
            backups=tuple(ObjectRef(*ref) for ref in found["backups"]),
            writing=found.get("writing", False),
            panes=PaneReport.from_json(found["panes"]) if found["panes"] else None,
            newest=BackupNumber(*found.get("newest", NO_BACKUP)),
            damaged=tuple(found.get("damaged", ())),
            bad=tuple(BadBatch.from_json(bad) for bad in found.get("bad", ())),
        )


@dataclass(frozen=True)
class Unnamed:
    """What the store has of a batch that no record names yet: how far its steps have come, and who wrote them."""

    passage: Passage | None = None
    traces: tuple[Trace, ...] = ()

    def undeclared(self, counted: Mapping[int, frozenset[int]]) -> Trace | None:
        """The first incarnation whose loss is not ``counted`` (by incarnation, the panes), or not for all panes."""
        for trace in self.traces:
            if trace.incarnation not in counted or not trace.panes <= counted[trace.incarnation]:
                return trace
        return None


def find_unnamed(mission: Mission, order: Order) -> Unnamed:
    """What was backed up in the steps of the order's batch. Whoever wrote it must have been shut out before.

    The newest backup lists those before it, so that one whose process died before it could close its step, and
    whose step was done anew, is left out. One that was being written when its process died is damaged, and the
    one before it counts: nothing had been confirmed for it.
    """
    store = mission.store
    names = [name for name in store.list(OBJECTS) if _is_step_of(name, mission, order)]
    found = list(zip(names, read_sealed(store, names), strict=True))
    damaged = tuple(name for name, sealed in found if isinstance(sealed, Damage))
    steps = [(name, sealed) for name, sealed in found if not isinstance(sealed, Damage) and PASSAGE in sealed.meta]
    if not steps:
        return Unnamed(Passage(damaged=damaged) if damaged else None)
    newest: dict[int, tuple[Passage, str, Sealed]] = {}
    for name, sealed in steps:
        passage = Passage.from_text(sealed.meta[PASSAGE])
        writer = passage.newest.incarnation
        if writer not in newest or passage.newest > newest[writer][0].newest:
            newest[writer] = passage, name, sealed
    passage, name, sealed = newest[max(newest)]
    own = ObjectRef.of(name, store.get(name), cells=sealed.meta["cells"], full=sealed.meta["full"])
    traces = tuple(Trace(writer, passage.panes) for writer, (passage, _, _) in sorted(newest.items()))
    return Unnamed(replace(passage, backups=(*passage.backups, own), damaged=damaged), traces)


def _is_step_of(name: str, mission: Mission, order: Order) -> bool:
    origin = parse_object_name(name)
    return (
        origin is not None
        and (origin.operator, origin.worker, origin.batch) == (mission.operator_name, order.worker, order.batch)
        and origin.incarnation <= order.incarnation
    )
