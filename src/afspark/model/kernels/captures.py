"""Classic pcap captures: where records begin, and what their packets say.

A record is a header of 16 bytes (seconds, fraction, captured length, length on the wire; in the file's byte order)
and the captured bytes. Records are chained by their lengths alone, so damage is searched over byte by byte for
the next place where three plausible headers follow one another.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import njit

from afspark.model.kernels.plain_arrays import Array

HEADER = 16
LONGEST = 262_144
"""Most bytes that are captured of a packet (libpcap's limit)."""

#: link types: BSD loopback, Ethernet, raw IP (three numbers), Linux cooked, IPv4 and IPv6 alone
LINKS = (0, 1, 12, 14, 101, 113, 228, 229)
_LOOPBACK, _ETHERNET, _COOKED = 0, 1, 113

SOUND, BAD, OTHER = 0, 1, 2
"""A packet between IP hosts; a record that cannot be understood; a frame that carries no IP."""

_CHAIN = 3
_DAY = 86_400
_ADDRESS = 40


@njit(cache=True, nogil=True, inline="always")
def _word(data, at, big):  # type: ignore[no-untyped-def]
    a, b = np.int64(data[at]), np.int64(data[at + 1])
    c, d = np.int64(data[at + 2]), np.int64(data[at + 3])
    if big:
        return (a << 24) | (b << 16) | (c << 8) | d
    return (d << 24) | (c << 16) | (b << 8) | a


@njit(cache=True, nogil=True, inline="always")
def _plausible(data, at, big, unit, longest):  # type: ignore[no-untyped-def]
    """Whether a record header may stand here; ``unit`` is the number of fractions in a second."""
    wire = _word(data, at + 12, big)
    return _word(data, at + 4, big) < unit and _word(data, at + 8, big) <= longest and 0 < wire < 1 << 24


@njit(cache=True, nogil=True)
def _chained(data, at, final, big, unit, longest):  # type: ignore[no-untyped-def]
    """1 if several records follow one another from here, 0 if not, -1 if that takes more data to tell."""
    size = len(data)
    last = np.int64(-1)
    for _ in range(_CHAIN):
        if at == size and final and last >= 0:
            return 1
        if at + HEADER > size:
            return 0 if final else -1
        captured = _word(data, at + 8, big)
        if not _plausible(data, at, big, unit, longest) or captured > _word(data, at + 12, big):
            return 0
        time = _word(data, at, big)
        if last >= 0 and abs(time - last) > _DAY:
            return 0
        last = time
        at += HEADER + captured
    return 1 if at <= size or not final else 0


@njit(cache=True, nogil=True)
def walk_records(data, at, lost, final, big, unit, longest, starts, bad):  # type: ignore[no-untyped-def]
    """Starts of the records in ``data`` from ``at`` on, damaged stretches marked as ``bad``.

    ``lost``: ``at`` is inside a damaged stretch that was reported already. ``final``: the file ends with
    ``data``. Returns how many were found, where to go on with more data, and whether that is inside damage.
    """
    size, found = len(data), 0
    while at < size:
        if lost:
            known = _chained(data, at, final, big, unit, longest)
            if known < 0:
                return found, at, True
            lost = known == 0
            at += lost
            continue
        whole = at + HEADER <= size
        if whole and _plausible(data, at, big, unit, longest):
            end = at + HEADER + _word(data, at + 8, big)
            if end <= size:
                starts[found], bad[found] = at, False
                found += 1
                at = end
                continue
            whole = False
        if not whole and not final:
            return found, at, False
        starts[found], bad[found] = at, True
        found += 1
        at += 1
        lost = True
    return found, at, lost and not final


@njit(cache=True, nogil=True)
def _network(data, at, end, link):  # type: ignore[no-untyped-def]
    """Where the IP header begins; -1: there is none, -2: the frame is cut off before it."""
    if link == _LOOPBACK:
        return at + 4 if at + 4 < end else -2
    if link not in (_ETHERNET, _COOKED):
        return at if at < end else -2
    at += 12 if link == _ETHERNET else 14
    while True:
        if at + 2 > end:
            return -2
        kind = (np.int64(data[at]) << 8) | np.int64(data[at + 1])
        at += 2
        if kind in (0x0800, 0x86DD):
            return at
        if kind not in (0x8100, 0x88A8, 0x9100):
            return -1
        at += 2


@njit(cache=True, nogil=True)
def _last_header(data, at, end, kind):  # type: ignore[no-untyped-def]
    """The protocol behind IPv6 extension headers (hop-by-hop, routing, fragment, authentication, options)."""
    while kind in (0, 43, 44, 51, 60) and at + 2 <= end:
        if kind == 44:
            length = np.int64(8)
        elif kind == 51:
            length = 4 * (np.int64(data[at + 1]) + 2)
        else:
            length = 8 * (np.int64(data[at + 1]) + 1)
        kind = np.int64(data[at])
        at += length
    return kind


@njit(cache=True, nogil=True)
def _write_number(out, at, number):  # type: ignore[no-untyped-def]
    if number >= 100:
        out[at] = 48 + number // 100
        at += 1
    if number >= 10:
        out[at] = 48 + number // 10 % 10
        at += 1
    out[at] = 48 + number % 10
    return at + 1


@njit(cache=True, nogil=True)
def _write_v4(out, at, data, address):  # type: ignore[no-untyped-def]
    for i in range(4):
        if i:
            out[at] = 46
            at += 1
        at = _write_number(out, at, np.int64(data[address + i]))
    return at


@njit(cache=True, nogil=True)
def _write_v6(out, at, data, address):  # type: ignore[no-untyped-def]
    """As RFC 5952 has it: lower case, no leading zeros, the longest row of zeros (two or more) as "::"."""
    best, best_length, start = -1, 1, -1
    for i in range(9):
        zero = i < 8 and data[address + 2 * i] == 0 and data[address + 2 * i + 1] == 0
        if zero and start < 0:
            start = i
        elif not zero and start >= 0:
            if i - start > best_length:
                best, best_length = start, i - start
            start = -1
    i = 0
    while i < 8:
        if i == best:
            out[at] = out[at + 1] = 58
            at += 2
            i += best_length
            continue
        if i and i != best + best_length * (best >= 0):
            out[at] = 58
            at += 1
        group = (np.int64(data[address + 2 * i]) << 8) | np.int64(data[address + 2 * i + 1])
        begun = False
        for shift in (12, 8, 4, 0):
            digit = (group >> shift) & 15
            if digit or begun or shift == 0:
                out[at] = digit + (48 if digit < 10 else 87)
                at += 1
                begun = True
        i += 1
    return at


@njit(cache=True, nogil=True)
def parse_records(  # type: ignore[no-untyped-def]
    data, starts, bad, big, link, kinds, seconds, sizes, protocols, offsets, texts
):
    """Fills a row for each record: its kind, and for sound ones second, wire length, protocol and addresses.

    ``offsets`` (2, n + 1) and ``texts`` (2, bytes) take the source and target addresses as text.
    """
    ends = np.zeros(2, np.int64)
    for i in range(len(starts)):
        offsets[0, i], offsets[1, i] = ends[0], ends[1]
        kinds[i] = BAD
        if bad[i]:
            continue
        at = starts[i]
        seconds[i] = _word(data, at, big)
        sizes[i] = _word(data, at + 12, big)
        end = at + HEADER + _word(data, at + 8, big)
        at = _network(data, at + HEADER, end, link)
        if at < 0:
            kinds[i] = OTHER if at == -1 else BAD
            continue
        version = data[at] >> 4
        if version == 4 and at + 20 <= end and (data[at] & 15) >= 5:
            protocols[i] = data[at + 9]
            ends[0] = _write_v4(texts[0], ends[0], data, at + 12)
            ends[1] = _write_v4(texts[1], ends[1], data, at + 16)
            kinds[i] = SOUND
        elif version == 6 and at + 40 <= end:
            protocols[i] = _last_header(data, at + 40, end, np.int64(data[at + 6]))
            ends[0] = _write_v6(texts[0], ends[0], data, at + 8)
            ends[1] = _write_v6(texts[1], ends[1], data, at + 24)
            kinds[i] = SOUND
    offsets[0, len(starts)], offsets[1, len(starts)] = ends[0], ends[1]


class Chain:
    """Finds the records of a file that comes window by window."""

    def __init__(self, *, big: bool, nanoseconds: bool, longest: int = LONGEST) -> None:
        self._format = (big, 1_000_000_000 if nanoseconds else 1_000_000, longest)
        self.lost = False

    def walk(self, data: Array, *, final: bool) -> tuple[Array, Array, int]:
        """Starts of records (int64), which of them are damage, and how many bytes are done with."""
        room = len(data) // HEADER + 2
        starts, bad = np.empty(room, np.int64), np.empty(room, bool)
        found, at, self.lost = walk_records(data, 0, self.lost, final, *self._format, starts, bad)
        return starts[:found], bad[:found], int(at)


def parse(data: Array, starts: Array, bad: Array, *, big: bool, link: int) -> tuple[Array, dict[str, pa.Array]]:
    """Kinds of the records, and columns with a row for each; what is not sound is null."""
    count = len(starts)
    kinds, protocols = np.empty(count, np.int8), np.zeros(count, np.int32)
    seconds, sizes = np.zeros(count, np.int64), np.zeros(count, np.int64)
    offsets, texts = np.zeros((2, count + 1), np.int32), np.empty((2, _ADDRESS * count), np.uint8)
    parse_records(data, starts, bad, big, link, kinds, seconds, sizes, protocols, offsets, texts)
    absent = kinds != SOUND
    valid = pa.py_buffer(np.packbits(~absent, bitorder="little"))

    def addresses(side: int) -> pa.Array:
        text = pa.py_buffer(texts[side, : offsets[side, -1]])
        return pa.Array.from_buffers(pa.string(), count, [valid, pa.py_buffer(offsets[side]), text])

    columns = {"bytes": sizes, "second": seconds, "protocol": protocols}
    numbers = {name: pa.array(column, mask=absent) for name, column in columns.items()}
    return kinds, {"src": addresses(0), "dst": addresses(1), **numbers}
