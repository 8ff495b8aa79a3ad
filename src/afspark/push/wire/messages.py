"""The messages between producers, receivers and workers: JSON of one version, checked field by field.

Every message is a frozen dataclass with ``to_bytes`` and ``from_bytes``; bytes that are anything but such a
message raise `WireError`. Infinite allowances are ``null`` in JSON. Nothing is ever unpickled.

>>> BatchTag.from_bytes(BatchTag(lane=2, start=40).to_bytes())
BatchTag(lane=2, start=40, punctuation=None)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from afspark.push.wire.field_checks import (
    by_lane,
    count,
    from_lanes,
    is_number,
    json_object,
    limit_or_inf,
    null_for_inf,
    parse,
    producer_name,
    receipt,
    sequence_number,
    session_name,
    wrong,
)
from afspark.push.wire.push_errors import WireError

VERSION = 2

#: names of the actions, as they are on the wire
HELLO, BYE, WAITING = "hello", "bye", "waiting"
ATTACH, STOP_LOGGING, CONFIRM, STATS = "attach", "settle", "confirm", "stats"

#: the header that carries a token, as in ``authorization: Bearer <token>``
AUTHORIZATION, BEARER = b"authorization", b"Bearer "

#: most bytes of a tag beside a batch, and of a message of its own
TAG_BYTES, MESSAGE_BYTES = 4096, 1 << 22


Positions = Mapping[str, int]
Ends = Mapping[int, int]
Receipts = Mapping[int, str]


def producer_id(name: str, session: str) -> str:
    """How a producer's session is called in positions: ``name/session``."""
    return f"{name}/{session}"


@dataclass(frozen=True)
class PunctuationMark:
    """The end of a window (``time``) or of the stream (``end``); takes one sequence number."""

    time: float | None = None
    end: bool = False

    def to_json(self) -> dict[str, Any]:
        return {"end": True} if self.end else {"time": self.time}

    @classmethod
    def from_json(cls, value: Any) -> PunctuationMark:
        fields = json_object(value, "punctuation")
        if fields == {"end": True}:
            return cls(end=True)
        if set(fields) == {"time"} and is_number(fields["time"]):
            return cls(time=fields["time"])
        raise wrong("punctuation", '{"time": number} or {"end": true}')


@dataclass(frozen=True)
class Allowance:
    """How much may be pending without backup: ``items``, and none older than ``seconds`` (None: any age)."""

    items: float = math.inf
    seconds: float | None = None

    def to_json(self) -> list[float | None]:
        return [null_for_inf(self.items), self.seconds]

    @classmethod
    def from_json(cls, value: Any) -> Allowance:
        if not (isinstance(value, list) and len(value) == 2):
            raise wrong("allow", "[items, seconds]")
        items, seconds = value
        for part in (items, seconds):
            if part is not None and not (is_number(part) and part >= 0):
                raise wrong("allow", "[items, seconds], each null or a number >= 0")
        return cls(math.inf if items is None else items, seconds)


