"""Finding and opening input files: local paths and every URI that pyarrow.fs understands.

Files are expected to appear complete (written under a hidden name or elsewhere, then renamed) and to stay as
they are. Names that start with "." or "_" are ignored, folders included; so are empty files until filled.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from afspark.errors import InputError, UsageError, first_line
from afspark.store.address_schemes import for_arrow, redact

_WILDCARDS = "*?["


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One input file. ``path`` can be opened by ``open_file`` in any process; ``mtime`` in ns."""

    path: str
    size: int
    mtime: int


@dataclass(frozen=True, slots=True)
class _Place:
    """A path taken apart: how the file system names it, and how to write such a name as a path again: between what
    stands ``before`` and ``after`` it, without the ``bucket`` that is named by what stands before.
    """

    system: fs.FileSystem
    name: str
    before: str
    after: str
    bucket: str = ""

    @staticmethod
    def of(path: str) -> _Place:
        if "://" not in path:
            return _Place(fs.LocalFileSystem(), path, "", "")
        address, mark, options = path.partition("?")
        system, name = fs.FileSystem.from_uri(for_arrow(path))
        before, bucket = _around(address.rstrip("/") if not name.endswith("/") else address, name)
        return _Place(system, name, before, mark + options, bucket)

    def path(self, name: str) -> str:
        return f"{self.before}{name.removeprefix(self.bucket)}{self.after}"

    def parts(self, path: str) -> list[str]:
        """The parts of the name that was written as ``path``."""
        written = path[len(self.before) : len(path) - len(self.after)]
        return f"{self.bucket}{written}".split("/")


def _around(address: str, name: str) -> tuple[str, str]:
    """What stands before a file system's ``name`` in an address, and which bucket of the name is named there.

    >>> _around("s3://bucket/in", "bucket/in")
    ('s3://', '')
    >>> _around("abfss://box@account.dfs.core.windows.net/in", "box/in")
    ('abfss://box@account.dfs.core.windows.net/', 'box/')
    """
    if address.endswith(name):
        return address[: len(address) - len(name)], ""
    bucket, slash, below = name.partition("/")
    if slash and address.endswith(f"/{below}"):
        return address[: len(address) - len(below)], f"{bucket}/"
    raise UsageError(
        f"Input path {redact(address)!r} cannot be taken apart.",
        remedy="Name a folder below the bucket, without escapes.",
        path=address,
    )


def absolute(path: str | os.PathLike[str]) -> str:
    """The same place for every process: local paths made absolute, other addresses unchanged.

    `UsageError` for an address of a kind that nobody can read, such as ``dbfs:/x``.
    """
    text = os.fspath(path)
    if not os.path.exists(text):
        for_arrow(text)
    if text.startswith("file:"):
        # Both file:/x and file:///x are in use.
        text = "/" + unquote(text.removeprefix("file:")).lstrip("/")
    if "://" in text:
        return text
    return os.path.abspath(os.path.expanduser(text))


def find_files(path: str) -> list[FoundFile]:
    """Non-empty files at ``path`` (file, folder with its subfolders, or glob), oldest first, then by name."""
    if not _is_glob(path):
        return _sorted(_walk(path))
    if "://" not in path and os.path.exists(path):
        return _sorted(_walk(path))
    return _sorted(_match(path))


