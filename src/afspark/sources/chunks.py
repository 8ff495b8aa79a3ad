"""Units of reading: what an offset counts, and what workers share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from afspark.store.address_schemes import redact


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """One unit of reading. ``bytes``: what reading it weighs."""

    bytes: int

    @property
    def place(self) -> str:
        """Where its items are, for somebody who looks for one of them."""
        named = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "bytes"}
        # An address may hold keys.
        told = {name: redact(value) if isinstance(value, str) else value for name, value in named.items()}
        return ", ".join(f"{name} {value}" for name, value in told.items())

    @property
    def part_of(self) -> str:
        """The file that it is a part of, if it is."""
        return ""


@dataclass(frozen=True, kw_only=True)
class FileChunk(Chunk):
    """A part of the file at ``path``, which had ``size`` bytes when it was found."""

    path: str
    size: int

    @property
    def place(self) -> str:
        return self.part_of

    @property
    def part_of(self) -> str:
        return redact(self.path)


@dataclass(frozen=True, kw_only=True)
class ByteRange(FileChunk):
    """The bytes from ``start`` to before ``stop``.

    >>> ByteRange(bytes=4, path="/in/a.csv", size=9, start=5, stop=9).place
    '/in/a.csv from byte 5'
    """

    start: int
    stop: int

    @property
    def place(self) -> str:
        return f"{self.part_of} from byte {self.start}" if self.start else self.part_of


@dataclass(frozen=True, kw_only=True)
class RowGroups(FileChunk):
    """The row groups from the first number to before the second, with so many rows; None: whatever there is.

    >>> RowGroups(bytes=4, path="/in/a.parquet", size=9, groups=(2, 4)).place
    '/in/a.parquet from row group 2'
    """

    groups: Sequence[int] | None
    rows: int | None = None

    @property
    def place(self) -> str:
        return f"{self.part_of} from row group {self.groups[0]}" if self.groups and self.groups[0] else self.part_of


@dataclass(frozen=True, kw_only=True)
class NumberedChunk(Chunk):
    """A part that its number says everything about, of so many ``units``."""

    index: int
    units: int = 0


@dataclass(frozen=True, kw_only=True)
class InputChunk(Chunk):
    """A chunk of one of several sources, with the place of that source among them."""

    input: int
    chunk: Chunk

    @property
    def place(self) -> str:
        return self.chunk.place


@dataclass(frozen=True, kw_only=True)
class LaneTick(Chunk):
    """A lane for the length of a tick."""

    bytes: int = 0
    lane: int
    tick: int
