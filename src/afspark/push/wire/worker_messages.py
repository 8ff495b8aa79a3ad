"""What a worker, or the driver on its behalf, says to a receiver, and what the receiver answers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from afspark.numbers import NO_INCARNATION, Batch, Fence, Incarnation
from afspark.push.wire.field_checks import count, flag, is_number, parse, positions, text, wrong
from afspark.push.wire.messages import TAG_BYTES, Allowance, Message, Positions, PunctuationMark, punctuation_of


class BackupNumber(NamedTuple):
    """Names the newest backup of a worker's steps, so that two can be compared: the greater one is the newer."""

    batch: Batch
    incarnation: Incarnation
    number: int


NO_BACKUP = BackupNumber(Batch(-1), NO_INCARNATION, 0)

#: Messages with positions may be of any length: nobody knows how many sessions come and go within one batch, and a
#: receiver reads them only from those who have shown the workers' secret.
ANY_LENGTH = sys.maxsize


@dataclass(frozen=True)
class Claim(Message):
    """Base of what a worker or its driver says: which lane, and on whose behalf."""

    lane: int
    incarnation: Incarnation
    fence: Fence
    #: names one process among those that act for the same incarnation; "" where there is only one
    owner: str = ""

    limit = ANY_LENGTH
    required = frozenset({"lane", "incarnation", "fence"})
    optional = frozenset({"owner"})

    def _fields(self) -> dict[str, Any]:
        fields = {"lane": self.lane, "incarnation": self.incarnation, "fence": self.fence}
        return fields | {"owner": self.owner} if self.owner else fields

    @classmethod
    def _claim(cls, fields: dict[str, Any]) -> tuple[int, Incarnation, Fence, str]:
        return (
            count(fields["lane"], "lane"),
            Incarnation(count(fields["incarnation"], "incarnation")),
            Fence(count(fields["fence"], "fence")),
            text(fields["owner"], "owner") if "owner" in fields else "",
        )


@dataclass(frozen=True)
class Pull(Claim):
    """The ticket of a DoGet: entries above ``confirmed``, the oldest first, about ``bytes`` of them.

    ``after``: what the worker has in hand already; it stays pending but is not handed out this time. ``until``: it only
    wants entries of a batch that it applies once more.
    """

    confirmed: Positions = field(default_factory=dict)
    after: Positions = field(default_factory=dict)
    until: Positions | None = None
    bytes: int = 1 << 24
    wait: float = 0.0
    allow: Allowance | None = None
    durable: BackupNumber = NO_BACKUP

    required = Claim.required | {"confirmed"}
    optional = Claim.optional | {"after", "until", "bytes", "wait", "allow", "durable"}

    def _fields(self) -> dict[str, Any]:
        fields = super()._fields() | {"confirmed": dict(self.confirmed), "bytes": self.bytes, "wait": self.wait}
        fields["durable"] = list(self.durable)
        if self.after:
            fields["after"] = dict(self.after)
        if self.until is not None:
            fields["until"] = dict(self.until)
        return fields if self.allow is None else fields | {"allow": self.allow.to_json()}

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        wait = fields.get("wait", 0)
        if not (is_number(wait) and wait >= 0):
            raise wrong("wait", "seconds >= 0")
        return cls(
            *cls._claim(fields),
            confirmed=positions(fields["confirmed"], "confirmed"),
            after=positions(fields.get("after", {}), "after"),
            until=positions(fields["until"], "until") if "until" in fields else None,
            bytes=count(fields.get("bytes", 1 << 24), "bytes"),
            wait=float(wait),
            allow=_allow(fields),
            durable=_backup_number(fields),
        )


@dataclass(frozen=True)
class EntryTag(Message):
    """Beside each batch of a DoGet. A ``mark`` has no rows: below ``start`` everything was acknowledged."""

    producer: str
    start: int
    logged: bool
    punctuation: PunctuationMark | None = None
    mark: bool = False

    versioned = False
    limit = TAG_BYTES
    required = frozenset({"producer", "start", "logged"})
    optional = frozenset({"punctuation", "mark"})

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"producer": self.producer, "start": self.start, "logged": self.logged}
        if self.punctuation is not None:
            fields["punctuation"] = self.punctuation.to_json()
        return fields | ({"mark": True} if self.mark else {})

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        return cls(
            text(fields["producer"], "producer"),
            count(fields["start"], "start"),
            flag(fields["logged"], "logged"),
            punctuation_of(fields),
            flag(fields.get("mark", False), "mark"),
        )


