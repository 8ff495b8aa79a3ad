"""What a flow record looks like: which information element stands at which byte, and how numbers come out of it.

Elements have IANA's numbers (RFC 7012, which took those of NetFlow 9 over; RFC 3954, section 8). Enterprise elements
(RFC 7011, section 3.2) are passed over, with them the other direction of a biflow (RFC 5103).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

VARIABLE = 65_535
"""As the length of a field: every record says how long it is (RFC 7011, section 7)."""

MOST_FIELDS = 512

NUMBERS: Mapping[str, tuple[int, ...]] = {
    "input": (10,),
    "output": (14,),
    "packets": (2, 86),
    "bytes": (1, 85),
    "first": (22,),
    "last": (21,),
    "src_port": (7, 180, 182),
    # Without ports, ICMP's type and code, as in NetFlow 5.
    "dst_port": (11, 181, 183, 32, 139),
    "tcp_flags": (6,),
    "protocol": (4,),
    "tos": (5,),
    "src_as": (16,),
    "dst_as": (17,),
    "src_mask": (9, 29),
    "dst_mask": (13, 30),
}
"""Elements that give a column, by preference: the first in the record that is not zero."""

ADDRESSES: Mapping[str, tuple[int, int]] = {"src": (8, 27), "dst": (12, 28), "nexthop": (15, 62)}
"""IPv4 and IPv6 elements of a column."""

SECONDS, MILLISECONDS, MICROSECONDS, NANOSECONDS, BEFORE_EXPORT, UPTIME = range(6)
TIMES: Mapping[str, Mapping[int, int]] = {
    "start": {
        152: MILLISECONDS, 154: MICROSECONDS, 156: NANOSECONDS, 150: SECONDS, 158: BEFORE_EXPORT, 22: UPTIME,
    },
    "end": {
        153: MILLISECONDS, 155: MICROSECONDS, 157: NANOSECONDS, 151: SECONDS, 159: BEFORE_EXPORT, 21: UPTIME,
    },
}  # fmt: skip
"""Elements that give a time, by preference, with their kind."""

BOOTED = 160
"""systemInitTimeMilliseconds: what UPTIME counts from."""

_WIDE = {8: 4, 12: 4, 15: 4, 27: 16, 28: 16, 62: 16, **dict.fromkeys((152, 153, 154, 155, 156, 157, BOOTED), 8)}
_KNOWN = frozenset(
    [BOOTED, *(number for numbers in (*NUMBERS.values(), *ADDRESSES.values(), *TIMES.values()) for number in numbers)]
)

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class FlowFormatError(ValueError):
    """A message, a template or a record that cannot be what it says it is."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Where elements stand in a record of ``size`` bytes, without fields of variable length.

    ``runs`` is empty if there are none of these. Else it has the bytes before each, and last those behind.
    ``options`` are records about the exporter, not about flows.
    """

    size: int
    places: Mapping[int, tuple[int, int]]
    runs: tuple[int, ...] = ()
    options: bool = False

    @classmethod
    def of(cls, fields: Sequence[tuple[int | None, int]], *, options: bool = False) -> Layout:
        """The layout of elements with their lengths; None stands for one that is of no interest."""
        if not 0 < len(fields) <= MOST_FIELDS:
            raise FlowFormatError(f"a template of {len(fields)} fields")
        places: dict[int, tuple[int, int]] = {}
        runs = [0]
        size = 0
        for element, length in fields:
            if length == VARIABLE:
                runs.append(0)
                continue
            if element in _KNOWN and element not in places:
                allowed = (_WIDE[element],) if element in _WIDE else range(1, 9)
                if length not in allowed:
                    raise FlowFormatError(f"element {element} of {length} bytes")
                places[element] = (size, length)
            size += length
            runs[-1] += length
        if size == 0:
            raise FlowFormatError("a template for records of no length")
        return cls(size, places, tuple(runs) if len(runs) > 1 else (), options)

    def records(self, body: bytes) -> bytes:
        """The records of a data set, one after another, without padding and fields of variable length."""
        if self.runs:
            return b"".join(self._pieces(body))
        if len(body) < self.size:
            raise FlowFormatError(f"{len(body)} bytes for records of {self.size}")
        return body[: len(body) // self.size * self.size]

    def _pieces(self, body: bytes) -> Iterable[bytes]:
        at, shortest = 0, self.size + len(self.runs) - 1
        while at == 0 or len(body) - at >= shortest:
            for place, run in enumerate(self.runs):
                if place:
                    at = _behind_variable(body, at)
                if at + run > len(body):
                    raise FlowFormatError("a record that goes beyond its set")
                yield body[at : at + run]
                at += run


def _behind_variable(body: bytes, at: int) -> int:
    """Where a field of variable length ends that begins at a byte (RFC 7011, section 7)."""
    length = body[at] if at < len(body) else 0
    at += 1
    if length == 255:
        length = int.from_bytes(body[at : at + 2])
        at += 2
    return at + length


def matrix(records: bytes, layout: Layout) -> Bytes:
    """Records as rows of bytes."""
    return np.frombuffer(records, np.uint8).reshape(-1, layout.size)


def number(rows: Bytes, place: tuple[int, int]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Unsigned numbers of any width up to eight bytes (reduced-size encoding: RFC 7011, section 6.2).

    >>> number(np.array([[9, 1, 2, 9]], np.uint8), (1, 2)).tolist()
    [258]
    """
    offset, length = place
    wide = np.zeros((len(rows), 8), np.uint8)
    wide[:, 8 - length :] = rows[:, offset : offset + length]
    return wide.view(">u8").ravel().astype(np.uint64)


def first_not_zero(rows: Bytes, layout: Layout, elements: Iterable[int]) -> np.ndarray[Any, Any] | None:
    """The numbers of the first element that has one other than zero; None if records have none of the elements."""
    found: np.ndarray[Any, Any] | None = None
    for element in elements:
        if element in layout.places:
            values = number(rows, layout.places[element])
            found = values if found is None else np.where(found == 0, values, found)
    return found
