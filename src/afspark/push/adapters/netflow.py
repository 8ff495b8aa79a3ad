"""NetFlow version 5: datagrams with a header of 24 bytes and up to 30 flow records of 48, in network byte order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from afspark.push.fitting import Rows, fit, no_rows, refuse_unknown

HEADER = np.dtype(
    [
        ("version", ">u2"),
        ("count", ">u2"),
        ("uptime", ">u4"),
        ("seconds", ">u4"),
        ("nanoseconds", ">u4"),
        ("flow_sequence", ">u4"),
        ("engine_type", "u1"),
        ("engine_id", "u1"),
        ("sampling", ">u2"),
    ]
)
RECORD = np.dtype(
    [
        ("src", ">u4"),
        ("dst", ">u4"),
        ("nexthop", ">u4"),
        ("input", ">u2"),
        ("output", ">u2"),
        ("packets", ">u4"),
        ("bytes", ">u4"),
        ("first", ">u4"),
        ("last", ">u4"),
        ("src_port", ">u2"),
        ("dst_port", ">u2"),
        ("pad1", "u1"),
        ("tcp_flags", "u1"),
        ("protocol", "u1"),
        ("tos", "u1"),
        ("src_as", ">u2"),
        ("dst_as", ">u2"),
        ("src_mask", "u1"),
        ("dst_mask", "u1"),
        ("pad2", ">u2"),
    ]
)
FROM_HEADER = ("uptime", "seconds", "nanoseconds", "flow_sequence", "engine_type", "engine_id", "sampling")
COLUMNS = tuple(name for name in RECORD.names or () if not name.startswith("pad")) + FROM_HEADER
"""What a receiver's schema may name; ``flow_sequence`` is that of the datagram."""

VERSION, MOST_RECORDS = 5, 30


class NetFlow:
    """Parser of lists of datagrams: every flow record is a row, a datagram that is no NetFlow 5 one bad row."""

    def __init__(self, schema: pa.Schema) -> None:
        refuse_unknown(schema, COLUMNS, "NetFlow records")
        self._schema = schema

    def datagrams(self, datagrams: list[bytes]) -> Rows:
        size = sum(map(len, datagrams))
        columns, bad = parse(datagrams)
        example = f"{next(iter(bad))[:16].hex()} (no NetFlow 5)" if bad else ""
        if not len(columns["src"]):
            return Rows(no_rows(self._schema), len(bad), example, size)
        table = pa.table({name: pa.array(columns[name]) for name in self._schema.names})
        rows = fit(table, self._schema)
        return Rows(rows.batch, rows.bad + len(bad), rows.example or example, size)


def parse(datagrams: list[bytes]) -> tuple[dict[str, np.ndarray[Any, Any]], list[bytes]]:
    """All columns of all records in native byte order, and the datagrams that are no NetFlow 5."""
    sound: list[bytes] = []
    bad: list[bytes] = []
    for datagram in datagrams:
        (sound if _is_sound(datagram) else bad).append(datagram)
    headers = np.frombuffer(b"".join(datagram[: HEADER.itemsize] for datagram in sound), HEADER)
    counts = headers["count"].astype(np.intp)
    ends = [HEADER.itemsize + int(count) * RECORD.itemsize for count in counts]
    body = b"".join(datagram[HEADER.itemsize : end] for datagram, end in zip(sound, ends, strict=True))
    records = np.frombuffer(body, RECORD)
    columns = {name: _native(records[name]) for name in RECORD.names or ()}
    columns |= {name: _native(np.repeat(headers[name], counts)) for name in FROM_HEADER}
    return columns, bad


def _is_sound(datagram: bytes) -> bool:
    if len(datagram) < HEADER.itemsize or int.from_bytes(datagram[:2]) != VERSION:
        return False
    count = int.from_bytes(datagram[2:4])
    return 0 < count <= MOST_RECORDS and len(datagram) >= HEADER.itemsize + count * RECORD.itemsize


def _native(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return column.astype(column.dtype.newbyteorder("="))
