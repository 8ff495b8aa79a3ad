"""Pushed items that are kept until a record covers them: which batch had which, and what is applied again."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import afspark as af
from afspark.cluster.local.local_cluster import LocalCluster
from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.receivers.past_positions import PastPositions
from afspark.coordinator.receivers.receivers import recorded_lanes
from afspark.coordinator.run_options import RunOptions
from afspark.coordinator.told_bounds import told
from afspark.errors import CheckpointError, SegmentError, UsageError
from afspark.graph.graph import Graph
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.graph.rewrites import rewritten
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Nothing, Tolerance, UpstreamBackup
from afspark.push.consumer.lane_client import Pulled
from afspark.push.producer.producer import Producer
from afspark.push.wire.worker_messages import NO_BACKUP, Attached, BackupNumber
from afspark.resident import process_cache
from afspark.sources import Pushed
from afspark.store import claim, open_store
from afspark.store.itemlosses import Gap
from afspark.store.naming import FOLDER
from afspark.store.position_log import POSITIONS, BatchEnd, PositionLog
from afspark.task.intake import RESEND_SECONDS, Intake, LaneAway, Start
from afspark.task.step_progress import StepProgress

A, B, START = "a/1", "b/1", "/00000001"
SCHEMA = pa.schema([("n", pa.int64())])


# --- where batches ended ------------------------------------------------------------------------------------


def ends(**positions: int) -> dict[str, dict[int, dict[str, int]]]:
    return {"": {0: {f"{name}/1": end for name, end in positions.items()}}}


def test_a_batch_that_has_ended_is_what_lies_between_its_ends() -> None:
    past = PastPositions()
    past.begin(4, ends(a=10), {})
    past.note(5, BatchEnd(ends(a=12, b=3)))
    past.note(6, BatchEnd(ends(a=12, b=9)))
    assert past.span("", 0, 5) == ({A: 10}, {A: 12, B: 3})
    assert past.span("", 0, 6) == ({A: 12, B: 3}, {A: 12, B: 9})
    assert past.span("", 0, 7) is None, "it has not ended"
    assert past.released == ends(a=10)
    past.release(5)
    assert past.released == ends(a=12, b=3)
    assert past.span("", 0, 6) == ({A: 12, B: 3}, {A: 12, B: 9})


def test_sessions_that_were_over_when_a_driver_died_are_not_listed_again() -> None:
    """The record still has them; the last batch has counted them instead."""
    past = PastPositions()
    newest = {"": {0: {B: 5, START: 2}}}
    past.begin(4, {"": {0: {A: 10, B: 3, START: 0}}}, {5: BatchEnd(ends(a=10, b=5)), 6: BatchEnd(newest)})
    assert past.released == {"": {0: {B: 3, START: 2}}}


def test_the_newest_driver_says_where_a_batch_ended(tmp_path: Path) -> None:
    log = PositionLog(open_store(str(tmp_path)))
    log.write(3, "00000002-00000000000000bb", BatchEnd(ends(a=7)))
    log.write(3, "00000001-00000000000000aa", BatchEnd(ends(a=5)))
    log.write(4, "00000001-00000000000000aa", BatchEnd(ends(a=9)))
    assert log.read(3, 4) == {3: BatchEnd(ends(a=7)), 4: BatchEnd(ends(a=9))}
    (tmp_path / POSITIONS / "000000000004" / "00000001-00000000000000aa").write_bytes(b"rot")
    assert log.read(3, 4) == {3: BatchEnd(ends(a=7))}


def test_positions_that_nobody_needs_are_deleted_when_enough_have_gathered(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    log = PositionLog(store)
    for batch in range(64):
        log.write(batch, "00000001-00000000000000aa", BatchEnd(ends(a=batch)))
        log.prune(before=60 if batch else 0)
    assert len(store.list(POSITIONS)) == 64, "the first look found nothing"
    log.write(64, "00000001-00000000000000aa", BatchEnd(ends(a=64)))
    log.prune(before=60)
    assert sorted(log.read(0, 64)) == [60, 61, 62, 63, 64]
    PositionLog(store).prune(before=62)
    assert sorted(log.read(0, 64)) == [62, 63, 64], "a driver that is started often prunes as well"


# --- what a lost worker is given again ----------------------------------------------------------------------


@dataclass
class ManualClock:
    now: float = 0.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class KeptLane:
    """Holds entries (producer, first, rows) and says what was confirmed. Empty pulls take their time."""

    clock: ManualClock
    entries: list[tuple[str, int, int]]
    #: entries that are sent again at these times
    later: dict[float, tuple[str, int, int]] = field(default_factory=dict)
    away: bool = False
    confirmed: list[Mapping[str, int]] = field(default_factory=list)

    def attach(self, positions: Mapping[str, int] | None) -> Attached:
        if self.away:
            raise LaneAway
        self.confirmed.append(dict(positions or {}))
        return Attached(dict(positions or {}))

    def pull(
        self,
        after: Mapping[str, int],
        confirmed: Mapping[str, int],
        durable: BackupNumber,
        *,
        size: int,
        wait: float,
        until: Mapping[str, int] | None = None,
    ) -> Sequence[Pulled]:
        assert durable == NO_BACKUP
        self.confirmed.append(dict(confirmed))
        for at in [at for at in self.later if at <= self.clock.now]:
            self.entries.append(self.later.pop(at))
        assert until is not None
        found = [
            (name, first, rows)
            for name, first, rows in self.entries
            if first + rows > (at := after.get(name, 0)) and (max(first, at) if rows else at) < until.get(name, 0)
        ]
        if not found:
            self.clock.now += wait
        return [
            Pulled(name, first, pa.record_batch({"n": range(first, first + rows)}, schema=SCHEMA), False)
            if rows
            else Pulled(name, first, None, False, mark=True)
            for name, first, rows in found[:1]
        ]

    def stop_logging(self, positions: Mapping[str, int]) -> bool:
        raise AssertionError("nothing is closed in steps")


def taken(
    lane: KeptLane, start: Mapping[str, int], until: Mapping[str, int], gone: Sequence[Gap] = ()
) -> tuple[list[tuple[str, int]], Intake]:
    """What a batch that is applied once more gets."""
    intake = Intake(lane, seconds=1.0, clock=lane.clock, released={A: 2}, until=until, gone=gone)
    intake.resume(StepProgress(positions=start), Start(durable=BackupNumber(5, -1, 0)))
    got: list[tuple[str, int]] = []
    while (portion := intake.portion()) is not None:
        for batch, (producer, _) in zip(portion.items, portion.origins, strict=True):
            got += [(producer, number) for number in batch.column(0).to_pylist()]
    return got, intake


def test_a_batch_that_is_applied_again_gets_its_own_items_only() -> None:
    """Entries may be cut elsewhere than they were; nothing but what a record covers is released."""
    lane = KeptLane(ManualClock(), [(A, 2, 5), (B, 0, 9), (A, 7, 4)])
    got, intake = taken(lane, {A: 4}, {A: 8, B: 3, START: 1})
    assert got == [(A, 4), (A, 5), (A, 6), (B, 0), (B, 1), (B, 2), (A, 7)]
    assert intake.positions == {A: 8, B: 3, START: 1}
    assert (intake.unsent, intake.gaps) == ((), ())
    assert {json.dumps(one) for one in lane.confirmed} == {json.dumps({A: 2})}


def test_it_waits_for_what_has_to_be_sent_again() -> None:
    lane = KeptLane(ManualClock(), [], later={RESEND_SECONDS - 1: (A, 4, 2), 2 * RESEND_SECONDS - 3: (A, 6, 2)})
    got, intake = taken(lane, {A: 4}, {A: 8})
    assert [number for _, number in got] == [4, 5, 6, 7]
    assert intake.unsent == ()


def test_what_nobody_sends_again_is_told() -> None:
    lane = KeptLane(ManualClock(), [(A, 4, 2)])
    got, intake = taken(lane, {A: 4}, {A: 8, B: 1})
    assert [number for _, number in got] == [4, 5]
    assert intake.unsent == (Gap(A, 6, 8), Gap(B, 0, 1))
    assert intake.unsent[0].described == f"items 6 to 7 of {A}"
    assert intake.positions == {A: 8, B: 1}
    assert RESEND_SECONDS <= lane.clock.now < RESEND_SECONDS + 1


@pytest.mark.parametrize("mark", [6, 20], ids=["within the batch", "beyond it"])
def test_what_was_acknowledged_since_is_told_without_waiting(mark: int) -> None:
    """A driver may have to go back behind a record that it cannot read, which had covered the items."""
    lane = KeptLane(ManualClock(), [(A, mark, 0), (A, mark, 2)])
    got, intake = taken(lane, {A: 4}, {A: 8})
    assert [number for _, number in got] == ([6, 7] if mark == 6 else [])
    assert intake.unsent == (Gap(A, 4, min(mark, 8)),)
    assert (intake.gaps, intake.positions, lane.clock.now) == ((), {A: 8}, 0.0)


@pytest.mark.parametrize("entries", [[(A, 4, 1), (A, 7, 1)], [(A, 4, 1), (A, 7, 0), (A, 7, 1)]], ids=["", "marked"])
def test_what_was_gone_when_the_batch_was_applied_first_is_not_told_again(entries: list[tuple[str, int, int]]) -> None:
    """A receiver of an earlier tolerance had acknowledged it, and died with it: such a loss is counted."""
    lane = KeptLane(ManualClock(), entries)
    got, intake = taken(lane, {A: 4}, {A: 8, B: 2}, gone=[Gap(A, 5, 7), Gap(B, 0, 2)])
    assert [number for _, number in got] == [4, 7]
    assert (intake.unsent, intake.gaps, intake.positions, lane.clock.now) == ((), (), {A: 8, B: 2}, 0.0)


def test_what_is_gone_beyond_that_is_told() -> None:
    lane = KeptLane(ManualClock(), [(A, 8, 2)])
    got, intake = taken(lane, {A: 4}, {A: 10}, gone=[Gap(A, 5, 7)])
    assert [number for _, number in got] == [8, 9]
    assert intake.unsent == (Gap(A, 4, 5), Gap(A, 7, 8))


def test_what_was_gone_is_known_to_every_driver(tmp_path: Path) -> None:
    log, gaps = PositionLog(open_store(str(tmp_path))), {"": {0: (Gap(A, 5, 7),)}}
    log.write(5, "00000001-00000000000000aa", BatchEnd(ends(a=8), gaps=gaps))
    past = PastPositions()
    past.begin(4, ends(a=4), log.read(5, 5))
    assert past.gaps_of("", 0, 5) == (Gap(A, 5, 7),)
    assert past.gaps_of("", 1, 5) == past.gaps_of("", 0, 4) == ()
    past.note(6, BatchEnd(ends(a=9)))
    past.release(6)
    assert past.gaps_of("", 0, 5) == ()


def test_a_receiver_that_is_away_is_no_reason_to_give_items_up() -> None:
    with pytest.raises(SegmentError, match="does not answer"):
        taken(KeptLane(ManualClock(), [], away=True), {A: 4}, {A: 8})


# --- what is asked for, and what is refused -----------------------------------------------------------------


class Count(af.Operator):
    key = ("n",)
    alpha = 1.0

    def states(self) -> dict[str, Any]:
        return {"count": af.HashTable(key="int64", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["count"].add(items.column("n"), 1)


class Odd(Count):
    """Adds another number every time."""

    drawn = itertools.count(1)

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["count"].add(items.column("n"), next(self.drawn))


def node(name: str, tolerance: Tolerance, *origins: str, **settings: Any) -> Node:
    inputs = tuple(Edge(origin) for origin in origins or (SOURCE,))
    return Node(
        name=name, operator=settings.pop("operator", Count()), inputs=inputs, workers=1, tolerance=tolerance, **settings
    )


def piped(*nodes: Node, sources: tuple[str, ...] = (SOURCE,), **settings: Any) -> Pipeline:
    pushed = {name: Pushed.of(SCHEMA, lanes=1, tick_seconds=0.05, **settings) for name in sources}
    return rewritten(Graph(sources=pushed, nodes=nodes))


@pytest.mark.parametrize(
    ("tolerances", "expected"),
    [
        ([BarrierSnapshot()], (0.0, math.inf, True, False)),
        ([BarrierSnapshot(unacked=40)], (0.0, 40.0, True, False)),
        ([BarrierSnapshot(log_items=True)], (0.0, math.inf, False, True)),
        ([BarrierSnapshot(), MiniBatch(unacked=8)], (0.0, 8.0, True, False)),
        ([BarrierSnapshot(), Approximate(9, items=80, unacked=math.inf)], (0.0, math.inf, True, False)),
    ],
    ids=str,
)
def test_one_reader_with_snapshots_has_items_kept(
    tolerances: list[Tolerance], expected: tuple[float, float, bool, bool]
) -> None:
    pipeline = piped(*(node(f"n{number}", one, keyed=True) for number, one in enumerate(tolerances)))
    assert pipeline.retained == {SOURCE} and pipeline.replayable
    limits = pipeline.item_limits(pipeline.node("relay"))
    assert (limits.items, limits.unacked, limits.keeps_upstream, limits.logs_first) == expected


def test_a_source_whose_items_nobody_keeps_is_refused() -> None:
    snapshots, other = node("first", BarrierSnapshot(), "a"), node("second", UpstreamBackup(), "b")
    with pytest.raises(UsageError, match=r"'first' asks for barrier snapshots.* pushed source"):
        piped(snapshots, other, sources=("a", "b"))
    with pytest.raises(UsageError, match=r"'n0' asks for barrier snapshots.*Give 'n1'"):
        piped(node("n0", BarrierSnapshot()), node("n1", Nothing()))
    assert piped(node("first", UpstreamBackup())).retained == frozenset()


# --- a query ------------------------------------------------------------------------------------------------


class Query:
    """Batches of a query whose receiver and producers are real."""

    def __init__(
        self, folder: Path, tolerance: Tolerance, *, operator: af.Operator | None = None, **source: Any
    ) -> None:
        self.store = open_store(str(folder / "checkpoint"))
        pipeline = piped(node("count", tolerance, operator=operator or Count()), **source)
        options = RunOptions(
            checkpoint=str(folder / "checkpoint"), segments=str(folder / "segments"), takeover=True, lease_seconds=0.0
        )
        identity = claim(self.store.below(FOLDER), pipeline.fingerprint(), pipeline.settings())
        self.engine = Coordinator(LocalCluster({"a": 1}), pipeline, options, identity, self.store)
        self.engine.receivers.open(recorded_lanes(self.engine.store))

    @property
    def address(self) -> str:
        return self.engine.receivers.addresses()[0]

    def batch(self, number: int) -> None:
        head = json.dumps({"batchTimestampMs": 1000})
        self.store.put(f"offsets/{number}", f"v1\n{head}\n{json.dumps({'chunks': number + 1})}".encode())
        self.engine.run(number, None, lambda batch: None)
        self.store.put(f"commits/{number}", b"v1\n{}")

    def close(self) -> None:
        self.engine.receivers.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    process_cache().clear()


def test_a_full_lane_calls_for_a_barrier(place: Path) -> None:
    """Nothing is released without a barrier, and none is due for hours: a producer must not wait for ever."""
    query = Query(place, BarrierSnapshot(interval=3600.0), buffer_bytes=20_000)
    rows = [pa.record_batch({"n": [number] * 200}, schema=SCHEMA) for number in range(60)]
    producer = Producer(query.address, "eager", SCHEMA)
    thread = threading.Thread(target=lambda: [producer.send(batch) for batch in rows], daemon=True)
    thread.start()
    barriers = 0
    for number in range(200):
        query.batch(number)
        barriers += query.engine.commits.pace.barrier
        if query.engine.items == 200 * len(rows):
            break
    assert query.engine.items == 200 * len(rows), "producers wait, and nothing is released"
    assert barriers > 3
    producer.abort()
    thread.join()
    query.close()


@pytest.mark.parametrize("lost", [False, True], ids=["survives", "lost"])
def test_another_policy_is_refused_as_long_as_batches_have_to_be_applied_again(place: Path, lost: bool) -> None:
    """Whoever is refused leaves nothing behind: started as it was, the query is exact, and no more is told."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    first = Query(place, BarrierSnapshot(batches=100), port=port)
    producer = Producer(first.address, "one", SCHEMA, give_up=60)
    producer.send(pa.record_batch({"n": [1, 2, 3]}, schema=SCHEMA))
    for number in range(3):
        first.batch(number)
    first.close()
    if lost:
        shutil.rmtree(place / "segments")
        process_cache().clear()
    second = Query(place, UpstreamBackup(), port=port)
    with pytest.raises(CheckpointError, match="Batches 1 to 2 of pushed items are covered by no record"):
        second.batch(3)
    second.close()
    assert not second.engine.ledger.entries()
    third = Query(place, BarrierSnapshot(batches=100), port=port)
    third.batch(3)
    producer.abort()
    third.close()
    assert third.engine.items == 3
    assert told(third.engine.operator("count"))["count"] == 0


