"""Messages of flow exporters, made to order."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Sequence

Field = tuple[int, int] | tuple[int, int, int]
"""Element and length, and the number of an enterprise."""

VARIABLE = 65_535
V4: Sequence[Field] = [(8, 4), (12, 4), (7, 2), (11, 2), (4, 1), (2, 4), (1, 4)]
V6: Sequence[Field] = [(27, 16), (28, 16), (7, 2), (11, 2), (4, 1), (2, 8), (1, 8)]


def netflow_5(count: int, sequence: int = 0, *, engine: int = 1) -> bytes:
    header = struct.pack(">HHIIIIBBH", 5, count, 1000, 1_700_000_000, 5, sequence, 0, engine, 0)
    return header + b"".join(
        struct.pack(
            ">IIIHHIIIIHHBBBBHHBBH",
            *(0x0A000001 + n, 0x0A000002, 0, 1, 2, 10 + n, 1000 + n, 0, 9, 1024 + n, 443, 0, 2, 6, 0, 1, 2, 24, 16, 0),
        )
        for n in range(count)
    )


def netflow_9(*sets: bytes, sequence: int = 0, domain: int = 0, uptime: int = 0, seconds: int = 1_700_000_000) -> bytes:
    return struct.pack(">HHIIII", 9, len(sets), uptime, seconds, sequence, domain) + b"".join(sets)


def ipfix(*sets: bytes, sequence: int = 0, domain: int = 0, seconds: int = 1_700_000_000) -> bytes:
    body = b"".join(sets)
    return struct.pack(">HHIII", 10, 16 + len(body), seconds, sequence, domain) + body


def a_set(number: int, *parts: bytes, padding: int = 0) -> bytes:
    body = b"".join(parts) + bytes(padding)
    return struct.pack(">HH", number, 4 + len(body)) + body


def template(number: int, fields: Iterable[Field]) -> bytes:
    given = list(fields)
    return struct.pack(">HH", number, len(given)) + specifiers(given)


def specifiers(fields: Iterable[Field]) -> bytes:
    return b"".join(
        struct.pack(">HH", *field) if len(field) == 2 else struct.pack(">HHI", field[0] | 0x8000, *field[1:])
        for field in fields
    )


def flow(src: str, dst: str = "", *, port: int = 443, packets: int = 1, octets: int = 100) -> bytes:
    """A record of `V4` or `V6`."""
    first, second = ipaddress.ip_address(src), ipaddress.ip_address(dst or src)
    counters = ">II" if first.version == 4 else ">QQ"
    return first.packed + second.packed + struct.pack(">HHB", 1024, port, 6) + struct.pack(counters, packets, octets)
