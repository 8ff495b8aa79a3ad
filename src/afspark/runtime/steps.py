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

from afspark.model.windows import PaneReport
from afspark.push.workerwire import NO_BACKUP, BackupNumber
from afspark.runtime.orders import Mission, Order, Trace
from afspark.runtime.residence import Residence
from afspark.store import Damage, ObjectRef, Sealed, object_name, seal
from afspark.store.naming import OBJECTS, parse_object_name
from afspark.store.quarantine import BadBatch
from afspark.store.reading import read_sealed

Positions = Mapping[str, int]

#: Names of one backup's attempts.
_ATTEMPTS = 10**6

#: How many backups a process may number before it meets the numbers of the next one that works on the same batch.
_GENERATION = 2**20

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
    #: backups of steps, found damaged when the state was restored
    damaged: tuple[str, ...] = ()
    #: damage that no bound covers, met in this batch when the state was restored
    uncovered: tuple[str, ...] = ()
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
                "uncovered": self.uncovered,
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
            uncovered=tuple(found.get("uncovered", ())),
            bad=tuple(BadBatch.from_json(bad) for bad in found.get("bad", ())),
        )


@dataclass(frozen=True)
class Unnamed:
    """What the store has of a batch that no record names yet: how far its steps have come, and who wrote them."""

    passage: Passage | None = None
    traces: tuple[Trace, ...] = ()
    #: damaged, and not because their writer died while it wrote them
    rotten: tuple[str, ...] = ()
    #: above the numbers of all backups of the batch, also of those that processes which are dead may yet complete
    generation: int = _GENERATION

    def undeclared(self, order: Order, mission: Mission) -> Trace | None:
        """The first incarnation whose loss is not counted yet, or not for all that it had seen.

        Under an exact policy only those matter that worked under another one, before a restart.
        """
        traces = [trace for trace in self.traces if trace.may_lose or not mission.exact]
        return next((trace for trace in traces if not trace.is_counted(order, mission.window)), None)


def backup_name(mission: Mission, order: Order, number: int) -> str:
    """A name that no other backup has; it tells the ``number`` of this one even if it is damaged."""
    attempt = number * _ATTEMPTS + secrets.randbelow(_ATTEMPTS)
    return object_name(mission.epoch, mission.operator_name, order.worker, order.incarnation, order.batch, attempt)


def _rotten(damaged: Sequence[str], newest: BackupNumber) -> tuple[str, ...]:
    """Those after the ``newest`` sound one that had to be durable, because their writer has begun another one since.

    A process has at most one backup under way at a time, so only its last one can have been cut short by its death.
    """
    origins = {name: parse_object_name(name) for name in damaged}
    after = sorted(
        (origin.incarnation, origin.attempt // _ATTEMPTS, name)
        for name, origin in origins.items()
        if origin is not None and (origin.incarnation, origin.attempt // _ATTEMPTS) > newest[1:]
    )
    last = {(incarnation, number // _GENERATION): number for incarnation, number, _ in after}
    return tuple(name for incarnation, number, name in after if number < last[incarnation, number // _GENERATION])


def _next_generation(names: Sequence[str]) -> int:
    origins = [origin for name in names if (origin := parse_object_name(name)) is not None]
    newest = max((origin.attempt // _ATTEMPTS for origin in origins), default=0)
    return _generation_after(newest)


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
    generation = _next_generation(names)
    if not steps:
        known = Passage(damaged=damaged) if damaged else None
        return Unnamed(known, rotten=_rotten(damaged, NO_BACKUP), generation=generation)
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
    return Unnamed(restored, traces, _rotten(damaged, passage.newest), generation)


def take_up(home: Residence, mission: Mission, order: Order) -> None:
    """Before a process goes on with a batch that another one had begun, which may have left a backup under way."""
    begin_generation(home, mission, order, _generation_after(home.number_backup()))


def begin_generation(
    home: Residence, mission: Mission, order: Order, generation: int, reached: Passage | None = None
) -> None:
    """Makes durable from where on a process numbers its backups, when it builds a state or takes up another's batch.

    A process that is dead may have one under way that becomes durable later. It must never pass for newer than those
    that are made from now on, nor have the number of one.
    """
    mission.store.put(
        backup_name(mission, order, generation), seal({"kind": "generation"} | header_of(mission, order), {})
    )
    home.restored_at(order.batch, None if reached is None else reached.to_text().encode(), generation)


def _generation_after(number: int) -> int:
    return (number // _GENERATION + 1) * _GENERATION


def header_of(mission: Mission, order: Order) -> dict[str, Any]:
    """Whose backup an object is, for its header."""
    return {
        "query": mission.query_id,
        "operator": mission.operator_name,
        "worker": order.worker,
        "incarnation": order.incarnation,
        "batch": order.batch,
    }


def _is_step_of(name: str, mission: Mission, order: Order) -> bool:
    origin = parse_object_name(name)
    return (
        origin is not None
        and (origin.operator, origin.worker, origin.batch) == (mission.operator_name, order.worker, order.batch)
        and origin.incarnation <= order.incarnation
    )
