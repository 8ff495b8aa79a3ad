"""What became of each snapshot, which barriers were skipped and why, and what a failure now would replay."""

from __future__ import annotations

import pyarrow as pa
import pytest
from rich.console import Console

import afspark as af
from afspark import testing
from afspark.api.inspection import inspect
from afspark.coordinator import snapshots as reasons
from afspark.coordinator.snapshot_under_way import SnapshotStage, SnapshotUnderWay
from afspark.coordinator.snapshots import Snapshots
from afspark.errors import CheckpointError, StoreNotWritable
from afspark.policies import BarrierSnapshot, MiniBatch
from afspark.report.inspection_text import inspection
from afspark.store import CommitRecord, ObjectRef, OperatorRecord, WorkerRecord
from afspark.store.snapshot_history import MOST_ENTRIES, SnapshotEntry
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig
from tests.unit.runtime.test_barrier_snapshot import ITEMS, RefusingStore


def record(batch: int, *names: str) -> CommitRecord:
    """A record that names these objects, of ten bytes each; the first is a full image."""
    chain = tuple(ObjectRef(name, "", 10, 1, not place) for place, name in enumerate(names))
    return CommitRecord(batch, "epoch", {"count": OperatorRecord(workers=(WorkerRecord(0, 0, 0, 1, "a", {}, chain),))})


def followed(*barriers: int) -> Snapshots:
    """After complete snapshots at these barriers."""
    one = Snapshots(taken=True)
    for place, barrier in enumerate(barriers):
        names = [f"o{number}" for number in range(place + 1)]
        one.due(barrier, 50.0)
        one.captured(record(barrier, *names), float(barrier))
        one.recording(record(barrier, *names), barrier + 0.5)
        one.complete(barrier)
    return one


class TestLifeCycle:
    def test_from_due_to_complete(self) -> None:
        one = SnapshotUnderWay(3, 7, 50.0)
        assert one.stage is SnapshotStage.DUE
        made = record(7, "a", "b")
        one.captured(made, [ObjectRef("b", "", 10, 1, False)], 100.0)
        one.hear({"x"})
        assert one.stage is SnapshotStage.CAPTURED
        one.hear({"x", "b"})
        assert one.stage is SnapshotStage.UPLOADING
        one.recording(102.0)
        one.complete()
        assert one.ended
        assert one.entry == SnapshotEntry(number=3, barrier=7, started=100.0, completed=102.0, parts=1, bytes=10)

    @pytest.mark.parametrize("stage", [SnapshotStage.COMPLETE, SnapshotStage.ABANDONED])
    def test_what_has_ended_stays_as_it_is(self, stage: SnapshotStage) -> None:
        one = SnapshotUnderWay(1, 0, 50.0)
        one.stage = stage
        for step in (one.complete, lambda: one.abandon("why"), lambda: one.recording(1.0)):
            with pytest.raises(CheckpointError) as caught:
                step()
            assert caught.value.number == 1 and caught.value.stage == stage

    def test_one_whose_parts_nobody_has_is_never_complete(self) -> None:
        one = SnapshotUnderWay(1, 0, 50.0)
        with pytest.raises(CheckpointError):
            one.complete()


def test_a_batch_that_runs_again_is_one_snapshot() -> None:
    one = followed(0)
    one.due(2, 50.0)
    one.due(2, 50.0)
    assert [entry.number for entry in one.entries] == [1, 2]


def test_one_that_is_due_has_begun_with_its_batch() -> None:
    one = followed(0)
    one.due(2, 50.0)
    assert [entry["started"] for entry in one.described()] == [0.0, 50.0]


def test_one_that_is_overtaken_is_abandoned() -> None:
    one = followed(0)
    for barrier in (2, 4):
        one.due(barrier, 50.0)
        one.captured(record(barrier, "o0", f"p{barrier}"), float(barrier))
    written = one.recording(record(4, "o0", "p2", "p4"), 9.0)
    assert [(entry.barrier, entry.is_complete, entry.abandoned) for entry in written.snapshots] == [
        (0, True, ""),
        (2, False, reasons.OVERTAKEN),
        (4, True, ""),
    ]


