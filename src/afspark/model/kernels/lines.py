"""Lines in blocks of text: found by a literal, cut out, split. A line ends with a newline, or with the block.

A carriage return right before a newline belongs to the line end. Offsets and data are those of an Arrow array of
blocks (see ``byte_buffers``); a block holds whole lines.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import njit

from afspark.model.kernels.plain_arrays import Array, as_array, byte_buffers

_NEWLINE, _RETURN = np.uint8(10), np.uint8(13)
_STRIDE = 64
_PIECE_BYTES = 1 << 15
# Bytes by how often they stand in ordinary text, most frequent first; what is not listed is rarer.
_FREQUENT = b" etaoinsrhldcumfpgwybvk\n,.0123456789-:/\"'_=ETAOINSRHLDCUMFPGWYBVK"


@njit(cache=True, nogil=True)
def find_bytes(data, start, stop, needle, rare, other):  # type: ignore[no-untyped-def]
    """First position in ``data[start:stop]`` where ``needle`` (not empty) begins, -1 if there is none.

    ``rare`` and ``other`` are positions in the needle, of bytes that occur seldom. Strides in which they never
    stand at their distance are passed over: that test is what the compiler turns into vector instructions.
    """
    size = len(needle)
    last = stop - size
    first, second = needle[rare], needle[other]
    at = start
    while at + _STRIDE - 1 <= last:
        left = data[at + rare : at + rare + _STRIDE]
        right = data[at + other : at + other + _STRIDE]
        hits = np.uint8(0)
        for i in range(_STRIDE):
            hits |= np.uint8(left[i] == first) & np.uint8(right[i] == second)
        if hits:
            for i in range(_STRIDE):
                if left[i] == first and right[i] == second and _same(data, at + i, needle):
                    return at + i
        at += _STRIDE
    while at <= last:
        if _same(data, at, needle):
            return at
        at += 1
    return -1


@njit(cache=True, nogil=True, inline="always")
def _same(data, at, needle):  # type: ignore[no-untyped-def]
    i = 0
    while i < len(needle) and data[at + i] == needle[i]:
        i += 1
    return i == len(needle)


@njit(cache=True, nogil=True)
def mark_matching(offsets, data, needle, rare, other, starts, stops):  # type: ignore[no-untyped-def]
    """Spans of the lines that hold ``needle``; returns their number. No other line is looked at."""
    found = 0
    size = len(needle)
    for block in range(len(offsets) - 1):
        at, end = np.int64(offsets[block]), np.int64(offsets[block + 1])
        while at < end:
            hit = find_bytes(data, at, end, needle, rare, other)
            if hit < 0:
                break
            first = hit
            while first > at and data[first - 1] != _NEWLINE:
                first -= 1
            stop = hit + size
            while stop < end and data[stop] != _NEWLINE:
                stop += 1
            at = stop + 1
            if stop < end and stop > first and data[stop - 1] == _RETURN:
                stop -= 1
            if hit + size <= stop:
                starts[found], stops[found] = first, stop
                found += 1
    return found


@njit(cache=True, nogil=True)
def mark_all(offsets, data, starts, stops):  # type: ignore[no-untyped-def]
    """Spans of all lines; returns their number."""
    found = 0
    for block in range(len(offsets) - 1):
        first, end = np.int64(offsets[block]), np.int64(offsets[block + 1])
        for at in range(first, end):
            if data[at] == _NEWLINE:
                stop = at - 1 if at > first and data[at - 1] == _RETURN else at
                starts[found], stops[found] = first, stop
                found += 1
                first = np.int64(at + 1)
        if first < end:
            starts[found], stops[found] = first, end
            found += 1
    return found


@njit(cache=True, nogil=True)
def mark_rows(offsets, data, needle, rare, other, matches):  # type: ignore[no-untyped-def]
    """``matches[i]`` = whether element i holds ``needle``. One search runs on over all elements."""
    end = np.int64(offsets[len(offsets) - 1])
    at, row = np.int64(offsets[0]), 0
    size = len(needle)
    while True:
        hit = find_bytes(data, at, end, needle, rare, other)
        if hit < 0:
            return
        while offsets[row + 1] <= hit:
            row += 1
        if hit + size <= offsets[row + 1]:
            matches[row] = True
            at = np.int64(offsets[row + 1])
        else:
            # It began in one element and ended in another.
            at = hit + 1


@njit(cache=True, nogil=True)
def cut_out(data, starts, stops, offsets, out):  # type: ignore[no-untyped-def]
    """The spans one behind the other in ``out``, with their offsets."""
    at = 0
    for i in range(len(starts)):
        offsets[i] = at
        length = stops[i] - starts[i]
        out[at : at + length] = data[starts[i] : stops[i]]
        at += length
    offsets[len(starts)] = at


@njit(cache=True, nogil=True)
def mark_pieces(offsets, data, size, pieces):  # type: ignore[no-untyped-def]
    """Ends of pieces of at least ``size`` bytes (the last of a block excepted) of whole lines; their number."""
    found = 0
    for block in range(len(offsets) - 1):
        at, end = np.int64(offsets[block]), np.int64(offsets[block + 1])
        while at < end:
            at = min(at + size, end)
            while at < end and data[at - 1] != _NEWLINE:
                at += 1
            pieces[found] = at
            found += 1
    return found


def rarest_two(needle: bytes) -> tuple[int, int]:
    """Positions of the two bytes that occur least in ordinary text; the same one twice if there is only one.

    >>> rarest_two(b"queen"), rarest_two(b"x")
    ((0, 1), (0, 0))
    """
    by_rarity = sorted(range(len(needle)), key=lambda at: -(_FREQUENT.find(needle[at]) % 256))
    return by_rarity[0], by_rarity[min(1, len(needle) - 1)]


def lines_with(blocks: pa.Array, needle: bytes) -> pa.Array:
    """The lines of ``blocks`` that hold ``needle`` (not empty, no newline in it), as bytes without line ends."""
    offsets, data = byte_buffers(as_array(blocks))
    room = int(offsets[-1] - offsets[0]) // (len(needle) + 1) + len(offsets)
    starts, stops = np.empty(room, np.int64), np.empty(room, np.int64)
    found = mark_matching(offsets, data, np.frombuffer(needle, np.uint8), *rarest_two(needle), starts, stops)
    return _spans(data, starts[:found], stops[:found])


def all_lines(blocks: pa.Array) -> pa.Array:
    """All lines of ``blocks``, as bytes without line ends."""
    offsets, data = byte_buffers(as_array(blocks))
    room = count_newlines(data[offsets[0] : offsets[-1]]) + len(offsets)
    starts, stops = np.empty(room, np.int64), np.empty(room, np.int64)
    found = mark_all(offsets, data, starts, stops)
    return _spans(data, starts[:found], stops[:found])


def count_lines(blocks: pa.Array) -> int:
    """How many lines ``all_lines`` gives."""
    offsets, data = byte_buffers(as_array(blocks))
    ends = offsets[1:][offsets[1:] > offsets[:-1]]
    unfinished = int(np.count_nonzero(data[ends - 1] != _NEWLINE)) if len(ends) else 0
    return count_newlines(data[offsets[0] : offsets[-1]]) + unfinished


def count_newlines(data: Array) -> int:
    return int(np.count_nonzero(data == _NEWLINE))


def rows_with(column: pa.Array, needle: bytes) -> Array:
    """Which elements hold ``needle`` (not empty); False for nulls."""
    column = as_array(column)
    offsets, data = byte_buffers(column)
    matches = np.zeros(len(column), bool)
    if len(column):
        mark_rows(offsets, data, np.frombuffer(needle, np.uint8), *rarest_two(needle), matches)
    if column.null_count:
        matches &= column.is_valid().to_numpy(zero_copy_only=False)
    return matches


def pieces_of(blocks: pa.Array, size: int = _PIECE_BYTES) -> pa.Array:
    """The same text in smaller blocks of whole lines; nothing is copied."""
    offsets, data = byte_buffers(as_array(blocks))
    room = int(offsets[-1] - offsets[0]) // size + len(offsets)
    ends = np.empty(room + 1, np.int64)
    ends[0] = offsets[0]
    found = mark_pieces(offsets, data, size, ends[1:])
    return pa.Array.from_buffers(pa.large_binary(), found, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _spans(data: Array, starts: Array, stops: Array) -> pa.Array:
    offsets = np.empty(len(starts) + 1, np.int64)
    out = np.empty(int((stops - starts).sum()), np.uint8)
    cut_out(data, starts, stops, offsets, out)
    return pa.Array.from_buffers(pa.large_binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(out)])
