"""Steps of a batch of pushed items: closed at once, confirmed when their backups are durable, whatever dies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from afspark.errors import StoreError
from afspark.model.operator import Operator
from afspark.model.state_label import StateLabel
from afspark.model.states import HashTable, StateSpec
from afspark.policies import ThresholdBackup
from afspark.protocol.fault_plan import FaultPhase, FaultPlan
from afspark.protocol.lifecycle import MOST_STEPS, Hint, Present
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.push.consumer.lane_client import Pulled
from afspark.push.wire.worker_messages import NO_BACKUP, Attached, BackupNumber
from afspark.resident import SegmentAddress, header, process_cache
from afspark.store import ObjectRef, Store, load_chain, open_store
from afspark.store.base import Names
from afspark.task.backup_writes import BackupWrites, StartWrite, threaded_write
from afspark.task.ingest import GivenPackets, Ingest
from afspark.task.intake import Intake
from afspark.task.lane_feed import LaneFeed
from afspark.task.step_progress import StepProgress
from afspark.task.unnamed_backups import find_unnamed
from tests.unit.runtime.environments import LaneClock, attend

A = "a/1"


class GatedStore(Store):
    """Backups wait until they are let through, or fail."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.gate = threading.Event()
        self.gate.set()
        self.begun = 0
        self.refuses = False
        self.refused: list[tuple[str, bytes]] = []

    @property
    def path(self) -> str:
        return self.inner.path

    def put(self, name: str, data: bytes) -> None:
        if b'"progress":null' in data:
            self.inner.put(name, data)
            return
        self.begun += 1
        self.gate.wait(20)
        if self.refuses:
            self.refused.append((name, data))
            raise StoreError("no")
        self.inner.put(name, data)

    def get(self, name: str) -> bytes:
        return self.inner.get(name)

    def list(self, prefix: str) -> Names:
        return self.inner.list(prefix)

    def delete(self, names: Any) -> None:
        self.inner.delete(names)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GatedStore]:
    gated = GatedStore(open_store(str(tmp_path / "store")))
    yield gated
    gated.gate.set()


def ref(name: str) -> ObjectRef:
    return ObjectRef.of(name, b"data", cells=1, full=False)


def test_a_backup_is_durable_when_it_is_written_and_not_before(store: GatedStore) -> None:
    writes = BackupWrites(store)
    store.gate.clear()
    writes.begin(ref("one"), b"data")
    assert not writes.wait(0.0)
    assert (writes.durable, writes.all) == ((), (ref("one"),))
    store.gate.set()
    assert writes.wait()
    assert writes.durable == writes.all == (ref("one"),)


def test_backups_are_written_one_after_the_other(store: GatedStore) -> None:
    writes = BackupWrites(store)
    for name in ("one", "two", "three"):
        writes.begin(ref(name), b"data")
        assert len(writes.durable) == len(writes.all) - 1
    writes.wait()
    assert [backup.name for backup in writes.durable] == ["one", "two", "three"]


def test_a_failed_write_is_raised_once_by_whoever_waits(store: GatedStore) -> None:
    writes = BackupWrites(store)
    store.refuses = True
    writes.begin(ref("one"), b"data")
    with pytest.raises(StoreError):
        writes.wait()
    assert writes.wait() and writes.durable == ()


# --- a worker -----------------------------------------------------------------------------------------------