@dataclass(frozen=True)
class Attach(Claim):
    """A worker takes a lane over. ``positions``: what its state has, None if it does not know."""

    positions: Positions | None = None
    allow: Allowance | None = None

    optional = Claim.optional | {"positions", "allow"}

    def _fields(self) -> dict[str, Any]:
        positions = None if self.positions is None else dict(self.positions)
        fields = super()._fields() | {"positions": positions}
        return fields if self.allow is None else fields | {"allow": self.allow.to_json()}

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        given = fields.get("positions")
        known = None if given is None else positions(given, "positions")
        return cls(*cls._claim(fields), positions=known, allow=_allow(fields))


@dataclass(frozen=True)
class Attached(Message):
    """The answer to `Attach`: what the receiver knows to be confirmed on the lane, and the newest backup of its worker
    that was durable when it confirmed.
    """

    positions: Positions
    durable: BackupNumber = NO_BACKUP

    versioned = False
    limit = ANY_LENGTH
    required = frozenset({"positions"})
    optional = frozenset({"durable"})

    def _fields(self) -> dict[str, Any]:
        return {"positions": dict(self.positions), "durable": list(self.durable)}

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        return cls(positions(fields["positions"], "positions"), _backup_number(fields))


@dataclass(frozen=True)
class StopLogging(Claim):
    """What is below ``positions`` becomes final now: it needs no backup any more."""

    positions: Positions = field(default_factory=dict)

    required = Claim.required | {"positions"}

    def _fields(self) -> dict[str, Any]:
        return super()._fields() | {"positions": dict(self.positions)}

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        return cls(*cls._claim(fields), positions=positions(fields["positions"], "positions"))


@dataclass(frozen=True)
class Confirm(StopLogging):
    """What is below ``positions`` is final and may be forgotten; ``durable`` is the worker's newest durable backup."""

    durable: BackupNumber = NO_BACKUP

    optional = Claim.optional | {"durable"}

    def _fields(self) -> dict[str, Any]:
        return super()._fields() | {"durable": list(self.durable)}

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        found = positions(fields["positions"], "positions")
        return cls(*cls._claim(fields), positions=found, durable=_backup_number(fields))


@dataclass(frozen=True)
class Confirmed(Message):
    """The answer to `Confirm`: which positions need not be kept, and how many sessions of each start are listed.

    See `afspark.push.receiver.session_listing`.
    """

    over: tuple[str, ...] = ()
    listed: Positions = field(default_factory=dict)

    versioned = False
    limit = ANY_LENGTH
    required = frozenset({"over", "listed"})

    def _fields(self) -> dict[str, Any]:
        return {"over": list(self.over), "listed": dict(self.listed)}

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        over = fields["over"]
        if not isinstance(over, list):
            raise wrong("over", "a list of sessions")
        return cls(tuple(text(name, "over") for name in over), positions(fields["listed"], "listed"))


@dataclass(frozen=True)
class LoggingStopped(Message):
    """The answer to `StopLogging`: whether any of these entries is in the item log."""

    logged: bool

    versioned = False
    required = frozenset({"logged"})

    def _fields(self) -> dict[str, Any]:
        return {"logged": self.logged}

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        return cls(flag(fields["logged"], "logged"))


@dataclass(frozen=True)
class Waiting(Message):
    """The answer to the action of that name: whether the receiver has anything for its workers."""

    waiting: bool

    versioned = False
    required = frozenset({"waiting"})

    def _fields(self) -> dict[str, Any]:
        return {"waiting": self.waiting}

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        return cls(flag(fields["waiting"], "waiting"))


@dataclass(frozen=True)
class Stats(Message):
    """The receiver's counters, as they are: readers pick what they know."""

    counters: Mapping[str, Any]

    versioned = False
    limit = ANY_LENGTH

    def _fields(self) -> dict[str, Any]:
        return dict(self.counters)

    @classmethod
    def from_bytes(cls, data: Any) -> Self:
        return cls(parse(data, cls.limit))


def _backup_number(fields: dict[str, Any]) -> BackupNumber:
    given = fields.get("durable", list(NO_BACKUP))
    if not (isinstance(given, list) and len(given) == 3 and all(type(part) is int for part in given)):
        raise wrong("durable", "three whole numbers")
    batch, incarnation, number = given
    return BackupNumber(Batch(batch), Incarnation(incarnation), number)


def _allow(fields: dict[str, Any]) -> Allowance | None:
    return Allowance.from_json(fields["allow"]) if fields.get("allow") is not None else None
