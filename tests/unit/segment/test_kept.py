"""What a segment keeps for other stages, and what it has to remember."""

from __future__ import annotations

from pathlib import Path

import pytest

from afspark.errors import SegmentError
from afspark.protocol.lifecycle import Identity
from afspark.resident import Segment
from tests.unit.segment.test_segment import apply, reopened


def keeping(segment: Segment, batch: int, **kept: bytes) -> None:
    with segment.lock(1.0):
        segment.begin(batch)
        for port, data in kept.items():
            segment.keep(batch, port, data)
        segment.finish(batch, b"r")


def test_only_the_newest_report_and_what_two_batches_keep_stay(segment: Segment) -> None:
    for batch in range(4):
        keeping(segment, batch, rows=f"rows {batch}".encode(), all=b"items")
    assert sorted(path.name for path in segment.directory.iterdir()) == [
        "columns",
        "header",
        "meta.json",
        "out-2-all",
        "out-2-rows",
        "out-3-all",
        "out-3-rows",
        "report-3.",
    ]
    assert segment.kept(3, "rows") == b"rows 3"
    assert segment.kept(2, "rows") == b"rows 2"
    assert segment.kept(3, "other") is None


def test_what_was_read_outlives_its_file_and_what_the_same_batch_keeps_next(segment: Segment) -> None:
    """Readers have it in their memory without a copy, while the worker goes on."""
    keeping(segment, 0, rows=b"first", none=b"")
    read = segment.kept(0, "rows")
    with segment.lock(1.0):
        segment.step_back(0)
        segment.clear_mark()
    keeping(segment, 0, rows=b"other")
    assert (read, segment.kept(0, "rows")) == (b"first", b"other")
    for batch in range(1, 4):
        keeping(segment, batch, none=b"")
    assert not list(segment.directory.glob("out-0-*")) and read == b"first"
    assert segment.kept(3, "none") == b""


def test_batches_whose_numbers_begin_alike_are_told_apart(segment: Segment) -> None:
    """The names of batch 1 begin those of batches 10 to 19."""
    for batch in range(12):
        keeping(segment, batch, rows=b"%d" % batch)
    assert (segment.kept(10, "rows"), segment.kept(11, "rows")) == (b"10", b"11")
    assert len(list(segment.directory.glob("out-*"))) == 2 and segment.report(11) == b"r"


def test_what_a_batch_keeps_can_be_read_while_the_next_one_is_applied(segment: Segment) -> None:
    """A stage that is tried again reads what the batch before keeps, wherever the reader's own batch stands."""
    keeping(segment, 0, rows=b"rows 0")
    with segment.lock(1.0):
        segment.begin(1)
        assert segment.kept(0, "rows") == b"rows 0"
        segment.keep(1, "rows", b"rows 1")
        with pytest.raises(SegmentError):
            segment.kept(1, "rows")
        segment.finish(1, b"r")
    assert (segment.kept(0, "rows"), segment.kept(1, "rows")) == (b"rows 0", b"rows 1")


def test_what_a_batch_taken_back_kept_is_not_given_out(segment: Segment) -> None:
    keeping(segment, 0, rows=b"rows 0")
    keeping(segment, 1, rows=b"first time", extra=b"first time only")
    with segment.lock(1.0):
        segment.step_back(1)
        segment.clear_mark()
    with pytest.raises(SegmentError):
        segment.kept(1, "rows")
    assert segment.kept(0, "rows") == b"rows 0"
    keeping(segment, 1, rows=b"second time")
    assert segment.kept(1, "rows") == b"second time"
    assert segment.kept(1, "extra") is None


def test_a_restored_segment_keeps_what_the_lost_one_had(place: Path, identity: Identity) -> None:
    segment = Segment.create(place, identity, 1, restoring=True)
    with segment.lock(1.0):
        segment.keep(4, "back-source", b"feedback")
        segment.restored(4)
    again = reopened(segment)
    assert again.kept(4, "back-source") == b"feedback"
    keeping(again, 5)
    assert again.kept(4, "back-source") == b"feedback"


@pytest.mark.parametrize("port", ["to-a/b", "to-..", "to-größe", "back-a b", "to-x-1", "to-%2F"])
def test_ports_may_have_any_name(segment: Segment, port: str) -> None:
    keeping(segment, 0, **{port: b"data", "to-": b"other"})
    assert segment.kept(0, port) == b"data"
    assert {path.name for path in segment.directory.parent.iterdir()} == {"count-0"}


def test_outputs_of_an_interrupted_attempt_are_forgotten(segment: Segment) -> None:
    with segment.lock(1.0):
        segment.begin(0)
        segment.keep(0, "rows", b"half")
    again = reopened(segment)
    with again.lock(1.0):
        again.clear_mark()
    apply(again, 0)
    assert again.kept(0, "rows") is None


def test_a_note_stays_until_it_is_replaced_or_forgotten(segment: Segment) -> None:
    assert segment.noted() is None
    with segment.lock(1.0):
        segment.note("damaged")
    again = reopened(segment)
    for batch in range(3):
        apply(again, batch)
    assert again.noted() == "damaged"
    with again.lock(1.0):
        again.note("größer")
        assert again.noted() == "größer"
        again.note(None)
        again.note(None)
    assert reopened(again).noted() is None


def test_what_a_killed_process_had_begun_to_write_is_removed(segment: Segment) -> None:
    torn = segment.directory / "spool-0-0-objects\\00000.tmp"
    torn.write_bytes(b"half of a")
    keeping(segment, 0, rows=b"first")
    assert not torn.exists()
