"""What to do with the segment a worker found: a pure table, no I/O.

A task for batch *t* looks at the segment of its worker (`Found`), compares it with what the driver told it
to expect (`Wanted`) and reads one `Action` from the table below. Only the driver declares a loss: a task
never recovers unless its hint says so, and every row that a task cannot decide alone is reported back.

Positions of a segment relative to batch t, tested from top to bottom:

- ``absent``: no segment, or one whose creation never ended
- ``foreign``: another query, pipeline, number of workers or format
- ``newer``: its incarnation or its fence is above the wanted one
- ``older``: its incarnation is below the wanted one, or it has another role; unless it is a secondary that is promoted
- ``restoring``: created, but its first contents are not complete
- ``behind``: version below t-1, unless what it lacks is left out, or completed from backups
- ``before``: version t-1, no mark; or below, and what it lacks is left out or completed
- ``halfway``: the same with the mark set: a process died while it applied the next batch
- ``applied``: version t, no mark
- ``later``: version above t, or t+1 begun, and t is replayed: others have lost it
- ``ahead``: version above t, or t+1 begun

========== ==================== ==================== ==================== ============
position   resume               create               recover              rollback
========== ==================== ==================== ==================== ============
absent     missing              create               recover              missing
foreign    foreign              create               recover              foreign
newer      superseded           superseded           superseded           superseded
older      stale                create               recover              stale
restoring  missing              create               recover              missing
behind     behind               behind               behind               behind
before     apply                apply                apply                nothing
halfway    roll_back_then_apply roll_back_then_apply roll_back_then_apply roll_back
applied    already_applied      already_applied      already_applied      step_back
later      already_applied      already_applied      already_applied      ahead
ahead      ahead                ahead                ahead                ahead
========== ==================== ==================== ==================== ============

The columns ``create`` and ``recover`` also serve retried tasks: the first attempt may have created the
segment, and even applied the batch, before its process died.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from afspark.numbers import NO_FENCE, Batch, Fence, Incarnation

FORMAT_VERSION = 6
"""Format of a segment's files. A segment of another format is foreign."""

NONE_APPLIED = Batch(-1)
"""Version of a segment to which no batch was applied."""

RESTORING = Batch(-2)
"""Version of a segment whose first contents are still being written."""

MOST_STEPS = 2**20 - 1
"""How many steps of one batch a segment can count: a batch that comes so far ends there."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Whose state a segment holds.

    ``checkpoint`` (where the query keeps its checkpoint; a local folder or a URI) tells when a segment
    belongs to a dead application. It takes no part in comparisons: the same folder can be spelled in
    several ways.
    """

    query_id: str
    fingerprint: str
    operator: str
    worker: int
    workers: int
    checkpoint: str = field(default="", compare=False)
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True)
class Absent:
    """There is no segment, or one whose creation never ended."""


@dataclass(frozen=True)
class Foreign:
    """Something is there that this version of the package cannot read."""

    reason: str


@dataclass(frozen=True)
class Present:
    """A readable segment.

    ``marked``: a batch, version + 1, was begun and not finished. ``fence``: the highest fence of a task that
    worked on it. ``kept_from``: it can still say what it has reported of the batches after this one.
    """

    identity: Identity
    incarnation: Incarnation
    version: Batch
    marked: bool
    fence: Fence = NO_FENCE
    kept_from: Batch = field(default=NONE_APPLIED, compare=False)
    #: it follows a primary on another host
    secondary: bool = False


Found: TypeAlias = Absent | Foreign | Present


class Hint(Enum):
    """What the driver expects of a task."""

    RESUME = "resume"  # the segment exists at version t-1: apply t
    CREATE = "create"  # nothing before t counts: start empty, apply t
    RECOVER = "recover"  # a loss was declared: restore the last backup under a new incarnation, apply t
    ROLLBACK = "rollback"  # undo t wherever it was applied; do not apply it


@dataclass(frozen=True)
class Wanted:
    """What the driver told the task of batch ``batch``.

    ``fence`` grows whenever tasks sent earlier must no longer do anything: with each start of a driver, each batch
    taken back, and each batch of pushed items that is over. A task that meets a higher one than its own is a zombie.
    """

    identity: Identity
    incarnation: Incarnation
    batch: Batch
    hint: Hint = Hint.RESUME
    fence: Fence = NO_FENCE
    #: others have lost the batch, and apply it once more
    replay: bool = False
    #: the task is about a secondary
    secondary: bool = False
    #: a secondary is to be the primary from now on, in place of the incarnation before
    promotes: bool = False
    #: batches that such a one lacks are left out
    skips: bool = False
    #: backups complete a state that has all batches up to this one; None: there are none at hand
    completes_from: int | None = None


class Position(Enum):
    """Where a segment stands relative to the wanted batch (see the module's docstring)."""

    ABSENT = "absent"
    FOREIGN = "foreign"
    NEWER = "newer"
    OLDER = "older"
    RESTORING = "restoring"
    BEHIND = "behind"
    BEFORE = "before"
    HALFWAY = "halfway"
    APPLIED = "applied"
    LATER = "later"
    AHEAD = "ahead"


