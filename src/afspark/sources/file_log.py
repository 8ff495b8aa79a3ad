"""The durable list of input files and their chunks, and the planner that stands on it.

An index into a folder's listing shifts when a file is removed, so files are written into a log before any
offset covers them. The log is a row of immutable segments ``files/<number>``; a segment is one line of JSON
with the format version, the index of its first chunk, and length and checksum of what follows: one line with
the files.

A process killed while it wrote leaves a segment shorter than it says. No offset covers it: it is passed over.
"""

from __future__ import annotations

import hashlib
import json
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from afspark.errors import CheckpointError, CorruptObject, ForeignObject
from afspark.sources.chunks import Chunk, FileChunk
from afspark.sources.file_source import FoundFile, exists
from afspark.sources.source import LogStore, Offset, Planner

logger = logging.getLogger(__name__)

FORMAT = 1
_FOLDER = "files"
_FILES_PER_SEGMENT = 10_000


class FileLog:
    """Every file ever taken into the stream, in order. Reopened in another process it holds the same.

    One process appends at a time; others may read.
    """

    def __init__(self, store: LogStore, chunk: type[FileChunk] = FileChunk) -> None:
        self._store, self._chunk = store, chunk
        self._segments = 0
        self._sizes: dict[str, int] = {}
        self._chunks: list[FileChunk] = []
        self._ends: list[int] = [0]
        self.refresh()

    def __len__(self) -> int:
        """Number of chunks."""
        return len(self._chunks)

    def __contains__(self, path: str) -> bool:
        return path in self._sizes

    def size_of(self, path: str) -> int:
        """The file's size in bytes when it was logged."""
        return self._sizes[path]

    def refresh(self) -> int:
        """Take in segments written since (by this or another process); returns the number of the next one."""
        present = len(self._store.list(_FOLDER))
        for number in range(self._segments, present):
            data = self._store.get(_name(number))
            if not _is_torn(data):
                self._take(_name(number), data)
            elif number + 1 == present:
                # It may still be in the writing: look again next time.
                break
            self._segments = number + 1
        return present

    def append(self, files: Sequence[tuple[FoundFile, list[dict[str, Any]]]]) -> None:
        """Log files with their chunks; durable when this returns. Files already logged are left out."""
        number = self.refresh()
        fresh = [(file, pieces) for file, pieces in files if file.path not in self._sizes and pieces]
        for place, at in enumerate(range(0, len(fresh), _FILES_PER_SEGMENT), start=number):
            entries = [
                {"path": file.path, "size": file.size, "mtime": file.mtime, "chunks": pieces}
                for file, pieces in fresh[at : at + _FILES_PER_SEGMENT]
            ]
            data = _seal(len(self._chunks), entries)
            self._store.put(_name(place), data)
            self._take(_name(place), data)
            self._segments = place + 1

    def slice(self, start: int, end: int) -> list[FileChunk]:
        self._require(end)
        return self._chunks[start:end]

    def limit(self, start: int, end: int, max_bytes: int) -> int:
        self._require(end)
        reach = bisect_right(self._ends, self._ends[start] + max_bytes, start, end + 1) - 1
        return min(end, max(reach, start + 1))

    def _require(self, end: int) -> None:
        if end > len(self._chunks):
            self.refresh()
        if end > len(self._chunks):
            raise CheckpointError(
                f"The offset covers {end} chunks, but the log of input files knows {len(self._chunks)}.",
                remedy="Restore the checkpoint's source log or start with a new checkpoint.",
                wanted=end,
                known=len(self._chunks),
            )

    def _take(self, name: str, data: bytes) -> None:
        first, entries = _unseal(name, data)
        if first != len(self._chunks):
            raise CorruptObject(
                f"Segment {name!r} of the log of input files does not follow the one before it.",
                remedy="Was the checkpoint used by two queries? Start with a new one.",
                name=name,
            )
        for entry in entries:
            self._sizes[entry["path"]] = entry["size"]
            for piece in entry["chunks"]:
                self._chunks.append(self._chunk(path=entry["path"], size=entry["size"], **piece))
                self._ends.append(self._ends[-1] + int(piece["bytes"]))


class FilePlanner(Planner):
    """Plans over files that keep arriving.

    ``find`` lists what is there now; ``split`` cuts a new file into pieces (the fields of a ``chunk``
    besides those of the file) or returns none, in which case the file is looked at again at the next discovery.
    """

    def __init__(
        self,
        log: LogStore,
        find: Callable[[], list[FoundFile]],
        split: Callable[[FoundFile], list[dict[str, Any]]],
        chunk: type[FileChunk],
    ) -> None:
        self._log = FileLog(log, chunk)
        self._find = find
        self._split = split
        self._warned: set[str] = set()

    def discover(self) -> Offset:
        found = self._find()
        new = [file for file in found if file.path not in self._log]
        self._warn_about_growth(found)
        if new:
            with ThreadPoolExecutor(max_workers=min(8, len(new))) as pool:
                pieces = list(pool.map(self._split, new))
            self._log.append(list(zip(new, pieces, strict=True)))
        return {"chunks": len(self._log)}

    def limit(self, start: Offset, end: Offset, max_bytes: int) -> Offset:
        return {"chunks": self._log.limit(start["chunks"], end["chunks"], max_bytes)}

    def chunks(self, start: Offset, end: Offset) -> list[FileChunk]:
        return self._log.slice(start["chunks"], end["chunks"])

    def missing(self, chunks: Iterable[Any]) -> list[Chunk]:
        chunks = list(chunks)
        gone = {path for path in {chunk.path for chunk in chunks} if not exists(path)}
        return [chunk for chunk in chunks if chunk.path in gone]

    def _warn_about_growth(self, found: Iterable[FoundFile]) -> None:
        for file in found:
            if file.path in self._log and file.size > self._log.size_of(file.path) and file.path not in self._warned:
                self._warned.add(file.path)
                logger.warning("%s grew after it was found; what was appended may not be read", file.path)


def _name(number: int) -> str:
    return f"{_FOLDER}/{number:08d}"


def _seal(first: int, entries: list[dict[str, Any]]) -> bytes:
    body = json.dumps(entries, separators=(",", ":")).encode()
    head = {"format": FORMAT, "first": first, "bytes": len(body), "check": _check(first, body)}
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + body


def _is_torn(data: bytes) -> bool:
    """Whether ``data`` is a mere prefix of a segment."""
    head, newline, body = data.partition(b"\n")
    if not newline:
        return True
    try:
        return len(body) < int(json.loads(head)["bytes"])
    except (ValueError, KeyError, TypeError):
        return False


def _unseal(name: str, data: bytes) -> tuple[int, list[dict[str, Any]]]:
    head_line, _, body = data.partition(b"\n")
    try:
        head = json.loads(head_line)
        found, first, check = head["format"], head["first"], head["check"]
    except (ValueError, KeyError, TypeError):
        raise _corrupt(name) from None
    if found != FORMAT:
        raise ForeignObject(
            f"Segment {name!r} of the log of input files has format {found}, this version reads {FORMAT}.",
            remedy="Use the version that wrote it, or a new checkpoint.",
            name=name,
            found=found,
            expected=FORMAT,
        )
    if check != _check(first, body):
        raise _corrupt(name)
    entries: list[dict[str, Any]] = json.loads(body)
    return first, entries


def _check(first: int, body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16, key=str(first).encode()).hexdigest()


def _corrupt(name: str) -> CorruptObject:
    return CorruptObject(
        f"Segment {name!r} of the log of input files is damaged.",
        remedy="Restore it from a copy, or start with a new checkpoint.",
        name=name,
    )
