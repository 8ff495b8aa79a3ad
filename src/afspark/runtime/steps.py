"""How far a batch of pushed items has come: what a worker must know to go on where a process has died.

Items of a receiver cannot be read again once they are confirmed, so a batch of them is applied in steps, each final
once it is closed. Its note is kept beside the state, and its positions go into every backup of the batch.

A step is closed while its backup is still being written, and the next one begins. Its items are confirmed only when
that backup is durable: until then they stay with their receiver, which hands them out again if the state is lost.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from afspark.model.windows import PaneReport, Window
from afspark.push.workerwire import NO_BACKUP, BackupNumber
from afspark.runtime.orders import Mission, Order, Trace
from afspark.store import Damage, ObjectRef, Sealed
from afspark.store.naming import OBJECTS, parse_object_name
from afspark.store.quarantine import BadBatch
from afspark.store.reading import read_sealed

Positions = Mapping[str, int]

#: Names of one backup's attempts.
_ATTEMPTS = 10**6

#: Where a backup's meta holds the passage it was made in.
PASSAGE = "passage"
#: … and the thresholds that it was made under
THETA = "theta"


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
    #: damaged, and not because their writer died while it wrote them
    rotten: tuple[str, ...] = ()

    def undeclared(self, order: Order, window: Window | None) -> Trace | None:
        """The first incarnation whose loss is not counted yet, or not for all that it had seen."""
        return next((trace for trace in self.traces if not trace.is_counted(order, window)), None)


def attempt_of(number: int) -> int:
    """The last part of a backup's name: no other one has it, and it tells the ``number`` if the backup is damaged."""
    return number * _ATTEMPTS + secrets.randbelow(_ATTEMPTS)


def _rotten(damaged: Sequence[str], newest: BackupNumber) -> tuple[str, ...]:
    """Those after the ``newest`` sound one that had to be durable, because their writer has begun another one since.

    At most one backup is under way at a time, so only the last of all can have been cut short by a death.
    """
    origins = {name: parse_object_name(name) for name in damaged}
    after = sorted(
        (origin.incarnation, origin.attempt // _ATTEMPTS, name)
        for name, origin in origins.items()
        if origin is not None and (origin.incarnation, origin.attempt // _ATTEMPTS) > newest[1:]
    )
    if not after:
        return ()
    writer, last, _ = after[-1]
    return tuple(name for incarnation, number, name in after if incarnation == writer and number < last)


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
        return Unnamed(Passage(damaged=damaged) if damaged else None, rotten=_rotten(damaged, NO_BACKUP))
    newest: dict[int, tuple[Passage, str, Sealed]] = {}
    for name, sealed in steps:
        passage = Passage.from_text(sealed.meta[PASSAGE])
        writer = passage.newest.incarnation
        if writer not in newest or passage.newest > newest[writer][0].newest:
            newest[writer] = passage, name, sealed
    passage, name, sealed = newest[max(newest)]
    own = ObjectRef.of(name, store.get(name), cells=sealed.meta["cells"], full=sealed.meta["full"])
    traces = tuple(
        Trace(writer, last.panes, backup.meta.get(THETA, {})) for writer, (last, _, backup) in sorted(newest.items())
    )
    restored = replace(passage, backups=(*passage.backups, own), damaged=damaged)
    return Unnamed(restored, traces, _rotten(damaged, passage.newest))


def _is_step_of(name: str, mission: Mission, order: Order) -> bool:
    origin = parse_object_name(name)
    return (
        origin is not None
        and (origin.operator, origin.worker, origin.batch) == (mission.operator_name, order.worker, order.batch)
        and origin.incarnation <= order.incarnation
    )