def byte_ranges(file: FoundFile, chunk_bytes: int) -> list[dict[str, Any]]:
    """Chunk pieces of a file that is read by lines: alike in size, so that shares of workers can be, too."""
    count = -(-file.size // chunk_bytes)
    cuts = [file.size * number // count for number in range(count + 1)]
    return [{"start": start, "stop": stop, "bytes": stop - start} for start, stop in pairwise(cuts)]


class InputAwaited(UsageError):
    """The place of the input is there, and holds no file yet: a stream that has not begun. Fields: ``path``."""


def require_files(path: str) -> list[FoundFile]:
    """Like ``find_files``, but no file is a UsageError with ``path`` that says what to do about it.

    `InputAwaited` if files may yet come: the folder is there, for a glob the one above it.
    """
    try:
        found = find_files(path)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UsageError(
            f"Input {redact(path)!r} cannot be listed: {first_line(error).replace(path, redact(path))}.",
            remedy="Check the path, the permissions and the file system's address.",
            path=path,
        ) from error
    if not found:
        wild = _is_glob(path)
        why = "matches no file with data" if wild else "holds no file with data" if exists(path) else "does not exist"
        kind = InputAwaited if exists(_fixed(path) if wild else path) else UsageError
        raise kind(
            f"Input {redact(path)!r} {why}.",
            remedy="Name a file, a folder with files or a glob (names starting with '.' or '_' are ignored).",
            path=path,
        )
    return found


def _is_glob(path: str) -> bool:
    """Whether it has wildcards; the parameters of an address have none."""
    place = path.partition("?")[0] if "://" in path else path
    return any(mark in place for mark in _WILDCARDS)


def _fixed(pattern: str) -> str:
    """The folder that a glob looks into."""
    place = _Place.of(pattern)
    parts = place.name.split("/")
    fixed = next(i for i, part in enumerate(parts) if any(mark in part for mark in _WILDCARDS))
    return place.path("/".join(parts[:fixed]) or "/")


def exists(path: str) -> bool:
    """Whether a file or folder of that name is there now."""
    place = _Place.of(path)
    return bool(place.system.get_file_info(place.name).type != fs.FileType.NotFound)


@contextmanager
def open_file(path: str) -> Iterator[pa.NativeFile]:
    """Open an input file for random reads.

    Whatever the file system raises while the block runs becomes an InputError with ``path``, and
    ``missing=True`` if the file is gone.
    """
    try:
        place = _Place.of(path)
        with place.system.open_input_file(place.name) as file:
            yield file
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(
            f"Input file {redact(path)!r} no longer exists.",
            remedy="Put it back; a restarted query skips files that were removed.",
            path=path,
            missing=True,
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"Input file {redact(path)!r} cannot be read: {first_line(error)}.",
            remedy="Repair or remove it.",
            path=path,
            missing=False,
        ) from error


def changed(path: str, why: str) -> InputError:
    """The error for a file that is not what was logged when it was found."""
    return InputError(
        f"Input file {redact(path)!r} changed after it was found: {why}.",
        remedy="Restore it or remove it; new data belongs into a new file.",
        path=path,
        missing=False,
        changed=True,
    )


def _walk(path: str) -> Iterator[FoundFile]:
    place = _Place.of(path)
    info = place.system.get_file_info(place.name)
    if info.type == fs.FileType.File:
        if info.size:
            yield FoundFile(place.path(info.path), info.size, info.mtime_ns or 0)
        return
    yield from _below(place, place.name)


def _match(pattern: str) -> Iterator[FoundFile]:
    """Files whose name, or the name of a folder above, matches a glob ("**" spans folders)."""
    place = _Place.of(pattern)
    parts = place.name.split("/")
    fixed = next(i for i, part in enumerate(parts) if any(mark in part for mark in _WILDCARDS))
    wanted = parts[fixed:]
    root = "/".join(parts[:fixed]) or "/"
    for file in _below(place, root):
        if _matches(place.parts(file.path)[fixed:], wanted):
            yield file


def _matches(names: list[str], wanted: list[str]) -> bool:
    if not wanted:
        return True
    if wanted[0] == "**":
        return any(_matches(names[i:], wanted[1:]) for i in range(len(names)))
    return bool(names) and fnmatch.fnmatchcase(names[0], wanted[0]) and _matches(names[1:], wanted[1:])


def _below(place: _Place, root: str) -> Iterator[FoundFile]:
    cut = len(root.rstrip("/")) + 1
    for info in place.system.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True)):
        if info.type == fs.FileType.File and info.size and not _hidden(info.path[cut:]):
            yield FoundFile(place.path(info.path), info.size, info.mtime_ns or 0)


def _hidden(name: str) -> bool:
    return any(part[:1] in ("_", ".") for part in name.split("/"))


def _sorted(found: Iterator[FoundFile]) -> list[FoundFile]:
    return sorted(found, key=lambda file: (file.mtime, file.path))