def test_one_whose_record_was_refused_is_abandoned_and_numbers_go_on() -> None:
    one = followed(0)
    one.due(2, 50.0)
    one.captured(record(2, "o0"), 2.0)
    one.recording(record(2, "o0"), 3.0)
    one.fail(2)
    one.due(2, 50.0)
    assert [(entry.number, entry.abandoned) for entry in one.entries] == [(1, ""), (2, reasons.FAILED), (3, "")]


def test_a_history_is_bounded() -> None:
    one = followed(*range(MOST_ENTRIES + 20))
    assert len(one.entries) == MOST_ENTRIES and one.entries[-1].number == MOST_ENTRIES + 20
    one.due(1000, 50.0)
    for barrier in range(1001, 1100):
        one.skip(barrier, "a")
        one.skip(barrier, "b")
    assert len(one.entries[-1].skipped) == 2


def test_only_what_is_new_counts_as_its_part() -> None:
    entries = followed(0, 2, 4).entries
    assert [(entry.parts, entry.full, entry.bytes) for entry in entries] == [(1, 1, 10), (1, 0, 10), (1, 0, 10)]


def test_a_complete_history(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, batches=6, tolerance=BarrierSnapshot(batches=2))
    rig = one.rig
    rig.go()
    rig.driver.close()
    found = rig.driver.commits.snapshots.entries
    assert [(entry.number, entry.barrier) for entry in found] == [(1, 0), (2, 2), (3, 4)]
    sizes = {path.name.split("-")[2]: 0 for path in rig.objects()}
    for path in rig.objects():
        sizes[path.name.split("-")[2]] += path.stat().st_size
    assert [entry.bytes for entry in found] == [sizes[f"{barrier:012d}"] for barrier in (0, 2, 4)]
    assert all(entry.parts == 2 and entry.completed >= entry.started > 0 for entry in found)
    assert inspect(rig.checkpoint, segments=rig.root).snapshots == found


@pytest.mark.parametrize(("lag", "stage"), [(Lag.RECORDS, "recording"), (Lag.BACKUPS, "uploading")])
def test_barriers_that_were_skipped_and_why(make_rig: MakeRig, lag: Lag, stage: str) -> None:
    one = LaggingRig(make_rig, lag, batches=8, tolerance=BarrierSnapshot(batches=2))
    rig = one.rig
    rig.go(7)
    newest = rig.driver.commits.snapshots.described()[-1]
    assert (newest["barrier"], newest["stage"], newest["completed"]) == (2, stage, None)
    assert newest["skipped"] == [{"first": 4, "last": 6, "barriers": 3, "why": reasons.UNDER_WAY}]
    durable = rig.driver.commits.durability(6, rig.driver.items)
    assert durable.snapshot is not None and durable.snapshot.barrier == durable.batch == 0
    assert durable.under_way is not None and (durable.under_way.number, durable.under_way.stage) == (2, stage)
    assert (durable.replay_batches, durable.replay_items) == (6, 6 * ITEMS)
    assert durable.replay_seconds > 0
    rig.hosts.lag = Lag.NOTHING
    rig.driver.close()
    assert rig.driver.commits.snapshots.under_way is None
    assert rig.driver.commits.durability(6, rig.driver.items).replay_batches == 4


def test_a_loss_abandons_the_one_under_way_and_the_next_driver_knows(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.BACKUPS, batches=9, tolerance=BarrierSnapshot(batches=2))
    rig = one.rig
    rig.go(4)
    rig.lose(0)
    rig.go(2)
    stages = [(entry["barrier"], entry["stage"]) for entry in rig.driver.commits.snapshots.described()]
    assert stages == [(0, "complete"), (2, "abandoned"), (5, "uploading")], "4 was skipped"
    assert rig.driver.commits.snapshots.entries[1].abandoned == reasons.LOSS
    rig.hosts.lag = Lag.NOTHING
    rig.driver.close()
    before = rig.driver.commits.snapshots.entries
    rig.start()
    rig.go(1)
    after = rig.driver.commits.snapshots.entries
    assert after[:3] == before and [entry.number for entry in after] == [1, 2, 3, 4]
    assert after[2].is_complete and after[3].barrier == 6, "the first record of a driver is a snapshot"
    one.assert_as_calm()


def test_a_driver_with_another_tolerance_keeps_the_history(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, batches=6, tolerance=BarrierSnapshot(batches=2))
    rig = one.rig
    rig.go(3)
    rig.driver.close()
    rig.start(tolerance=MiniBatch())
    rig.go(2)
    assert [entry.number for entry in rig.driver.commits.snapshots.entries] == [1, 2]
    assert rig.driver.commits.durability(4, rig.driver.items).snapshot is None
    rig.start(tolerance=BarrierSnapshot(batches=2))
    rig.go()
    assert [entry.number for entry in rig.driver.commits.snapshots.entries] == [1, 2, 3]


