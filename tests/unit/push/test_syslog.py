"""Syslog messages as rows. Those under `REAL` were sent by rsyslog 8.2302 and by logger of util-linux 2.38."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from afspark.errors import InputError
from afspark.push.adapters import syslog
from afspark.push.adapters.syslog import Syslog

REAL = {
    "RSYSLOG_ForwardFormat": (
        b"<131>2026-11-16T17:30:05.984454+00:00 vm db: disk: full [a]",
        (131, "2026-11-16T17:30:05.984454+00:00", "vm", "db", "disk: full [a]"),
    ),
    "RSYSLOG_ForwardFormat with a process": (
        b"<13>2026-11-16T17:30:05.781524+00:00 vm myapp[13515]: hello world",
        (13, "2026-11-16T17:30:05.781524+00:00", "vm", "myapp", "hello world"),
    ),
    "RSYSLOG_TraditionalForwardFormat": (
        b"<38>Nov 16 17:30:06 vm su: line one#012line two",
        (38, "Nov 16 17:30:06", "vm", "su", "line one#012line two"),
    ),
    "RSYSLOG_SyslogProtocol23Format": (
        b"<13>1 2026-11-16T17:30:05.781524+00:00 vm myapp 13515 - -  hello world\n",
        (13, "2026-11-16T17:30:05.781524+00:00", "vm", "myapp", " hello world"),
    ),
    "logger --rfc3164": (
        b"<13>Nov 16 17:30:08 vm myapp[42]: hello world",
        (13, "Nov 16 17:30:08", "vm", "myapp", "hello world"),
    ),
    "logger --rfc5424": (
        b'<13>1 2026-11-16T17:30:08.122063+00:00 vm myapp - m1 [timeQuality tzKnown="1" isSynced="0"]'
        b'[zoo@123 tiger="hungry"] with data',
        (13, "2026-11-16T17:30:08.122063+00:00", "vm", "myapp", "with data"),
    ),
}
SCHEMA = pa.schema(
    [
        ("priority", pa.int32()), ("timestamp", pa.string()), ("host", pa.string()), ("app", pa.string()),
        ("message", pa.string()),
    ]
)  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_what_daemons_send(name: str) -> None:
    sent, expected = REAL[name]
    rows = Syslog(SCHEMA).datagrams([sent])
    assert rows.bad == 0 and tuple(rows.batch.to_pylist()[0].values()) == expected


def test_old_new_and_neither() -> None:
    lines = [
        "<34>Oct 11 22:14:15 mymachine su[12]: 'su root' failed",
        '<165>1 2003-10-11T22:14:15.003Z host evntslog - ID47 [a@1 b="\\]"][c] \ufeffAn event',
        "<13>1 - - - - - -",
        "just text",
        "",
    ]
    found = syslog.parse(pa.array(lines)).to_pylist()
    assert [(row["facility"], row["severity"], row["app"]) for row in found] == [
        (4, 2, "su"), (20, 5, "evntslog"), (1, 5, None), (1, 5, None), (1, 5, None),
    ]  # fmt: skip
    assert found[0]["host"] == "mymachine" and found[0]["message"] == "'su root' failed"
    assert found[0]["timestamp"] == "Oct 11 22:14:15" and found[1]["timestamp"] == "2003-10-11T22:14:15.003Z"
    assert found[1]["message"] == "An event"
    assert found[3]["message"] == "just text"
    with pytest.raises(InputError):
        Syslog(pa.schema([("value", pa.string())]))


@pytest.mark.parametrize(
    "time",
    ["2003-10-11T22:14:15Z", "2003-10-11T22:14:15.003Z", "2003-10-11T22:14:15.000003-07:00", "Oct  1 22:14:15"],
)
def test_timestamps_of_both_kinds(time: str) -> None:
    (row,) = syslog.parse(pa.array([f"<13>{time} 2001:db8::1 app: text"])).to_pylist()
    assert (row["timestamp"], row["host"], row["app"], row["message"]) == (time, "2001:db8::1", "app", "text")


def test_a_tag_without_its_colon_is_part_of_the_message() -> None:
    (row,) = syslog.parse(pa.array(["<13>2026-11-16T17:30:05Z vm a-tag-cut-after-32-characters-by text"])).to_pylist()
    assert (row["host"], row["app"], row["message"]) == ("vm", None, "a-tag-cut-after-32-characters-by text")


@pytest.mark.parametrize("text", ["Nov 16 17:30:05 su: local, without host", "2026-11-16 17:30:05 vm app: no such"])
def test_what_is_not_quite_a_format_is_a_message(text: str) -> None:
    (row,) = syslog.parse(pa.array([f"<14>{text}"])).to_pylist()
    assert (row["priority"], row["host"], row["app"], row["message"]) == (14, None, None, text)


def test_a_time_with_its_zone_can_be_a_timestamp() -> None:
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("app", pa.string())])
    rows = Syslog(schema).datagrams(
        [b"<13>2026-11-16T17:30:05.781524+01:00 vm new: x", b"<13>Nov 16 17:30:05 vm old: x"]
    )
    seen = datetime(2026, 11, 16, 16, 30, 5, 781_524, UTC)
    assert rows.batch.to_pylist() == [{"timestamp": seen, "app": "new"}]
    assert rows.bad == 1, "a time without year and zone is no timestamp"


def test_what_a_message_leaves_out_is_null() -> None:
    """RFC 5424 writes a dash for it, which is no time."""
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("host", pa.string()), ("app", pa.string())])
    rows = Syslog(schema)(b"<34>1 - - - - - -\n")
    assert rows.batch.to_pylist() == [{"timestamp": None, "host": None, "app": None}] and rows.bad == 0
