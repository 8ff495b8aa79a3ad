"""What sources of files have in common: a path, and chunks of about a given size."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, ClassVar, Self

from afspark.errors import UsageError
from afspark.sources.chunks import ByteRange, FileChunk
from afspark.sources.file_log import FilePlanner
from afspark.sources.file_source import FoundFile, absolute, byte_ranges, find_files
from afspark.sources.source import LogStore, Planner, Source


class ChunkedFiles(Source):
    """Base of sources that read files. Subclasses are frozen dataclasses with these fields."""

    chunk_type: ClassVar[type[FileChunk]] = ByteRange

    path: str
    chunk_bytes: int

    def __post_init__(self) -> None:
        given: Any = self.path
        if not isinstance(given, str | os.PathLike) or not os.fspath(given):
            raise UsageError(
                f"The path of input is a text, not {given!r}.", remedy="Name a file, a folder or a glob.", path=given
            )
        object.__setattr__(self, "path", absolute(self.path))
        if self.chunk_bytes < 1:
            raise UsageError(f"chunk_bytes must be positive, not {self.chunk_bytes}.", chunk_bytes=self.chunk_bytes)

    def sized_for(self, share_bytes: int) -> Self:
        return replace(self, chunk_bytes=max(1, min(self.chunk_bytes, share_bytes)))  # type: ignore[type-var]

    def planner(self, log: LogStore) -> Planner:
        return FilePlanner(log, lambda: find_files(self.path), self._split, self.chunk_type)

    def _split(self, file: FoundFile) -> list[dict[str, Any]]:
        """The chunks of a file, without its name; here for files that are read by lines."""
        return byte_ranges(file, self.chunk_bytes)
