"""Messages of flow exporters, cut into their parts: NetFlow 5, NetFlow 9 (RFC 3954) and IPFIX (RFC 7011).

Nothing here remembers anything: `cut` gives what a datagram says, or raises `FlowFormatError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from afspark.push.adapters.flowlayouts import FlowFormatError, Layout

NETFLOW_5, NETFLOW_9, IPFIX = 5, 9, 10
FIRST_DATA_SET = 256
MOST_RECORDS_5 = 30

_HEADER_5 = struct.Struct(">HHIIIIBBH")
_HEADER_9 = struct.Struct(">HHIIII")
_HEADER_10 = struct.Struct(">HHIII")
_SET = struct.Struct(">HH")

RECORD_5 = Layout.of(
    [
        (8, 4), (12, 4), (15, 4), (10, 2), (14, 2), (2, 4), (1, 4), (22, 4), (21, 4), (7, 2), (11, 2), (None, 1),
        (6, 1), (4, 1), (5, 1), (16, 2), (17, 2), (9, 1), (13, 1), (None, 2),
    ]
)  # fmt: skip
"""NetFlow 5 has one kind of record, of 48 bytes."""


class UnknownVersion(FlowFormatError):
    """A datagram of a version, or of a protocol, that is not spoken here."""

    def __init__(self, version: int, name: str) -> None:
        super().__init__(f"{name}; NetFlow 5, NetFlow 9 and IPFIX (10) are understood")
        self.version, self.name = version, name


class FlowMessage(NamedTuple):
    """What a datagram says about itself, and its ``sets`` by their numbers; those of NetFlow 5 have none.

    ``domain`` is the source id of NetFlow 9, the observation domain of IPFIX, and engine type and id of NetFlow 5.
    """

    version: int
    seconds: int
    sequence: int
    domain: int
    sets: tuple[tuple[int, bytes], ...]
    uptime: int | None = None
    nanoseconds: int | None = None
    sampling: int | None = None


def cut(datagram: bytes) -> FlowMessage:
    """The parts of a datagram; all of it must be sound."""
    version = int.from_bytes(datagram[:2])
    if len(datagram) >= 2 and version not in _CUTTERS:
        raise UnknownVersion(version, _name(datagram, version))
    try:
        return _CUTTERS.get(version, _cut_5)(datagram)
    except struct.error:
        raise FlowFormatError(f"a datagram of {len(datagram)} bytes, too short for its header") from None


def _cut_5(datagram: bytes) -> FlowMessage:
    version, count, uptime, seconds, nanoseconds, sequence, kind, engine, sampling = _HEADER_5.unpack_from(datagram)
    end = _HEADER_5.size + count * RECORD_5.size
    if not 0 < count <= MOST_RECORDS_5 or len(datagram) < end:
        raise FlowFormatError(f"{count} records of NetFlow 5 in {len(datagram)} bytes")
    sets = ((FIRST_DATA_SET, datagram[_HEADER_5.size : end]),)
    return FlowMessage(version, seconds, sequence, kind << 8 | engine, sets, uptime, nanoseconds, sampling)


def _cut_9(datagram: bytes) -> FlowMessage:
    version, _, uptime, seconds, sequence, domain = _HEADER_9.unpack_from(datagram)
    return FlowMessage(version, seconds, sequence, domain, tuple(_sets(datagram, _HEADER_9.size)), uptime)


def _cut_10(datagram: bytes) -> FlowMessage:
    version, length, seconds, sequence, domain = _HEADER_10.unpack_from(datagram)
    if length != len(datagram):
        raise FlowFormatError(f"an IPFIX message of {length} bytes in a datagram of {len(datagram)}")
    return FlowMessage(version, seconds, sequence, domain, tuple(_sets(datagram, _HEADER_10.size)))


_CUTTERS = {NETFLOW_5: _cut_5, NETFLOW_9: _cut_9, IPFIX: _cut_10}


def _sets(datagram: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while len(datagram) - at >= _SET.size:
        number, length = _SET.unpack_from(datagram, at)
        if not _SET.size <= length <= len(datagram) - at:
            raise FlowFormatError(f"a set of {length} bytes where {len(datagram) - at} are left")
        yield number, datagram[at + _SET.size : at + length]
        at += length
    if any(datagram[at:]):
        raise FlowFormatError("bytes behind the last set")


def _name(datagram: bytes, version: int) -> str:
    # sFlow's version has four bytes.
    if version == 0 and len(datagram) >= 28 and 2 <= int.from_bytes(datagram[:4]) <= 5:
        return f"sFlow {int.from_bytes(datagram[:4])}"
    return f"version {version}"