def test_a_killed_driver_leaves_its_history(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.BACKUPS, batches=8, tolerance=BarrierSnapshot(batches=2))
    rig = one.rig
    rig.go(6)
    rig.hosts.lag = Lag.NOTHING
    # Nobody has closed the driver before.
    rig.start()
    rig.go()
    rig.driver.close()
    found = inspect(rig.checkpoint, segments=rig.root)
    assert [(entry.number, entry.barrier) for entry in found.snapshots] == [(1, 0), (2, 6)]
    assert all(entry.is_complete for entry in found.snapshots), "what was under way is not in the history"
    one.assert_as_calm()


def test_a_record_that_cannot_be_written_is_no_snapshot(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=BarrierSnapshot(batches=2, asynchronous=False))
    rig = one.rig
    store = RefusingStore(str(rig.checkpoint), what="/records/")
    rig.checkpoint.mkdir()
    rig.open_store = lambda place: store
    rig.go(2)
    store.refuses = True
    with pytest.raises(StoreNotWritable):
        rig.go(1)
    assert [entry["stage"] for entry in rig.driver.commits.snapshots.described()] == ["complete", "abandoned"]
    store.refuses = False
    rig.go()
    found = rig.driver.commits.snapshots.described()
    assert [(entry["barrier"], entry["stage"]) for entry in found] == [
        (0, "complete"),
        (2, "abandoned"),
        (2, "complete"),
        (4, "complete"),
    ]


def test_without_snapshots_records_say_nothing_of_them_and_how_far_they_are_behind_is_known(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.BACKUPS, tolerance=MiniBatch())
    one.rig.go(4)
    commits = one.rig.driver.commits
    assert commits.snapshots.described() == []
    durable = commits.durability(3, one.rig.driver.items)
    assert (durable.batch, durable.replay_batches, durable.replay_items) == (0, 3, 3 * ITEMS)
    assert durable.snapshot is None and durable.under_way is None
    newest = one.rig.driver.log.newest()
    assert newest is not None and "snapshots" not in newest.to_json()


@pytest.mark.parametrize("width", [80, 120])
def test_people_can_read_it(make_rig: MakeRig, width: int) -> None:
    one = LaggingRig(make_rig, Lag.BACKUPS, batches=8, tolerance=BarrierSnapshot(batches=2))
    one.rig.go(7)
    one.rig.hosts.lag = Lag.NOTHING
    one.rig.driver.commits.settle()
    one.rig.lose(0)
    one.rig.go()
    one.rig.driver.close()
    found = inspect(one.rig.checkpoint, segments=one.rig.segments)
    shown = Console(width=width)
    with shown.capture() as capture:
        shown.print(inspection(found, found.operators))
    text = capture.get()
    assert "…" not in text, "nothing is cut"
    headings = (" number  barrier  ", " loss or stop  failures  ", " batch  state   pane  ", "covered  cause")
    assert all(heading in text for heading in headings)
    assert "newest snapshot" in text and "number 3, batch 7" in text
    assert f"  2: barriers 4 to 6 skipped: {reasons.UNDER_WAY}" in text


def test_users_see_it_in_their_tests_and_in_every_batch() -> None:
    def pipeline(stream: af.Stream) -> af.StatefulStream:
        return stream.apply(af.WordCount(), name="counts", workers=2, tolerance=af.BarrierSnapshot(batches=2))

    with testing.run(pipeline, pa.schema([("value", pa.string())])) as query:
        progress = [query.batch({"value": ["to be", "or not"]}) for _ in range(4)]
        assert [entry["barrier"] for entry in query.snapshots()] == [0, 2]
        assert progress[1]["durable"]["batch"] == progress[1]["durable"]["snapshot"]["barrier"] == 0
        assert progress[1]["durable"]["replay_batches"] == 1 and progress[1]["durable"]["replay_items"] > 0
        query.restart_driver()
        # Nobody has looked for the workers yet.
        assert [(entry["barrier"], entry["stage"]) for entry in query.snapshots()] == [(0, "complete"), (2, "complete")]