def test_a_driver_that_cannot_read_where_a_batch_ended_stops(place: Path) -> None:
    first = Query(place, BarrierSnapshot(batches=100))
    for number in range(3):
        first.batch(number)
    first.close()
    (ended,) = (place / "checkpoint" / FOLDER / POSITIONS / "000000000002").iterdir()
    away = ended.rename(place / "away")
    second = Query(place, BarrierSnapshot(batches=100))
    with pytest.raises(CheckpointError, match="Where batch 2 of pushed items ended cannot be read"):
        second.batch(3)
    second.close()
    away.rename(ended)
    third = Query(place, BarrierSnapshot(batches=100))
    third.batch(3)
    third.close()
    assert told(third.engine.operator("count"))["count"] == 0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("operator", [Count(), Odd()], ids=lambda one: type(one).__name__)
def test_what_batches_did_after_the_last_record_is_known_when_driver_and_workers_are_gone(
    place: Path, operator: af.Operator
) -> None:
    port = free_port()
    first = Query(place, BarrierSnapshot(batches=100), operator=operator, port=port)
    producer = Producer(first.address, "one", SCHEMA, give_up=60)
    for number in range(3):
        producer.send(pa.record_batch({"n": [number] * 5}, schema=SCHEMA))
        first.batch(number)
    first.close()
    shutil.rmtree(place / "segments")
    process_cache().clear()
    second = Query(place, BarrierSnapshot(batches=100), operator=operator, port=port)
    second.batch(3)
    producer.abort()
    second.close()
    recoveries = [one.recovery for one in second.engine.ledger.entries() if one.recovery]
    assert max(one.replayed for one in recoveries) == 2
    assert told(second.engine.operator("count"))["count"] == (math.inf if isinstance(operator, Odd) else 0)


