"""What flow exporters send over UDP as rows: NetFlow 5, NetFlow 9 (RFC 3954) and IPFIX (RFC 7011), mixed as they come.

Templates belong to an exporter and its observation domain: of NetFlow 9 the address it sends from (RFC 3954, section
5.1), of IPFIX the port as well, which is what makes a session over UDP (RFC 7011, section 10.3). Data whose template
did not come yet, or was forgotten, is dropped and counted: exporters send templates anew every few minutes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa

from afspark.push.adapters.datagrams import Datagram
from afspark.push.adapters.flowlayouts import BOOTED, FlowFormatError, Layout, matrix, number
from afspark.push.adapters.flowmessages import (
    FIRST_DATA_SET,
    IPFIX,
    NETFLOW_5,
    NETFLOW_9,
    RECORD_5,
    FlowMessage,
    UnknownVersion,
    cut,
)
from afspark.push.adapters.flowtable import COLUMNS, FlowTable, Head, packed
from afspark.push.adapters.flowtemplates import Exporter, Exporters, read_templates
from afspark.push.producer.fitting import Rows, refuse_unknown

LOG = logging.getLogger("afspark")
MOST_WARNINGS = 100

_TEMPLATES = {NETFLOW_9: 0, IPFIX: 2}
_OPTIONS_TEMPLATES = {NETFLOW_9: 1, IPFIX: 3}
_packed = lru_cache(maxsize=10_000)(packed)


@dataclass
class FlowCounts:
    """What did not become rows. Losses are those that sequence numbers show: NetFlow 9 numbers its datagrams, the
    others their flows. ``options`` are records about the exporter, ``reserved`` sets of a kind that does not exist."""

    malformed: int = 0
    unknown_version: int = 0
    sets_without_template: int = 0
    lost_flows: int = 0
    lost_datagrams: int = 0
    options: int = 0
    reserved: int = 0


@dataclass(slots=True)
class _Parsed:
    """The data of a message: flow records by layout, how many, and how many about options; sets ``unknown``."""

    parts: list[tuple[Layout, bytes]] = field(default_factory=list)
    flows: int = 0
    options: int = 0
    unknown: int = 0
    booted: int | None = None

    def add(self, layout: Layout, records: bytes) -> None:
        if not layout.options:
            self.parts.append((layout, records))
            self.flows += len(records) // layout.size
            return
        self.options += len(records) // layout.size
        if BOOTED in layout.places:
            self.booted = int(number(matrix(records, layout), layout.places[BOOTED]).astype(np.int64)[-1])


class NetFlow:
    """Parser of lists of datagrams: every flow record is a row, a datagram that is malformed or of another version one
    bad row. ``clock`` tells in seconds how old templates are."""

    def __init__(self, schema: pa.Schema, *, clock: Callable[[], float] = time.monotonic) -> None:
        refuse_unknown(schema, COLUMNS, "Flow records")
        self._schema, self._clock = schema, clock
        self._exporters = Exporters()
        self._warned: set[tuple[str, str]] = set()
        self.counts = FlowCounts()

    def datagrams(self, datagrams: list[Datagram]) -> Rows:
        table, now = FlowTable(), self._clock()
        bad, example = 0, ""
        for data, (host, port, *_) in datagrams:
            try:
                self._take(data, host, port, table, now)
            except FlowFormatError as error:
                bad += 1
                example = example or f"{data[:16].hex()} ({error})"
                if isinstance(error, UnknownVersion):
                    self.counts.unknown_version += 1
                    self._warn(host, error)
                else:
                    self.counts.malformed += 1
        rows = table.rows(self._schema)
        return Rows(rows.batch, rows.bad + bad, example or rows.example, sum(len(data) for data, _ in datagrams))

    def _take(self, data: bytes, host: str, port: int, table: FlowTable, now: float) -> None:
        message = cut(data)
        session = (host, port) if message.version == IPFIX else (host,)
        exporter = self._exporters[(*session, message.version, message.domain)]
        try:
            parsed = self._parse(message, exporter, now)
        except FlowFormatError:
            self._count_lost(message, exporter, None)
            raise
        self._count_lost(message, exporter, parsed)
        table.add(Head(message, _packed(host), _booted(message, exporter)), parsed.parts)

    def _parse(self, message: FlowMessage, exporter: Exporter, now: float) -> _Parsed:
        parsed = _Parsed()
        if message.version == NETFLOW_5:
            parsed.add(RECORD_5, message.sets[0][1])
            return parsed
        for kind, body in message.sets:
            if kind >= FIRST_DATA_SET:
                layout = exporter.find(kind, now)
                if layout is None:
                    parsed.unknown += 1
                else:
                    parsed.add(layout, layout.records(body))
            elif kind in {_TEMPLATES[message.version], _OPTIONS_TEMPLATES[message.version]}:
                options = kind == _OPTIONS_TEMPLATES[message.version]
                for template in read_templates(body, message.version, options=options):
                    self._exporters.learn(exporter, *template, now)
            else:
                self.counts.reserved += 1
        self.counts.sets_without_template += parsed.unknown
        self.counts.options += parsed.options
        exporter.booted = parsed.booted or exporter.booted
        return parsed

    def _count_lost(self, message: FlowMessage, exporter: Exporter, parsed: _Parsed | None) -> None:
        flows = None if parsed is None or parsed.unknown else parsed.flows
        sequence = exporter.records if message.version == IPFIX else exporter.numbers
        before = sequence.lost
        if message.version == IPFIX:
            exporter.records.take(message.sequence, flows, parsed.options if parsed else 0)
        else:
            exporter.numbers.take(message.sequence, 1 if message.version == NETFLOW_9 else flows)
        if message.version == NETFLOW_9:
            self.counts.lost_datagrams += sequence.lost - before
        else:
            self.counts.lost_flows += sequence.lost - before

    def _warn(self, host: str, error: UnknownVersion) -> None:
        if (host, error.name) not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add((host, error.name))
            LOG.warning("What %s sends cannot be read and is left out: %s.", host, error)


def _booted(message: FlowMessage, exporter: Exporter) -> int | None:
    if message.uptime is None:
        return exporter.booted
    return message.seconds * 1_000 + (message.nanoseconds or 0) // 1_000_000 - message.uptime
