from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from afspark.errors import NoSpace, SegmentBusy, SegmentError
from afspark.protocol.lifecycle import MOST_STEPS, NONE_APPLIED, RESTORING, Absent, Foreign, Identity, Present
from afspark.resident import Segment, examine, header
from afspark.resident.open_folder import OpenFolder

INT = np.dtype(np.int64)


def reopened(segment: Segment) -> Segment:
    """The segment as the next process finds it after the death of this one."""
    segment.close()
    again = Segment.open(segment.directory)
    assert again is not None
    return again


def apply(segment: Segment, batch: int, report: bytes = b"report") -> None:
    with segment.lock(1.0):
        segment.begin(batch)
        segment.finish(batch, report)


def test_new_segment(segment: Segment, identity: Identity) -> None:
    assert segment.found() == Present(identity, 0, NONE_APPLIED, False)
    assert examine(segment.directory) == segment.found()
    assert reopened(segment).found() == Present(identity, 0, NONE_APPLIED, False)


def test_identity_is_kept_in_full(place: Path, identity: Identity) -> None:
    mine = replace(identity, checkpoint="s3://bucket/c", worker=1)
    again = reopened(Segment.create(place, mine, 7))
    assert again.identity == mine
    assert again.identity.checkpoint == "s3://bucket/c"
    assert again.incarnation == 7


def test_folders_are_private(segment: Segment, tmp_path: Path) -> None:
    for path in [
        segment.directory,
        segment.directory.parent,
        tmp_path / "host",
        segment.directory / "columns",
    ]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((segment.directory / "header").stat().st_mode) == 0o600


def test_nothing_else_is_left_by_creation(segment: Segment) -> None:
    assert [path.name for path in segment.directory.parent.iterdir()] == ["count-0"]


@pytest.mark.parametrize("version", [RESTORING, NONE_APPLIED, 0, 1, 2**40])
@pytest.mark.parametrize("marked", [False, True])
def test_header_word_round_trip(version: int, marked: bool) -> None:
    assert header.unpack(header.pack(version, marked)) == (version, marked)


def test_batches_advance_the_version(segment: Segment) -> None:
    for batch in range(3):
        apply(segment, batch, f"report {batch}".encode())
        assert (segment.version, segment.marked) == (batch, False)
        assert segment.report(batch) == f"report {batch}".encode()
    assert reopened(segment).report(2) == b"report 2"


def test_mark_survives_the_process(segment: Segment, identity: Identity) -> None:
    apply(segment, 0)
    with segment.lock(1.0):
        segment.begin(1)
    again = reopened(segment)
    assert again.found() == Present(identity, 0, 0, True)
    with again.lock(1.0):
        again.clear_mark()
    assert again.found() == Present(identity, 0, 0, False)
    assert again.report(0) == b"report"


def test_step_back_leads_to_a_marked_segment(segment: Segment, identity: Identity) -> None:
    apply(segment, 0)
    apply(segment, 1)
    with segment.lock(1.0):
        segment.step_back(1)
    again = reopened(segment)
    assert again.found() == Present(identity, 0, 0, True)
    with again.lock(1.0):
        again.clear_mark()
    with pytest.raises(SegmentError):
        again.report(1)
    apply(again, 1, b"second time")
    assert again.report(1) == b"second time"


def test_report_is_there_before_the_version(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(self: Segment, version: int, marked: bool) -> None:
        raise KeyboardInterrupt

    with segment.lock(1.0):
        segment.begin(0)
        monkeypatch.setattr(Segment, "_store", die)
        with pytest.raises(KeyboardInterrupt):
            segment.finish(0, b"r")
    assert (segment.directory / "report-0.").read_bytes() == b"r"
    assert (segment.version, segment.marked) == (-1, True)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda segment: segment.begin(2),
        lambda segment: segment.begin(0),
        lambda segment: segment.begin(-1),
        lambda segment: segment.finish(1, b""),
        lambda segment: segment.keep(1, "rows", b""),
        lambda segment: segment.keep(0, "rows", b""),
        lambda segment: segment.clear_mark(),
        lambda segment: segment.step_back(1),
        lambda segment: segment.restored(3),
        lambda segment: segment.report(1),
        lambda segment: segment.kept(1, "rows"),
        lambda segment: segment.kept(-2, "rows"),
    ],
)
def test_steps_out_of_order_are_refused(segment: Segment, identity: Identity, misuse) -> None:
    apply(segment, 0)
    with segment.lock(1.0), pytest.raises(SegmentError):
        misuse(segment)
    assert segment.found() == Present(identity, 0, 0, False)


def test_nothing_to_step_back_from(segment: Segment, identity: Identity) -> None:
    with segment.lock(1.0):
        for batch in (-1, 0):
            with pytest.raises(SegmentError):
                segment.step_back(batch)
    assert segment.found() == Present(identity, 0, NONE_APPLIED, False)


