"""Plain text files, read by byte ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from afspark.errors import InputError
from afspark.model.kernels.plain_arrays import Array
from afspark.model.onbad import SKIP, STOP, check_on_bad
from afspark.sources.chunked_files import ChunkedFiles
from afspark.sources.chunks import ByteRange
from afspark.sources.file_source import changed, open_file, require_files
from afspark.sources.source import require_columns
from afspark.store.address_schemes import redact

BLOCK_BYTES = 1 << 20
BLOCKS = pa.schema([pa.field("value", pa.large_binary(), nullable=False)])
LINES = pa.schema([pa.field("value", pa.string(), nullable=False)])

#: Longer lines do not fit into one array.
MOST_LINE_BYTES = 2**31 - 1

_NEWLINE, _RETURN = 10, 13
_OVERHANG = 1 << 16


@dataclass(frozen=True)
class TextFiles(ChunkedFiles, kind="text"):
    """Text files in a folder, a single file, or a glob. Lines end with a newline; the last may lack it.

    ``blocks=True`` gives one ``value: large_binary`` per about 1 MiB of whole lines, for operators that split
    text themselves. ``blocks=False`` gives one ``value: string`` per line, without its end (newline, or
    carriage return and newline); bytes that are not UTF-8 become U+FFFD, or with ``on_bad="stop"`` an InputError that
    names file and line. A line of 2 GiB or more is an InputError that says where it begins.

    A file is read up to the size it had when it was found. A chunk is at most ``chunk_bytes`` of a file and
    owns the lines that start in it, so every line is read exactly once, and a long line whole.
    """

    path: str
    blocks: bool = True
    chunk_bytes: int = 4 << 20
    on_bad: str = SKIP

    changeable: ClassVar[frozenset[str]] = frozenset({"chunk_bytes", "on_bad"})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_on_bad(self.on_bad)

    def schema(self) -> pa.Schema:
        return BLOCKS if self.blocks else LINES

    def validate(self, needs: Mapping[str, str] | None = None) -> None:
        require_files(self.path)
        require_columns(self.schema(), needs or {})

    def read(self, chunk: ByteRange) -> Iterator[pa.RecordBatch]:
        text = lines_of(chunk.path, chunk.start, chunk.stop, chunk.size)
        if text.size == 0:
            return
        ends = block_ends(np.frombuffer(text, np.uint8), BLOCK_BYTES)
        if self.blocks:
            offsets = pa.py_buffer(np.concatenate(([0], ends)).astype(np.int64))
            values = pa.Array.from_buffers(pa.large_binary(), len(ends), [None, offsets, text])
            yield pa.record_batch([values], schema=BLOCKS)
            return
        start = 0
        for end in ends:
            block = text.slice(start, end - start)
            if self.on_bad == STOP:
                refuse_other_encodings(block, chunk, rows=_lines_before(text, start))
            yield pa.record_batch([split_lines(block, chunk.path)], schema=LINES)
            start = end


def refuse_other_encodings(text: pa.Buffer, chunk: ByteRange, *, rows: int = 0) -> None:
    """InputError for the first line that is not UTF-8; ``rows``: lines of the chunk before this text."""
    data = text.to_pybytes()
    try:
        data.decode()
    except UnicodeDecodeError as error:
        row = rows + data.count(b"\n", 0, error.start)
        raise InputError(
            f"Input file {redact(chunk.path)!r} is not UTF-8 in {line_at(chunk, row)}: byte 0x{data[error.start]:02x}.",
            remedy="Convert it into a new file (iconv -t UTF-8), or read on with on_bad='skip'.",
            path=chunk.path,
            missing=False,
            row=row,
        ) from None


def line_at(chunk: ByteRange, row: int) -> str:
    """A line of a chunk, numbered from 1; only in the first chunk of a file are these the file's own numbers."""
    return f"line {row + 1}" + (f" of those from byte {chunk.start} on" if chunk.start else "")


def _lines_before(text: pa.Buffer, stop: int) -> int:
    return int(np.count_nonzero(np.frombuffer(text.slice(0, stop), np.uint8) == _NEWLINE)) if stop else 0