def test_positions_without_effects_can_be_read(tmp_path: Path) -> None:
    """A release that did not know of effects has written them."""
    log = PositionLog(open_store(str(tmp_path)))
    log.put(3, "00000001-00000000000000aa", {"lanes": {"": {"0": {A: 7}}}})
    assert log.read(3, 3) == {3: BatchEnd({"": {0: {A: 7}}})}


def test_items_that_an_unreadable_record_had_covered_are_told(place: Path) -> None:
    """A driver has to go back to the record before; the receivers have forgotten what came between the two."""
    port = free_port()
    first = Query(place, BarrierSnapshot(batches=2), port=port)
    producer = Producer(first.address, "one", SCHEMA, give_up=60)
    for number in range(7):
        producer.send(pa.record_batch({"n": [number] * 5}, schema=SCHEMA))
        first.batch(number)
    newest = max((place / "checkpoint" / FOLDER).glob("epochs/*/records/*"))
    first.close()
    newest.write_bytes(b"rot")
    shutil.rmtree(place / "segments")
    process_cache().clear()
    second = Query(place, BarrierSnapshot(batches=2), port=port)
    for number in range(7, 10):
        second.batch(number)
    producer.abort()
    second.close()
    assert told(second.engine.operator("count"))["count"] == math.inf
    gone = [name for one in second.engine.ledger.entries() if one.recovery for name in one.recovery.damaged]
    assert any(name.startswith("items ") for name in gone), gone