def test_restoring_counts_until_it_ends(place: Path, identity: Identity) -> None:
    segment = Segment.create(place, identity, 1, restoring=True)
    with segment.lock(1.0):
        for batch in (-1, 0, 5):
            with pytest.raises(SegmentError):
                segment.begin(batch)
    again = reopened(segment)
    assert again.found() == Present(identity, 1, RESTORING, False)
    with again.lock(1.0):
        again.restored(4)
    apply(again, 5)
    assert again.version == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda segment: segment.begin(0),
        lambda segment: segment.clear_mark(),
        lambda segment: segment.step_back(0),
        lambda segment: segment.attach("a", len),
        lambda segment: segment.raise_fence(1),
        lambda segment: segment.note("x"),
        lambda segment: segment.note(None),
    ],
)
def test_changes_need_the_lock(segment: Segment, change) -> None:
    with pytest.raises(SegmentError):
        change(segment)


def test_restoring_needs_the_lock(place: Path, identity: Identity) -> None:
    segment = Segment.create(place, identity, 1, restoring=True)
    for change in (lambda: segment.keep(3, "back-a", b"x"), lambda: segment.restored(3)):
        with pytest.raises(SegmentError):
            change()


def test_fence_only_rises(segment: Segment, identity: Identity) -> None:
    with segment.lock(1.0):
        segment.raise_fence(5)
        segment.raise_fence(3)
    assert reopened(segment).found() == Present(identity, 0, NONE_APPLIED, False, 5)
    assert examine(segment.directory) == Present(identity, 0, NONE_APPLIED, False, 5)


def test_lock_keeps_others_out(segment: Segment) -> None:
    other = Segment.open(segment.directory)
    assert other is not None
    with segment.lock(0.0):
        assert segment.held
        with pytest.raises(SegmentBusy) as caught, other.lock(0.05):
            pass
        assert caught.value.path == str(segment.directory)
        with pytest.raises(SegmentBusy), segment.lock(0.0):
            pass
    with other.lock(0.0):
        assert not segment.held


def test_lock_waits(segment: Segment) -> None:
    other = Segment.open(segment.directory)
    assert other is not None
    inside = threading.Event()

    def hold() -> None:
        with other.lock(0.0):
            inside.set()
            threading.Event().wait(0.1)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    with segment.lock(10.0):
        assert not other.held
    thread.join()