def lines_of(path: str, start: int, stop: int, size: int) -> pa.Buffer:
    """What `read_lines` gives of the file at ``path``."""
    with open_file(path) as file:
        return read_lines(file, path, start, stop, size)


def read_lines(file: pa.NativeFile, path: str, start: int, stop: int, size: int) -> pa.Buffer:
    """The whole lines of the first ``size`` bytes of ``file`` that start in [start, stop).

    A line starts at 0 and after every newline. InputError with ``changed=True`` if the file became shorter.
    """
    # The byte before the range tells whether a line starts right at its beginning.
    base = max(start - 1, 0)
    buffer = _read(file, path, base, min(stop + _OVERHANG, size))
    data = np.frombuffer(buffer, np.uint8)
    first = 0 if start == 0 else find_newline(data, 0, stop - 1 - base) + 1
    if start > 0 and first == 0:
        return buffer.slice(0, 0)
    searched, end = stop - 1 - base, 0
    while stop < size:
        end = find_newline(data, searched, len(data)) + 1
        if end > 0 or base + len(data) == size:
            break
        searched = len(data)
        if len(data) - first > MOST_LINE_BYTES:
            raise InputError(
                f"Input file {redact(path)!r} has a line of over {MOST_LINE_BYTES:,} bytes that begins before byte"
                f" {stop}.",
                remedy="Break it into lines, or take the file away: is it a text at all?",
                path=path,
                missing=False,
            )
        more = _read(file, path, base + len(data), min(base + 2 * len(data), size))
        data = np.concatenate((data, np.frombuffer(more, np.uint8)))
        buffer = pa.py_buffer(data)
    return buffer.slice(first, (end or len(data)) - first)


def find_newline(data: Array, start: int, stop: int) -> int:
    """Position of the first newline in ``data[start:stop]``, -1 if there is none."""
    width = 1 << 12
    while start < stop:
        hits = data[start : min(start + width, stop)] == _NEWLINE
        at = int(hits.argmax())
        if hits[at]:
            return start + at
        start += len(hits)
        width = min(4 * width, 1 << 20)
    return -1


def block_ends(data: Array, block_bytes: int) -> list[int]:
    """Ends of blocks of whole lines, each of at least ``block_bytes`` except the last."""
    ends: list[int] = []
    start = 0
    while start < len(data):
        end = find_newline(data, start + block_bytes - 1, len(data)) + 1 or len(data)
        ends.append(end)
        start = end
    return ends


def split_lines(text: pa.Buffer, path: str) -> pa.Array:
    """The lines of a buffer of whole lines as a string array without line ends."""
    if text.size > 2**31 - 1:
        raise InputError(
            f"Input file {redact(path)!r} has a line of 2 GiB or more.",
            remedy="Read it with blocks=True or break the line.",
            path=path,
        )
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    # A carriage return right before the newline belongs to the line end, unless that line is a bare newline.
    returns = ends[data[ends - 1] == _RETURN] - 1 if len(ends) else ends
    returns = returns[returns >= 0]
    keep = np.ones(len(data), bool)
    keep[ends] = False
    keep[returns] = False
    if len(data) and data[-1] != _NEWLINE:
        ends = np.append(ends, len(data))
    dropped = np.arange(len(ends)) + np.searchsorted(returns, ends)
    offsets = np.concatenate(([0], ends - dropped)).astype(np.int32)
    lines = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data[keep])])
    try:
        return lines.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([line.decode("utf-8", "replace") for line in lines.to_pylist()], pa.string())


def _read(file: pa.NativeFile, path: str, start: int, stop: int) -> pa.Buffer:
    file.seek(start)
    # The C library keeps the memory of the last buffer for the next one. Arrow's own pool gives it back to the
    # system each time, and getting it again, page by page, takes longer than reading.
    buffer = pa.allocate_buffer(stop - start, memory_pool=pa.system_memory_pool())
    size = file.readinto(buffer)
    if size < stop - start:
        raise changed(path, f"it ends at byte {start + size}, before byte {stop}")
    return buffer