class Message:
    """Base: bytes to fields and back. ``versioned`` messages name the version of the protocol."""

    versioned: ClassVar[bool] = True
    limit: ClassVar[int] = MESSAGE_BYTES
    required: ClassVar[frozenset[str]] = frozenset()
    optional: ClassVar[frozenset[str]] = frozenset()

    def to_bytes(self) -> bytes:
        fields = ({"version": VERSION} if self.versioned else {}) | self._fields()
        return json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview | Any) -> Self:
        fields = parse(data, cls.limit)
        if cls.versioned and (version := fields.pop("version", None)) != VERSION:
            raise WireError(
                f"Protocol version {version!r} came, {VERSION} is spoken here.",
                remedy="Use the same release on both sides.",
                what="version",
            )
        if missing := cls.required - set(fields):
            raise WireError(f"The {cls.__name__} message lacks {sorted(missing)}.", what=min(missing))
        if unknown := set(fields) - cls.required - cls.optional:
            raise WireError(f"The {cls.__name__} message has unknown fields {sorted(unknown)[:5]}.", what="fields")
        return cls._read(fields)

    def _fields(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        raise NotImplementedError


@dataclass(frozen=True)
class Hello(Message):
    """A producer introduces itself, for a new session or with the one it has.

    ``acked``: per lane the end of what was acknowledged to the session, with the receipt that proves it.
    """

    producer: str
    session: str = ""
    acked: Ends = field(default_factory=dict)
    receipts: Receipts = field(default_factory=dict)

    required = frozenset({"producer"})
    optional = frozenset({"session", "acked", "receipts"})

    @property
    def id(self) -> str:
        return producer_id(self.producer, self.session)

    def _fields(self) -> dict[str, Any]:
        return {
            "producer": self.producer,
            "session": self.session,
            "acked": from_lanes(self.acked),
            "receipts": from_lanes(self.receipts),
        }

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        return cls(
            producer_name(fields["producer"]),
            session_name(fields.get("session", "")),
            by_lane(fields.get("acked", {}), "acked", sequence_number),
            by_lane(fields.get("receipts", {}), "receipts", receipt),
        )


@dataclass(frozen=True)
class PutHeader(Hello):
    """The command of a DoPut: who sends, said again because another receiver may have taken the hello.

    Without a session, batches have no numbers.
    """


@dataclass(frozen=True)
class Bye(Hello):
    """A session is over, and ``acked`` is all that it sent. Answered when that is durable."""


@dataclass(frozen=True)
class Done(Message):
    """The answer to `Bye`: what was asked for is done."""

    versioned = False

    def _fields(self) -> dict[str, Any]:
        return {}

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        return cls()


@dataclass(frozen=True)
class Welcome(Message):
    """The answer to `Hello`. ``session``: how the session is called from now on. ``unacked`` is γ; ``received``: per
    lane the end of what came from that session.
    """

    session: str
    lanes: tuple[int, ...]
    unacked: float = math.inf
    max_bytes: int = 1 << 26
    received: Ends = field(default_factory=dict)

    versioned = False
    required = frozenset({"session", "lanes", "unacked", "max_bytes", "received"})

    def _fields(self) -> dict[str, Any]:
        return {
            "session": self.session,
            "lanes": list(self.lanes),
            "unacked": null_for_inf(self.unacked),
            "max_bytes": self.max_bytes,
            "received": from_lanes(self.received),
        }

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        lanes = fields["lanes"]
        if not isinstance(lanes, list):
            raise wrong("lanes", "a list of numbers")
        return cls(
            session_name(fields["session"]),
            tuple(count(lane, "lanes") for lane in lanes),
            limit_or_inf(fields["unacked"], "unacked"),
            count(fields["max_bytes"], "max_bytes"),
            by_lane(fields["received"], "received", sequence_number),
        )


@dataclass(frozen=True)
class BatchTag(Message):
    """Beside each batch of a DoPut. A batch with a punctuation has no rows and takes one number."""

    lane: int
    start: int
    punctuation: PunctuationMark | None = None

    versioned = False
    limit = TAG_BYTES
    required = frozenset({"lane", "start"})
    optional = frozenset({"punctuation"})

    def _fields(self) -> dict[str, Any]:
        punctuation = {} if self.punctuation is None else {"punctuation": self.punctuation.to_json()}
        return {"lane": self.lane, "start": self.start} | punctuation

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        return cls(count(fields["lane"], "lane"), count(fields["start"], "start"), punctuation_of(fields))


@dataclass(frozen=True)
class Ack(Message):
    """All of the session below ``end`` is acknowledged on that lane; ``receipt`` proves it to a later receiver.

    ``unacked``: γ from now on, if it changed.
    """

    lane: int
    end: int
    unacked: float | None = None
    receipt: str = ""

    versioned = False
    limit = TAG_BYTES
    required = frozenset({"lane", "end"})
    optional = frozenset({"unacked", "receipt"})

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"lane": self.lane, "end": self.end, "receipt": self.receipt}
        return fields if self.unacked is None else fields | {"unacked": null_for_inf(self.unacked)}

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        unacked = limit_or_inf(fields["unacked"], "unacked") if "unacked" in fields else None
        proof = receipt(fields.get("receipt", ""), "receipt")
        return cls(count(fields["lane"], "lane"), count(fields["end"], "end"), unacked, proof)


def punctuation_of(fields: dict[str, Any]) -> PunctuationMark | None:
    return PunctuationMark.from_json(fields["punctuation"]) if "punctuation" in fields else None