class Tally(Operator):
    """Counts items by number."""

    def states(self) -> Mapping[str, StateSpec]:
        return {"seen": HashTable(key="int64", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["seen"].add(items.column("n"), 1)


@dataclass
class FakeLane:
    """Hands out ``portions``, one with each pull, and remembers what was confirmed. Its time are the empty pulls."""

    portions: Sequence[Sequence[int]]
    confirmed: int = 0
    empty: int = 0
    durable: BackupNumber = NO_BACKUP

    def attach(self, positions: Mapping[str, int] | None) -> Attached:
        self._confirm(positions or {})
        return Attached({A: self.confirmed} if self.confirmed else {}, self.durable)

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
        self._confirm(confirmed)
        self.durable = max(self.durable, durable)
        start = 0
        for portion in self.portions:
            if start >= after.get(A, 0):
                return [Pulled(A, start, pa.record_batch({"n": pa.array(portion, pa.int64())}), False)]
            start += len(portion)
        self.empty += 1
        return []

    def stop_logging(self, positions: Mapping[str, int]) -> bool:
        return False

    def _confirm(self, positions: Mapping[str, int]) -> None:
        self.confirmed = max(self.confirmed, positions.get(A, 0))


class Died(BaseException):
    """Nobody handles it."""


@dataclass
class Bench:
    """One worker and its lane."""

    store: GatedStore
    place: Path
    exact: bool = True
    feed: type[LaneFeed] = LaneFeed
    writes: StartWrite = threaded_write

    @property
    def config(self) -> OperatorConfig:
        return OperatorConfig(
            query_id="q",
            fingerprint="f",
            operator_name="tally",
            workers=1,
            checkpoint="",
            store=self.store,
            epoch="00000001-0123456789abcdef",
            segments=None,
            emit=False,
            faults=FaultPlan(),
            pushed=True,
            exact=self.exact,
        )

    def request(self, **changes: Any) -> TaskRequest:
        request = TaskRequest(
            worker=0,
            batch=1,
            incarnation=1,
            hint=Hint.CREATE,
            fence=0,
            home="a",
            backup=ThresholdBackup(theta={"seen": 0.0}),
        )
        return replace(request, **changes)

    def run(
        self,
        lane: FakeLane,
        *,
        probe: Callable[[FaultPhase], None] = lambda phase: None,
        **changes: Any,
    ) -> TaskReport:
        def ingest(packets: Any) -> Ingest:
            return Ingest(GivenPackets(packets), ())

        feed = self.feed("", Intake(lane, seconds=3, clock=LaneClock(lane)), ingest, start={})
        request = self.request(**changes)
        return attend(self.config, request, Tally(), feed, SegmentAddress(self.place), "a", probe, self.writes)

    def restored(self, backups: Sequence[ObjectRef]) -> dict[int, int]:
        """What a host that has lost its state would find."""
        counts: dict[int, int] = {}
        for image in load_chain(self.store, _from_last_full(backups)).images.get(StateLabel("seen"), ()):
            counts |= dict(zip(image.column("key").to_pylist(), image.column("value").to_pylist(), strict=True))
        return counts


def _from_last_full(backups: Sequence[ObjectRef]) -> list[ObjectRef]:
    last = max((place for place, backup in enumerate(backups) if backup.full), default=0)
    return list(backups[last:])


@pytest.fixture
def bench(store: GatedStore, tmp_path: Path) -> Iterator[Bench]:
    yield Bench(store, tmp_path / "segments" / "q" / "tally-0")
    process_cache().clear()


def test_the_next_portion_is_applied_while_a_backup_is_written(bench: Bench) -> None:
    """The second portion is in the state before the first backup ends; neither is confirmed before that."""
    lane = FakeLane([[1, 2], [3]])
    applied = 0

    def probe(phase: FaultPhase) -> None:
        nonlocal applied
        if phase is FaultPhase.APPLYING:
            applied += 1
            if applied == 3:
                # After the items and the end of the first step: the second one is at work.
                assert bench.store.begun == 1 and lane.confirmed == 0
                bench.store.gate.set()

    bench.store.gate.clear()
    report = bench.run(lane, probe=probe)
    assert report.status is Status.APPLIED
    assert report.positions == {A: 3}
    assert bench.restored(report.backups) == {1: 1, 2: 1, 3: 1}
    # Confirmed within the batch, because the backups were durable by then.
    assert lane.confirmed == 3


@pytest.mark.parametrize("landed", [True, False], ids=["written after all", "never written"])
def test_a_process_that_dies_while_a_backup_is_written_leaves_nothing_unsure(bench: Bench, landed: bool) -> None:
    """Its successor makes durable what the state takes for durable, before it confirms anything."""
    lane = FakeLane([[1, 2], [3]])

    def die(phase: FaultPhase) -> None:
        if phase is FaultPhase.APPLYING and bench.store.begun and lane.confirmed == 0 and not bench.store.gate.is_set():
            # Whoever dies leaves the write to its fate.
            threading.Timer(0.3, bench.store.gate.set).start()
            raise Died

    bench.store.gate.clear()
    bench.store.refuses = not landed
    with pytest.raises(Died):
        bench.run(lane, probe=die)
    process_cache().clear()
    bench.store.refuses = False
    assert lane.confirmed == 0
    report = bench.run(lane, hint=Hint.RESUME)
    # A batch that was under way takes nothing more.
    assert report.status is Status.APPLIED and report.positions == {A: 2}
    assert report.backups[0].full
    assert bench.restored(report.backups) == {1: 1, 2: 1}


def test_a_store_that_fails_fails_the_batch_and_confirms_nothing(bench: Bench) -> None:
    lane = FakeLane([[1, 2], [3]])
    bench.store.refuses = True
    report = bench.run(lane)
    assert report.status is Status.FAILED
    assert lane.confirmed == 0
    bench.store.refuses = False
    again = bench.run(lane, hint=Hint.RESUME)
    # The first step was closed or taken back, as it happened.
    assert again.positions is not None
    assert bench.restored(again.backups) == dict.fromkeys(range(1, again.positions[A] + 1), 1)


def test_a_lost_host_goes_on_from_the_last_durable_step_and_gets_the_rest_again(bench: Bench) -> None:
    """The lane keeps what was not confirmed; what was confirmed is in a backup."""
    lane = FakeLane([[1, 2], [3], [4, 5]])
    steps = 0

    def die(phase: FaultPhase) -> None:
        nonlocal steps
        steps += phase is FaultPhase.BACKING_UP
        if steps == 2:
            raise Died

    with pytest.raises(Died):
        bench.run(lane, probe=die)
    process_cache().clear()
    request = bench.request(hint=Hint.RECOVER, incarnation=2)
    found = find_unnamed(bench.config, request).progress
    assert found is not None and lane.confirmed <= found.positions[A]
    report = bench.run(lane, hint=Hint.RECOVER, incarnation=2)
    assert report.positions == {A: 5}
    assert bench.restored(report.backups) == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1}


def test_a_batch_ends_before_its_steps_can_no_longer_be_counted(bench: Bench) -> None:
    lane = FakeLane([[1, 2], [3], [4, 5]])
    steps = 0

    def almost_all_steps(phase: FaultPhase) -> None:
        nonlocal steps
        steps += phase is FaultPhase.BACKING_UP
        if steps == 1 and phase is FaultPhase.BACKING_UP:
            with (bench.place / header.HEADER).open("r+b") as file:
                slots = header.map_header(file.fileno())
                assert slots[header.SLOT_WORD] == header.pack(0, True)
                slots[header.SLOT_WORD] = header.pack(0, True, MOST_STEPS - 1)

    report = bench.run(lane, probe=almost_all_steps)
    assert report.status is Status.APPLIED and report.positions == {A: 3}
    found = header.examine(bench.place)
    assert isinstance(found, Present) and (found.version, found.marked) == (1, False)
    assert bench.restored(report.backups) == {1: 1, 2: 1, 3: 1}


def test_a_note_tells_whether_a_backup_was_under_way() -> None:
    for progress in (StepProgress(positions={A: 3}, writing=True), StepProgress(positions={A: 3})):
        assert StepProgress.from_text(progress.to_text()) == progress