def test_forked_process_cannot_share_the_lock(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(SegmentError), segment.lock(0.0):
        pass


def test_attached_objects_stay_until_another_process_worked(segment: Segment) -> None:
    def get(holder: Segment) -> object:
        with holder.lock(1.0):
            return holder.attach("state", lambda columns: object())

    first = get(segment)
    assert get(segment) is first
    other = Segment.open(segment.directory)
    assert other is not None
    get(other)
    assert get(segment) is not first


def test_attached_objects_go_with_an_error(segment: Segment) -> None:
    with segment.lock(1.0):
        first = segment.attach("state", lambda columns: object())
    with pytest.raises(RuntimeError), segment.lock(1.0):
        raise RuntimeError
    with segment.lock(1.0):
        assert segment.attach("state", lambda columns: object()) is not first


def test_lock_shows_columns_grown_by_others(segment: Segment) -> None:
    other = Segment.open(segment.directory)
    assert other is not None
    with segment.lock(1.0):
        segment.attach("a", lambda columns: columns.open("a", INT, 512))
    with other.lock(1.0):
        other.columns.open("a", INT, 5000)[4999] = 1
    with segment.lock(1.0):
        assert segment.attach("a", lambda columns: columns.open("a", INT, 512))[4999] == 1


def test_absent(place: Path) -> None:
    assert examine(place) == Absent()
    assert Segment.open(place) is None


def test_half_created_folder_counts_as_missing_and_is_replaced(place: Path, identity: Identity) -> None:
    Segment.create(place, identity, 0).columns.open("a", INT, 1)[0] = 1
    (place / "meta.json").unlink()
    assert examine(place) == Absent()
    assert Segment.open(place) is None
    assert not Segment.create(place, identity, 0).columns.open("a", INT, 1).any()


def test_segment_of_an_earlier_boot_counts_as_missing(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header, "boot_id", lambda: "another")
    assert examine(segment.directory) == Absent()
    assert Segment.open(segment.directory) is None


def corrupt_meta(place: Path) -> None:
    (place / "meta.json").write_text("{")


def other_format(place: Path) -> None:
    fields = json.loads((place / "meta.json").read_text())
    fields["identity"]["format_version"] = 99
    (place / "meta.json").write_text(json.dumps(fields))


def short_header(place: Path) -> None:
    os.truncate(place / "header", 100)


def empty_header(place: Path) -> None:
    (place / "header").write_bytes(bytes(4096))


def header_of_another(place: Path) -> None:
    fields = json.loads((place / "meta.json").read_text())
    fields["creation"] += 1
    (place / "meta.json").write_text(json.dumps(fields))


@pytest.mark.parametrize("damage", [corrupt_meta, other_format, short_header, empty_header, header_of_another])
def test_damaged_segment_is_foreign_and_can_be_replaced(place: Path, identity: Identity, damage) -> None:
    Segment.create(place, identity, 3).close()
    damage(place)
    assert isinstance(examine(place), Foreign)
    assert Segment.open(place) is None
    assert Segment.create(place, identity, 0).version == NONE_APPLIED


def test_create_replaces_an_older_incarnation(segment: Segment, identity: Identity) -> None:
    apply(segment, 0)
    segment.columns.open("a", INT, 1)[0] = 1
    newer = Segment.create(segment.directory, identity, 1)
    assert newer.found() == Present(identity, 1, NONE_APPLIED, False)
    assert newer.columns.names() == []
    assert not segment.is_current()
    with pytest.raises(SegmentError), segment.lock(1.0):
        pass
    assert [path.name for path in segment.directory.parent.iterdir()] == ["count-0"]


def test_create_never_replaces_a_newer_incarnation(place: Path, identity: Identity) -> None:
    newer = Segment.create(place, identity, 2)
    with pytest.raises(SegmentError) as caught:
        Segment.create(place, identity, 1)
    assert (caught.value.found, caught.value.wanted) == (2, 1)
    assert newer.is_current()


def test_create_never_replaces_what_another_task_has_put_in_place(place: Path, identity: Identity) -> None:
    """Two tasks were told to create the same incarnation, and the other one has applied a batch already."""
    healthy = Segment.create(place, identity, 1)
    apply(healthy, 0)
    with pytest.raises(SegmentError) as caught:
        Segment.create(place, identity, 1, restoring=True)
    assert caught.value.path == str(place)
    assert healthy.is_current() and healthy.found() == Present(identity, 1, 0, False)


def test_create_replaces_what_another_task_has_left_unfinished(place: Path, identity: Identity) -> None:
    left = Segment.create(place, identity, 1, restoring=True)
    assert Segment.create(place, identity, 1).found() == Present(identity, 1, NONE_APPLIED, False)
    assert not left.is_current()


def test_create_replaces_the_same_incarnation_of_somebody_else(segment: Segment, identity: Identity) -> None:
    other = replace(identity, query_id="other")
    assert Segment.create(segment.directory, other, 0).identity == other
    assert not segment.is_current()


def test_create_waits_for_a_process_at_work(segment: Segment, identity: Identity) -> None:
    with segment.lock(1.0), pytest.raises(SegmentBusy):
        Segment.create(segment.directory, identity, 1, timeout_seconds=0.05)
    assert segment.is_current()


def test_creation_that_fails_leaves_nothing(place: Path, identity: Identity, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(directory: Path, meta: header.Meta) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(header, "write_meta", refuse)
    with pytest.raises(NoSpace):
        Segment.create(place, identity, 0)
    assert list(place.parent.iterdir()) == []


def test_no_space_for_a_report(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: OpenFolder, name: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "full")

    with segment.lock(1.0):
        segment.begin(0)
        monkeypatch.setattr(OpenFolder, "write", refuse)
        with pytest.raises(NoSpace) as caught:
            segment.finish(0, b"1234")
    assert caught.value.wanted == 4
    assert (segment.version, segment.marked) == (-1, True)


def test_destroy(segment: Segment) -> None:
    array = segment.columns.open("a", INT, 10)
    segment.destroy()
    assert list(segment.directory.parent.iterdir()) == []
    array[0] = 1
    assert Segment.open(segment.directory) is None


def test_destroy_under_the_lock(segment: Segment) -> None:
    with segment.lock(1.0):
        segment.destroy()
    assert examine(segment.directory) == Absent()


def test_interrupted_destroy_is_never_opened(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
    segment.destroy()
    assert examine(segment.directory) == Absent()
    (leftover,) = segment.directory.parent.iterdir()
    assert leftover.name.startswith(".dead-")


def test_opening_never_brings_a_destroyed_folder_back(segment: Segment) -> None:
    meta = segment.meta
    segment.destroy()
    with pytest.raises(FileNotFoundError):
        Segment(segment.directory, meta)
    assert not segment.directory.exists()


@pytest.mark.parametrize("step", [-1, MOST_STEPS + 1])
def test_a_step_never_carries_over_into_the_version(step: int) -> None:
    word = header.pack(3, True, MOST_STEPS)
    assert (header.unpack(word), header.unpack_step(word)) == ((3, True), MOST_STEPS)
    with pytest.raises(SegmentError) as refused:
        header.pack(3, False, step)
    assert refused.value.most == MOST_STEPS
