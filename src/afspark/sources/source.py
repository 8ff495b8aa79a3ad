"""What every source is: a frozen, serialisable description that can plan chunks and read one chunk.

A source is described once by the user, travels as JSON in the pipeline's fingerprint and pickled to workers,
and is replayable: a chunk read twice gives the same items. Offsets are ``{"chunks": k}``: the first k chunks
of an append-only list that the planner keeps durable.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from afspark.errors import UsageError
from afspark.sources.chunks import Chunk, NumberedChunk
from afspark.sources.share import share

__all__ = ["Chunk", "EvenPlanner", "LogStore", "Offset", "Planner", "Source", "require_columns", "source_from_json"]
Offset = dict[str, int]


# Inside a class with a method ``list`` the word no longer means the built-in type.
_Names = list[str]


class LogStore(Protocol):
    """The part of a backup store that a planner's durable log needs."""

    def put(self, name: str, data: bytes) -> None: ...
    def get(self, name: str) -> bytes: ...
    def list(self, prefix: str) -> _Names: ...
    def delete(self, names: Iterable[str]) -> None: ...


class Planner(ABC):
    """Knows which chunks exist, in an order that never changes."""

    def initial(self) -> Offset:
        """Offset before the first chunk."""
        return {"chunks": 0}

    @abstractmethod
    def discover(self) -> Offset:
        """Newest end offset. Whatever it covers is durable in the log when this returns."""

    @abstractmethod
    def limit(self, start: Offset, end: Offset, max_bytes: int) -> Offset:
        """Largest offset <= ``end`` such that the chunks from ``start`` weigh at most ``max_bytes``.

        At least one chunk is taken if there is one, however heavy, so that a stream always advances.
        """

    def latest(self, start: Offset, end: Offset | None, max_bytes: int) -> Offset:
        """Where the next batch ends; ``end`` limits it, None: whatever there is now."""
        return self.limit(start, self.discover() if end is None else end, max_bytes)

    @abstractmethod
    def chunks(self, start: Offset, end: Offset) -> Sequence[Chunk]:
        """The chunks in [start, end)."""

    def shares(self, chunks: Sequence[Chunk], workers: int) -> list[list[Chunk]]:
        """Which worker reads which chunks, the same in every process."""
        return share(chunks, workers)

    def missing(self, chunks: Iterable[Chunk]) -> list[Chunk]:
        """Those of ``chunks`` whose input no longer exists. Generated input always exists."""
        return []


_KINDS: dict[str, type[Source]] = {}

_TYPE_CHECKS: dict[str, Callable[[pa.DataType], bool]] = {
    "any": lambda t: True,
    "integer": pa.types.is_integer,
    "number": lambda t: pa.types.is_integer(t) or pa.types.is_floating(t),
    "text": lambda t: (
        pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_binary(t) or pa.types.is_large_binary(t)
    ),
}


class Source(ABC):
    """Base of sources. Subclasses are frozen dataclasses declared with ``kind="name"``.

    The fields of a subclass must be JSON values or tuples of them.
    """

    kind: ClassVar[str]
    #: whether chunks can be read again; else items come off lanes, and a batch of them cannot be applied anew
    replayable: ClassVar[bool] = True
    #: fields that may change from one start of a query to the next; chunks found so far keep the size they had
    changeable: ClassVar[frozenset[str]] = frozenset({"chunk_bytes"})

    def __init_subclass__(cls, *, kind: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if kind:
            if _KINDS.setdefault(kind, cls).__qualname__ != cls.__qualname__:
                raise TypeError(f"source kind {kind!r} is taken by {_KINDS[kind].__qualname__}")
            _KINDS[kind] = cls
            cls.kind = kind

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Schema of every batch that ``read`` yields."""

    @abstractmethod
    def planner(self, log: LogStore) -> Planner:
        """A planner whose durable log lives in ``log``."""

    @abstractmethod
    def read(self, chunk: Any) -> Iterator[pa.RecordBatch]:
        """The items of one chunk of its planner, in order. InputError with ``path`` if the input is unreadable."""

    def validate(self, needs: Mapping[str, str] | None = None) -> None:
        """Raise UsageError, before anything starts, if there is no input or it lacks what is needed.

        ``needs`` maps column names to "any", "integer", "number" or "text".
        """
        require_columns(self.schema(), needs or {})

    def sized_for(self, share_bytes: int) -> Source:
        """The same source with chunks small enough that shares of ``share_bytes`` can be made of them."""
        return self

    def divided(self, batch_bytes: int, workers: int) -> Source:
        """The same source, such that so many workers can share batches of ``batch_bytes``."""
        return self.sized_for(batch_bytes // (2 * workers))

    def settings(self) -> dict[str, Any]:
        """What a checkpoint is bound to: other values need another checkpoint."""
        settings = {name: value for name, value in self.to_json().items() if name not in self.changeable}
        # It may change as well; the word is the one that checkpoints have had here from the beginning.
        return settings | ({"on_bad": "keep"} if "on_bad" in settings else {})

    def to_json(self) -> dict[str, Any]:
        """Plain values from which ``source_from_json`` rebuilds an equal source."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        values = {f.name: getattr(self, f.name) for f in fields}
        return {"kind": self.kind} | {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def source_from_json(data: Mapping[str, Any]) -> Source:
    """Inverse of ``Source.to_json`` for every kind whose module has been imported."""
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k != "kind"}
    kind = data.get("kind")
    found = _KINDS.get(str(kind))
    if found is None:
        raise UsageError(
            f"There is no source of kind {kind!r}.",
            remedy=f"Known kinds: {', '.join(sorted(_KINDS))}; import the module that defines yours.",
            kind=kind,
        )
    return found(**values)


def require_columns(schema: pa.Schema, needs: Mapping[str, str]) -> None:
    """Raise UsageError unless every needed column exists once and has a type of the wanted sort."""
    for name, wanted in needs.items():
        at = schema.get_all_field_indices(name)
        if len(at) != 1:
            raise UsageError(
                f"The input has {len(at) or 'no'} column{'s' if len(at) > 1 else ''} named {name!r}.",
                remedy=f"It has: {', '.join(schema.names)}.",
                column=name,
            )
        found = schema.field(at[0]).type
        if not _TYPE_CHECKS[wanted](found):
            raise UsageError(
                f"Column {name!r} has type {found}, but a column of kind {wanted} is needed.",
                remedy="Choose another column or convert it first.",
                column=name,
                found=str(found),
                wanted=wanted,
            )


class EvenPlanner(Planner):
    """Plans input that is numbered rather than stored: ``total`` units, ``unit`` to a chunk.

    No log is needed, because the number of a chunk says everything.
    """

    def __init__(self, total: int, unit: int, weight: int) -> None:
        self._total, self._unit, self._weight = total, unit, weight

    def discover(self) -> Offset:
        return {"chunks": -(-self._total // self._unit)}

    def limit(self, start: Offset, end: Offset, max_bytes: int) -> Offset:
        fitting = max(1, max_bytes // (self._unit * self._weight))
        return {"chunks": min(end["chunks"], start["chunks"] + fitting)}

    def chunks(self, start: Offset, end: Offset) -> list[NumberedChunk]:
        return [self._chunk(index) for index in range(start["chunks"], end["chunks"])]

    def _chunk(self, index: int) -> NumberedChunk:
        units = min(self._unit, self._total - index * self._unit)
        return NumberedChunk(index=index, units=units, bytes=units * self._weight)
