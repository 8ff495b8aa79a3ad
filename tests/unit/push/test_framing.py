"""Where messages end in a stream of bytes, however it is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.push.adapters.framing import FrameCounts, LineFrames, NewFraming, OctetFrames, SyslogFrames

LIMIT = 100

# What rsyslog (TCP_Framing="octet-counted") and logger --octet-count sent.
RSYSLOG = (
    b"65 <13>2026-11-16T17:30:05.781524+00:00 vm myapp[13515]: hello world"
    b"59 <131>2026-11-16T17:30:05.984454+00:00 vm db: disk: full [a]"
    b"53 <13>2026-11-16T17:30:06.390762+00:00 vm umlaut: gr\xc3\xbcn"
)
RSYSLOG_WITH_ENDS = b"62 <13>1 2026-11-16T17:30:06.390762+00:00 vm umlaut - - -  gr\xc3\xbcn\n" * 2


def split(text: bytes, size: int, framing: NewFraming = SyslogFrames) -> tuple[list[bytes], FrameCounts, bool]:
    counts = FrameCounts()
    frames = framing(counts, LIMIT)
    seen = b""
    for start in range(0, len(text), size):
        seen += frames.take(text[start : start + size])
        if frames.broken:
            break
    return (seen + frames.end()).splitlines(), counts, frames.broken


@pytest.mark.parametrize("size", [1, 2, 3, 50, 1000])
def test_real_streams_in_pieces(size: int) -> None:
    lines, counts, _ = split(RSYSLOG, size)
    assert [line[:5] for line in lines] == [b"<13>2", b"<131>", b"<13>2"] and lines[2].endswith("grün".encode())
    assert counts == FrameCounts()
    lines, counts, _ = split(RSYSLOG_WITH_ENDS, size)
    assert lines == [RSYSLOG_WITH_ENDS[3:64]] * 2 and counts == FrameCounts()


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6), st.integers(1, 60))
def test_counted_octets_may_hold_anything(contents: list[bytes], size: int) -> None:
    messages = [b"<13>" + content for content in contents]
    stream = b"".join(b"%d %b" % (len(message), message) for message in messages)
    lines, counts, broken = split(stream, size)
    expected = b"".join(message.rstrip(b"\r\n\0").replace(b"\n", b" ") + b"\n" for message in messages)
    assert b"\n".join(lines) == b"\n".join(expected.splitlines())
    assert counts == FrameCounts() and not broken


@given(st.binary(max_size=200), st.integers(1, 60))
def test_lines_are_the_same_however_they_are_cut(stream: bytes, size: int) -> None:
    whole, counts, _ = split(stream, max(1, len(stream)), LineFrames)
    pieces, counted, _ = split(stream, size, LineFrames)
    if not counts.too_long and not counted.too_long:
        assert pieces == whole


@given(st.binary(max_size=300), st.integers(1, 60))
def test_no_stream_breaks_anything_but_itself(stream: bytes, size: int) -> None:
    _, counts, broken = split(b"9 <13>first" + stream, size)
    assert counts.malformed <= 1 and (not broken or counts.malformed == 1)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_message_above_the_limit_is_left_out(size: int) -> None:
    stream = b"9 <13>first" + b"101 <13>" + b"x" * 97 + b"9 <13>later"
    lines, counts, broken = split(stream, size)
    assert lines == [b"<13>first", b"<13>later"] and counts == FrameCounts(too_long=1) and not broken


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "rest", [b"<13>no length", b"0 <13>", b"12x <13>", b"12345678901 <13>x", b"-1 <13>", b"\n\n9 "]
)
def test_a_frame_without_length_breaks_the_connection(size: int, rest: bytes) -> None:
    lines, counts, broken = split(b"9 <13>first" + rest + b"9 <13>later", size)
    assert lines == [b"<13>first"] and counts == FrameCounts(malformed=1) and broken


@pytest.mark.parametrize("rest", [b"1", b"10", b"10 ", b"10 <13>cut"])
def test_a_frame_that_the_end_cuts_short_is_malformed(rest: bytes) -> None:
    lines, counts, broken = split(b"9 <13>first" + rest, 1000)
    assert lines == [b"<13>first"] and counts == FrameCounts(malformed=1) and not broken


@pytest.mark.parametrize("stream", [b"12 angry men\n", b"2026-11-16 started\n", b"7\n", b"0 <13>\n", b"hello\n", b"5 "])
def test_lines_that_begin_with_a_number_are_lines(stream: bytes) -> None:
    lines, counts, broken = split(stream, 1)
    assert lines == [stream.rstrip(b"\n")] and counts == FrameCounts() and not broken


def test_octets_counted_by_themselves() -> None:
    assert split(b"5 hello\n5 world", 3, OctetFrames)[0] == [b"hello", b"world"]
