"""Flow records as columns of Arrow, of the types that a receiver wants: all records of a layout at once.

Addresses are IPv4 or IPv6. A column of text has them as people write them, one of (16) bytes as IPv6, IPv4 mapped into
it (RFC 4291, section 2.5.5.2). A column of numbers can have IPv4 only: records with others do not fit.
Times are timestamps in UTC, or numbers: milliseconds since 1970.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import types

from afspark.push.adapters import flowlayouts as elements
from afspark.push.adapters.flowlayouts import ADDRESSES, BOOTED, NUMBERS, TIMES, Bytes, Layout, matrix, number
from afspark.push.adapters.flowmessages import NETFLOW_5, FlowMessage
from afspark.push.producer.fitting import Rows, fit
from afspark.push.wire.batches import no_rows

HEADER = (
    "version", "domain", "uptime", "seconds", "nanoseconds", "flow_sequence", "engine_type", "engine_id", "sampling",
)  # fmt: skip
EXPORTER = "exporter"
COLUMNS = (*ADDRESSES, *NUMBERS, *TIMES, EXPORTER, *HEADER)
"""What a receiver's schema may name; header fields are those of the message."""

ZERO_IF_ABSENT = frozenset({"src_port", "dst_port", "tcp_flags"})
"""What flows of other protocols than TCP and UDP do not have is zero, as in NetFlow 5. Other columns are null."""

_MAPPED = bytes(10) + b"\xff\xff"
_NTP_TO_UNIX = 2_208_988_800

Column = np.ndarray[Any, Any]


class Head(NamedTuple):
    """The message of some records, its sender's address in 16 bytes, and when that was started, if it is known."""

    message: FlowMessage
    exporter: bytes
    booted: int | None


@dataclass(frozen=True)
class _Group:
    """Records of one layout with the head of each."""

    layout: Layout
    rows: Bytes
    heads: list[Head]
    places: Column

    def of_heads(self, values: list[int | None]) -> pa.Array:
        return pa.array(values, pa.int64()).take(pa.array(self.places))


class FlowTable:
    """Collects records in order of their arrival, then makes columns of them."""

    def __init__(self) -> None:
        self._heads: list[Head] = []
        self._parts: dict[Layout, list[tuple[int, int, bytes]]] = {}
        self._turn = 0

    def add(self, head: Head, parts: list[tuple[Layout, bytes]]) -> None:
        """Takes the records of a message, by layout."""
        for layout, records in parts:
            self._parts.setdefault(layout, []).append((self._turn, len(self._heads), records))
            self._turn += 1
        self._heads.append(head)

    def rows(self, schema: pa.Schema) -> Rows:
        """All records that fit."""
        if not self._parts:
            return Rows(no_rows(schema))
        groups, turns = [], []
        for layout, parts in self._parts.items():
            rows = matrix(b"".join(records for _, _, records in parts), layout)
            counts = [len(records) // layout.size for _, _, records in parts]
            groups.append(_Group(layout, rows, self._heads, np.repeat([head for _, head, _ in parts], counts)))
            turns.append(np.repeat([turn for turn, _, _ in parts], counts))
        columns = [pa.chunked_array([_column(field, group) for group in groups]) for field in schema]
        table = pa.table(columns, names=schema.names)
        if len(groups) > 1:
            table = table.take(pa.array(np.argsort(np.concatenate(turns), kind="stable")))
        return _fit(table, schema)


def packed(host: str) -> bytes:
    """An address in 16 bytes.

    >>> packed("10.0.0.1").hex(), packed("fe80::1%eth0").hex()
    ('00000000000000000000ffff0a000001', 'fe800000000000000000000000000001')
    """
    if ":" in host:
        return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return _MAPPED + socket.inet_aton(host)


@lru_cache(maxsize=65_536)
def address_text(address: bytes) -> str:
    """The address as people write it.

    >>> address_text(packed("10.0.0.1")), address_text(packed("2001:db8::1"))
    ('10.0.0.1', '2001:db8::1')
    """
    if address.startswith(_MAPPED):
        return socket.inet_ntoa(address[12:])
    return socket.inet_ntop(socket.AF_INET6, address)


def _column(field: pa.Field, group: _Group) -> pa.Array:
    name = field.name
    if name in ADDRESSES:
        return _addresses(_sixteen(group, *ADDRESSES[name]), len(group.rows), field.type)
    if name in NUMBERS:
        values = elements.first_not_zero(group.rows, group.layout, NUMBERS[name])
        if values is None and name in ZERO_IF_ABSENT:
            values = np.zeros(len(group.rows), np.uint64)
        return pa.nulls(len(group.rows), pa.uint64()) if values is None else pa.array(values)
    if name in TIMES:
        return _times(group, name, field.type)
    if name == EXPORTER:
        every = np.frombuffer(b"".join(head.exporter for head in group.heads), np.uint8).reshape(-1, 16)
        return _addresses(every[group.places], len(group.rows), field.type)
    return group.of_heads([_of_header(head.message, name) for head in group.heads])


def _of_header(message: FlowMessage, name: str) -> int | None:
    if name == "flow_sequence":
        return message.sequence
    if name in {"engine_type", "engine_id"}:
        high, low = divmod(message.domain, 256)
        return None if message.version != NETFLOW_5 else high if name == "engine_type" else low
    value: int | None = getattr(message, name)
    return value


def _sixteen(group: _Group, four: int, six: int) -> Bytes | None:
    """Addresses in 16 bytes: IPv4, or IPv6 where there is none or only zeros."""
    places, rows = group.layout.places, group.rows
    found = np.zeros((len(rows), 16), np.uint8)
    if six in places:
        found[:] = rows[:, places[six][0] :][:, :16]
    elif four not in places:
        return None
    if four in places:
        short = rows[:, places[four][0] :][:, :4]
        chosen = short.any(axis=1) if six in places else np.ones(len(rows), bool)
        found[chosen, :12] = np.frombuffer(_MAPPED, np.uint8)
        found[chosen, 12:] = short[chosen]
    return found


def _addresses(found: Bytes | None, length: int, kind: pa.DataType) -> pa.Array:
    """The addresses in the column's type; those that are no number stay 16 bytes, for `_fit` to see."""
    as_text = types.is_string(kind) or types.is_large_string(kind)
    if found is None:
        return pa.nulls(length, pa.string() if as_text else pa.binary(16))
    sixteen = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), length, [None, pa.py_buffer(found.tobytes())])
    if not as_text:
        return sixteen
    codes = sixteen.dictionary_encode()
    texts = pa.array([address_text(address) for address in codes.dictionary.to_pylist()], pa.string())
    return texts.take(codes.indices)