class Action(Enum):
    """What the task has to do."""

    APPLY = "apply"
    ALREADY_APPLIED = "already_applied"  # return the report and outputs kept from the first time
    ROLL_BACK_THEN_APPLY = "roll_back_then_apply"
    CREATE = "create"  # replace whatever is there by an empty segment at version t-1, then apply
    RECOVER = "recover"  # replace whatever is there by the restored backup at version t-1, then apply
    ROLL_BACK = "roll_back"  # finish the undo of a half applied batch
    STEP_BACK = "step_back"  # take back a fully applied batch
    NOTHING = "nothing"
    MISSING = "missing"
    FOREIGN = "foreign"
    STALE = "stale"  # left over from an incarnation that was declared lost
    SUPERSEDED = "superseded"  # the task itself is a zombie: others were sent in its place
    BEHIND = "behind"
    AHEAD = "ahead"

    @property
    def refused(self) -> bool:
        """True if the task must change nothing and leave the decision to the driver."""
        return self in _REFUSED


_REFUSED = frozenset({Action.MISSING, Action.FOREIGN, Action.STALE, Action.SUPERSEDED, Action.BEHIND, Action.AHEAD})

_HINTS = (Hint.RESUME, Hint.CREATE, Hint.RECOVER, Hint.ROLLBACK)

_ROWS: dict[Position, tuple[Action, Action, Action, Action]] = {
    Position.ABSENT: (Action.MISSING, Action.CREATE, Action.RECOVER, Action.MISSING),
    Position.FOREIGN: (Action.FOREIGN, Action.CREATE, Action.RECOVER, Action.FOREIGN),
    Position.NEWER: (Action.SUPERSEDED,) * 4,
    Position.OLDER: (Action.STALE, Action.CREATE, Action.RECOVER, Action.STALE),
    Position.RESTORING: (Action.MISSING, Action.CREATE, Action.RECOVER, Action.MISSING),
    Position.BEHIND: (Action.BEHIND,) * 4,
    Position.BEFORE: (Action.APPLY, Action.APPLY, Action.APPLY, Action.NOTHING),
    Position.HALFWAY: (
        Action.ROLL_BACK_THEN_APPLY,
        Action.ROLL_BACK_THEN_APPLY,
        Action.ROLL_BACK_THEN_APPLY,
        Action.ROLL_BACK,
    ),
    Position.APPLIED: (
        Action.ALREADY_APPLIED,
        Action.ALREADY_APPLIED,
        Action.ALREADY_APPLIED,
        Action.STEP_BACK,
    ),
    Position.LATER: (
        Action.ALREADY_APPLIED,
        Action.ALREADY_APPLIED,
        Action.ALREADY_APPLIED,
        Action.AHEAD,
    ),
    Position.AHEAD: (Action.AHEAD,) * 4,
}

TRANSITIONS: dict[tuple[Position, Hint], Action] = {
    (position, hint): action
    for position, actions in _ROWS.items()
    for hint, action in zip(_HINTS, actions, strict=True)
}


def locate(found: Found, wanted: Wanted) -> Position:
    """Where the found segment stands relative to the wanted batch."""
    match found:
        case Absent():
            return Position.ABSENT
        case Foreign():
            return Position.FOREIGN
        case Present() if found.identity != wanted.identity:
            return Position.FOREIGN
        case Present() if found.incarnation > wanted.incarnation or found.fence > wanted.fence:
            return Position.NEWER
        case Present() if not (_is_meant(found, wanted) or _is_promoted(found, wanted)):
            return Position.OLDER
        case Present():
            return _relative(found.version, found.marked, wanted)


def _is_meant(found: Present, wanted: Wanted) -> bool:
    return (found.incarnation, found.secondary) == (wanted.incarnation, wanted.secondary)


def _is_promoted(found: Present, wanted: Wanted) -> bool:
    """Whether it becomes what is wanted; a process may have died half way."""
    before = found.secondary and found.incarnation in (wanted.incarnation - 1, wanted.incarnation)
    return wanted.promotes and before


def _relative(version: Batch, marked: bool, wanted: Wanted) -> Position:
    batch = wanted.batch
    if version == RESTORING:
        return Position.RESTORING
    if version < batch - 1 and not _goes_on(version, wanted):
        return Position.BEHIND
    if version <= batch - 1:
        return Position.HALFWAY if marked else Position.BEFORE
    if version == batch and not marked:
        return Position.APPLIED
    return Position.LATER if wanted.replay else Position.AHEAD


def _goes_on(version: Batch, wanted: Wanted) -> bool:
    """Whether a state that lacks batches goes on all the same."""
    return wanted.skips if wanted.completes_from is None else version >= wanted.completes_from


def decide(found: Found, wanted: Wanted) -> Action:
    """The action for a task that found ``found`` and was told ``wanted``."""
    return TRANSITIONS[locate(found, wanted), wanted.hint]
