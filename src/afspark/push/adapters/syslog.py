"""Syslog messages as rows: RFC 5424, RFC 3164, what rsyslog forwards. A line that is none is a message and no more.

rsyslog's ``RSYSLOG_ForwardFormat`` is RFC 3164 with a timestamp of RFC 3339: ``<PRI>TIMESTAMP HOST TAG: MESSAGE``.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from afspark.push.adapters.framing import as_line
from afspark.push.producer.fitting import Rows, fit, refuse_unknown
from afspark.push.producer.line_formats import line_array, text_of

COLUMNS = ("priority", "facility", "severity", "timestamp", "host", "app", "message")
"""What a receiver's schema may name; ``timestamp`` is the text in the message, or a time if it has a zone."""

DEFAULT_PRIORITY = 13

_PRIORITY = r"^<(?P<priority>\d{1,3})>"
_RFC_3164_TIME = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
_RFC_3339_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"
_NEW = (
    _PRIORITY + r"1 (?P<timestamp>\S+) (?P<host>\S+) (?P<app>\S+) \S+ \S+ "
    r"(?:-|(?:\[(?:[^\]\\]|\\.)*\])+)(?: \x{feff}?(?P<message>(?s:.*)))?$"
)
# The tag may be missing: rsyslog cuts it after 32 characters, and with it the colon.
_OLD = (
    _PRIORITY + rf"(?P<timestamp>{_RFC_3164_TIME}|{_RFC_3339_TIME}) (?P<host>\S*[^\s:]) "
    r"(?:(?P<app>[^\s:\[]+)(?:\[[^\]]*\])?: ?)?(?P<message>(?s:.*))$"
)
_PLAIN = r"^(?:<(?P<priority>\d{1,3})>)?(?P<message>(?s:.*))$"


class Syslog:
    """Parser of blocks of lines; `datagrams` of lists of datagrams, a message each."""

    def __init__(self, schema: pa.Schema) -> None:
        refuse_unknown(schema, COLUMNS, "Syslog messages")
        self._schema = schema

    def __call__(self, block: bytes) -> Rows:
        rows = fit(parse(line_array(text_of(block))), self._schema)
        return Rows(rows.batch, rows.bad, rows.example, len(block))

    def datagrams(self, datagrams: list[bytes]) -> Rows:
        return self(b"".join(map(as_line, datagrams)))


def parse(lines: pa.StringArray) -> pa.Table:
    """All columns of the messages in ``lines``; those a message does not have are null.

    >>> parse(pa.array(["<34>Oct 11 22:14:15 mymachine su: 'su root' failed", "hello"])).to_pylist()[0]["facility"]
    4
    """
    fields: dict[str, Any] = dict.fromkeys(COLUMNS, pa.nulls(len(lines), pa.string()))
    # The most general form first: a more special one that matches decides.
    for pattern in (_PLAIN, _OLD, _NEW):
        found = pc.extract_regex(lines, pattern)
        matches = found.is_valid()
        for name in (field.name for field in found.type):
            fields[name] = pc.if_else(matches, pc.struct_field(found, name), fields[name])
    # RFC 5424 writes "-" for what a message does not have.
    for name, missing in (("priority", ""), ("app", ""), ("timestamp", "-"), ("host", "-"), ("app", "-")):
        fields[name] = pc.if_else(pc.equal(fields[name], missing), pa.scalar(None, pa.string()), fields[name])
    number = pc.cast(pc.fill_null(fields["priority"], str(DEFAULT_PRIORITY)), pa.int32())
    eight = pa.scalar(8, pa.int32())
    fields["priority"] = number
    fields["facility"] = pc.divide(number, eight)
    fields["severity"] = pc.subtract(number, pc.multiply(fields["facility"], eight))
    return pa.table([fields[name] for name in COLUMNS], names=list(COLUMNS))