def _times(group: _Group, name: str, kind: pa.DataType) -> pa.Array:
    """Microseconds since 1970, as the column wants them."""
    layout, rows = group.layout, group.rows
    element = next((element for element in TIMES[name] if element in layout.places), None)
    if element is None:
        return _as_time(pa.nulls(len(rows), pa.int64()), kind)
    values = number(rows, layout.places[element]).astype(np.int64)
    known = np.ones(len(rows), bool)
    how = TIMES[name][element]
    if how == elements.SECONDS:
        values = values * 1_000_000
    elif how == elements.MILLISECONDS:
        values = values * 1_000
    elif how in {elements.MICROSECONDS, elements.NANOSECONDS}:  # NTP's format: RFC 7011, section 6.1.9
        wide = values.view(np.uint64)
        values = ((wide >> np.uint64(32)).astype(np.int64) - _NTP_TO_UNIX) * 1_000_000
        values += ((wide & np.uint64(0xFFFF_FFFF)) * np.uint64(1_000_000) >> np.uint64(32)).astype(np.int64)
    else:
        heads = [head.message for head in group.heads]
        export = np.array([one.seconds * 1_000_000 + (one.nanoseconds or 0) // 1_000 for one in heads])[group.places]
        if how == elements.BEFORE_EXPORT:
            values = export - values
        else:
            booted, known = _booted(group)
            # Uptimes count milliseconds in 32 bits; packets may be a little younger than the message about them.
            age = (export // 1_000 - booted - values).astype(np.uint64).astype(np.uint32).astype(np.int32)
            values = export - age.astype(np.int64) * 1_000
    return _as_time(pa.array(values, mask=~known), kind)


def _booted(group: _Group) -> tuple[Column, Column]:
    """When the exporter of each record was started, in milliseconds since 1970, and for which that is known."""
    if BOOTED in group.layout.places:
        return number(group.rows, group.layout.places[BOOTED]).astype(np.int64), np.ones(len(group.rows), bool)
    known = np.array([head.booted is not None for head in group.heads])
    return np.array([head.booted or 0 for head in group.heads])[group.places], known[group.places]


def _as_time(microseconds: pa.Array, kind: pa.DataType) -> pa.Array:
    if types.is_integer(kind) or types.is_floating(kind):
        values = microseconds.fill_null(0).to_numpy()
        values = values // 1_000 if types.is_integer(kind) else values / 1_000
        return pa.array(values, mask=microseconds.is_null().to_numpy(False))
    times = microseconds.cast(pa.timestamp("us", "UTC"))
    return times.cast(kind, safe=False) if types.is_timestamp(kind) else times


def _fit(table: pa.Table, schema: pa.Schema) -> Rows:
    """As `fit`, with addresses as numbers where the schema has numbers."""
    sound = np.ones(table.num_rows, bool)
    example = ""
    for place, field in enumerate(schema):
        if types.is_integer(field.type) and types.is_fixed_size_binary(table.field(place).type):
            column = table.column(place).combine_chunks()
            values, four = _as_numbers(column)
            if not four.all():
                other = column[int(np.flatnonzero(~four)[0])].as_py()
                example = example or f"{address_text(other)} (column {field.name!r}: IPv6 needs text or binary)"
            sound &= four
            table = table.set_column(place, field.name, pa.array(values, mask=column.is_null().to_numpy(False)))
    rows = fit(table if sound.all() else table.filter(pa.array(sound)), schema)
    return Rows(rows.batch, rows.bad + int((~sound).sum()), example or rows.example)


def _as_numbers(column: pa.Array) -> tuple[Column, Column]:
    """IPv4 addresses as numbers, and which are."""
    absent = column.is_null().to_numpy(False)
    every = np.frombuffer(column.fill_null(_MAPPED + bytes(4)).buffers()[1], np.uint8)[: 16 * len(column)]
    rows = every.reshape(-1, 16)
    return number(rows, (12, 4)), absent | (rows[:, :12] == np.frombuffer(_MAPPED, np.uint8)).all(axis=1)
