"""Templates of NetFlow 9 (RFC 3954, section 5) and IPFIX (RFC 7011, section 3.4): read, kept, replaced and forgotten.

An exporter sends them again and again, because datagrams get lost. What it has not repeated for `TEMPLATE_SECONDS` is
forgotten, and so is what would be too much: the exporter that has been silent longest loses its templates first.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from afspark.push.adapters.flowlayouts import VARIABLE, FlowFormatError, Layout
from afspark.push.adapters.flowmessages import FIRST_DATA_SET, IPFIX
from afspark.push.adapters.flowsequence import RecordSequence, Sequence

TEMPLATE_SECONDS = 3 * 1800.0
"""Three times what routers take between two sendings, as RFC 7011, section 8.4, wants it."""

MOST_EXPORTERS = 1000
MOST_TEMPLATES = 10_000
MOST_TEMPLATES_EACH = 1000

_ENTERPRISE = 0x8000
_HEADER = struct.Struct(">HH")
_OPTIONS_HEADER = struct.Struct(">HHH")
_FIELD = struct.Struct(">HH")
_ENTERPRISE_NUMBER = struct.Struct(">I")


@dataclass(frozen=True)
class Template:
    """A layout with the bytes that defined it, and when those came last."""

    layout: Layout
    definition: bytes
    seen: float


@dataclass
class Exporter:
    """What is known of one exporter's observation domain: its templates, the ``numbers`` of its messages or (IPFIX) its
    ``records``, and when it was ``booted``, in milliseconds since 1970."""

    templates: dict[int, Template] = field(default_factory=dict)
    numbers: Sequence = field(default_factory=Sequence)
    records: RecordSequence = field(default_factory=RecordSequence)
    booted: int | None = None

    def learn(self, number: int, layout: Layout, definition: bytes, now: float) -> None:
        """Takes a template over; one that says what is known already only makes it last longer."""
        known = self.templates.pop(number, None)
        if known is not None and known.definition == definition:
            layout = known.layout
        self.templates[number] = Template(layout, definition, now)
        if len(self.templates) > MOST_TEMPLATES_EACH:
            del self.templates[next(iter(self.templates))]

    def find(self, number: int, now: float) -> Layout | None:
        """The layout of a data set, unless it is unknown or too old."""
        template = self.templates.get(number)
        if template is None or now - template.seen > TEMPLATE_SECONDS:
            return None
        return template.layout


class Exporters:
    """Exporters by any key, up to `MOST_EXPORTERS` with `MOST_TEMPLATES` in all."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], Exporter] = OrderedDict()
        self._templates = 0

    def __getitem__(self, key: tuple[object, ...]) -> Exporter:
        exporter = self._known.get(key)
        if exporter is None:
            exporter = self._known[key] = Exporter()
        self._known.move_to_end(key)
        self._forget()
        return exporter

    def learn(self, exporter: Exporter, number: int, layout: Layout, definition: bytes, now: float) -> None:
        """As `Exporter.learn`, for the exporter that was asked for last."""
        before = len(exporter.templates)
        exporter.learn(number, layout, definition, now)
        self._templates += len(exporter.templates) - before
        self._forget()

    def _forget(self) -> None:
        while len(self._known) > MOST_EXPORTERS or (self._templates > MOST_TEMPLATES and len(self._known) > 1):
            _, silent = self._known.popitem(last=False)
            self._templates -= len(silent.templates)


def read_templates(body: bytes, version: int, *, options: bool) -> Iterator[tuple[int, Layout, bytes]]:
    """Number, layout and definition of every template in a set."""
    at, padding = 0, len(body.rstrip(b"\0"))
    while at < padding:
        began = at
        number, count, scopes, at = (_read_options if options else _read_header)(body, at, version)
        if number < FIRST_DATA_SET:
            raise FlowFormatError(f"a template with the number {number}")
        fields: list[tuple[int | None, int]] = []
        for place in range(count):
            element, length, at = _read_field(body, at, version)
            # A scope of NetFlow 9 is no element (RFC 3954, section 6.1).
            fields.append((None if place < scopes else element, length))
        yield number, Layout.of(fields, options=options), body[began:at]


def _read_header(body: bytes, at: int, version: int) -> tuple[int, int, int, int]:
    number, count = _unpack(_HEADER, body, at)
    return number, count, 0, at + _HEADER.size


def _read_options(body: bytes, at: int, version: int) -> tuple[int, int, int, int]:
    number, first, second = _unpack(_OPTIONS_HEADER, body, at)
    at += _OPTIONS_HEADER.size
    if version == IPFIX:  # fields in all, then scopes among them
        return number, first, second, at
    return number, (first + second) // _FIELD.size, first // _FIELD.size, at  # bytes of scopes, then of options


def _read_field(body: bytes, at: int, version: int) -> tuple[int | None, int, int]:
    element, length = _unpack(_FIELD, body, at)
    at += _FIELD.size
    if version != IPFIX:
        if length == VARIABLE:
            raise FlowFormatError("a field of variable length in NetFlow 9")
        return element, length, at
    if element & _ENTERPRISE:
        _unpack(_ENTERPRISE_NUMBER, body, at)
        return None, length, at + _ENTERPRISE_NUMBER.size
    return element, length, at


def _unpack(kind: struct.Struct, body: bytes, at: int) -> tuple[int, ...]:
    try:
        return kind.unpack_from(body, at)
    except struct.error:
        raise FlowFormatError("a template that goes beyond its set") from None
