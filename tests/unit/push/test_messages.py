"""Messages come back as they went, and nothing else is taken for one."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.push.wire.messages import (
    TAG_BYTES,
    Ack,
    Allowance,
    BatchTag,
    Bye,
    Hello,
    Message,
    PunctuationMark,
    PutHeader,
    Welcome,
)
from afspark.push.wire.push_errors import WireError
from afspark.push.wire.worker_messages import (
    Attach,
    Attached,
    BackupNumber,
    Confirm,
    Confirmed,
    EntryTag,
    LoggingStopped,
    Pull,
    StopLogging,
)

SESSION = "0123456789abcdef"
MESSAGES: list[Message] = [
    PutHeader("sensor 7", SESSION),
    PutHeader("sensor"),
    Hello("sensor", SESSION, {0: 5, 3: 0}, {0: "0a", 3: ""}),
    Hello("sensor"),
    Welcome(SESSION, (0, 1), 12.5, 1000, {1: 7}),
    Welcome(SESSION, (4,)),
    BatchTag(2, 1 << 40),
    BatchTag(0, 1, PunctuationMark(time=2.5)),
    BatchTag(0, 1, PunctuationMark(end=True)),
    Ack(1, 9),
    Ack(1, 9, math.inf),
    Ack(1, 9, 3.0, "00ff"),
    Bye("sensor", SESSION, {2: 4}, {2: "0a"}),
    Pull(1, 2, 3, confirmed={"sensor/00": 4}),
    Pull(1, 2, 3, "f00d", {"a/b": 1}, {"a/b": 5}, bytes=9, wait=1.5, allow=Allowance(0, 2.0)),
    Pull(1, 2, 3, confirmed={}, durable=BackupNumber(4, 1, 2)),
    EntryTag("sensor/00", 4, True),
    EntryTag("sensor/00", 4, False, PunctuationMark(time=7), False),
    EntryTag("sensor/00", 4, False, mark=True),
    Attach(1, 2, 3),
    Attach(1, 2, 3, "f00d", {"a/b": 1}, Allowance(10)),
    Attached({"a/b": 1}),
    StopLogging(1, 2, 3, "f00d", {"a/b": 1}),
    Confirm(1, 2, 3, "f00d", {"a/b": 1}, BackupNumber(4, 1, 2)),
    Confirmed(("a/b",), {"/00000001": 7}),
    LoggingStopped(True),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back(message: Message) -> None:
    data = message.to_bytes()
    assert type(message).from_bytes(data) == message
    assert type(message).from_bytes(memoryview(data)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_field_is_checked(message: Message) -> None:
    fields = json.loads(message.to_bytes())
    for name in fields:
        for wrong in ("x" * 400, -1, 1.5, [[]], {"x": -1}, True, "\n"):
            if wrong == fields[name] or (name in {"wait", "unacked"} and wrong == 1.5):
                continue
            if isinstance(fields[name], bool) and isinstance(wrong, bool):
                continue
            with pytest.raises(WireError):
                type(message).from_bytes(json.dumps(fields | {name: wrong}).encode())
    with pytest.raises(WireError):
        type(message).from_bytes(json.dumps(fields | {"surprise": 1}).encode())


@pytest.mark.parametrize(
    "message", [message for message in MESSAGES if message.versioned], ids=lambda message: type(message).__name__
)
def test_another_version_is_refused(message: Message) -> None:
    fields = json.loads(message.to_bytes())
    for version in (0, 1, 3, "2", None):
        with pytest.raises(WireError) as caught:
            type(message).from_bytes(json.dumps(fields | {"version": version}).encode())
        assert caught.value.what == "version"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe", b"[1]", b"null", b"7", b"[" * 100_000, b'{"lane":NaN,"start":0}', b'{"lane":1}'],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        BatchTag.from_bytes(data)


def test_a_long_tag_is_refused_before_it_is_read() -> None:
    with pytest.raises(WireError) as caught:
        BatchTag.from_bytes(b" " * (TAG_BYTES + 1))
    assert caught.value.what == "size"


@pytest.mark.parametrize("name", ["", "a/b", "tab\t", "x" * 201, "\u2028", "\ud800"])
def test_names_that_would_confuse_are_refused(name: str) -> None:
    with pytest.raises(WireError):
        PutHeader.from_bytes(json.dumps({"version": 2, "producer": name, "session": SESSION}).encode())


@given(
    st.binary(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(repr).map(str.encode)
)
def test_random_bytes_are_refused(data: bytes) -> None:
    for kind in {type(message) for message in MESSAGES}:
        with pytest.raises(WireError):
            kind.from_bytes(data)
