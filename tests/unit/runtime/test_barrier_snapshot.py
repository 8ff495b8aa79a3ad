"""Barrier snapshots in the engine: when they are taken, what waits for them, and which one a loss goes back to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from afspark.cluster.local.local_environment import LocalEnvironment
from afspark.errors import StoreNotWritable, UsageError
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.graph.stream_frame import StreamFrame
from afspark.numbers import Batch
from afspark.policies import BarrierSnapshot, MiniBatch, Nothing, Tolerance
from afspark.protocol.operator_config import OperatorConfig
from afspark.resident.spool import SPOOL, Spooled
from afspark.sources import Packets, Pushed
from afspark.store.base import not_writable
from afspark.store.local import LocalStore
from afspark.task.task_environment import TaskEnvironment
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig, WatchedEnvironment
from tests.unit.runtime.sparkless import Hurried, die
from tests.unit.runtime.test_graph import Counter

pytestmark = pytest.mark.some(3)

#: of a batch
ITEMS = 140
SCHEMA = pa.schema([("src", pa.int64())])


class HandClock(Hurried):
    """It is always the time that somebody has set."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


NO_FRAME: Any = None


def node(name: str, tolerance: Tolerance, origin: str = SOURCE) -> Node:
    return Node(name=name, operator=Counter(), inputs=(Edge(origin),), tolerance=tolerance)


@pytest.mark.parametrize(
    ("source", "other"),
    [
        (Pushed.of(SCHEMA, lanes=2), Nothing()),
        (StreamFrame(NO_FRAME, "it forgets"), MiniBatch()),
        (Packets(100), Nothing()),
    ],
    ids=["pushed, beside Nothing", "DataFrame", "beside Nothing"],
)
def test_what_cannot_be_replayed_is_refused(source: Any, other: Tolerance) -> None:
    nodes = (node("first", other), node("second", BarrierSnapshot()))
    with pytest.raises(UsageError) as caught:
        Pipeline(sources={SOURCE: source}, nodes=nodes)
    assert caught.value.fields == {"operator": "second"} and caught.value.remedy


def test_beside_others_it_is_welcome() -> None:
    assert Pipeline(
        sources={SOURCE: Packets(100)}, nodes=(node("a", MiniBatch()), node("b", BarrierSnapshot()))
    ).replayable


def taken(one: LaggingRig, batches: int) -> list[int]:
    """The newest durable batch after each of so many more batches."""
    found = []
    for _ in range(batches):
        one.rig.go(1)
        found.append(int(one.rig.driver.commits.records.covered.batch))
    return found


def test_everybody_waits_at_a_barrier_that_is_not_asynchronous(make_rig: MakeRig) -> None:
    """Without anybody's help no backup would ever reach the store."""
    one = LaggingRig(make_rig, Lag.BACKUPS, tolerance=BarrierSnapshot(batches=2, asynchronous=False))
    assert taken(one, 6) == [0, 0, 2, 2, 4, 4]
    one.rig.lose()
    one.rig.driver.ready()
    one.assert_as_calm()
    assert set(one.replayed().values()) == {1}


def test_nobody_waits_at_an_asynchronous_one(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.BACKUPS, tolerance=BarrierSnapshot(batches=2))
    assert taken(one, 6) == [0] * 6
    one.rig.lose()
    one.rig.driver.ready()
    one.assert_as_calm()
    assert set(one.replayed().values()) == {5}


def test_a_snapshot_that_reaches_the_store_at_once_counts_with_the_next_batch(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, batches=8, tolerance=BarrierSnapshot(batches=2))
    assert taken(one, 8) == [0, 0, 0, 2, 2, 4, 4, 6]


def test_between_barriers_nothing_is_written(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=BarrierSnapshot(batches=4))
    one.rig.go()
    assert {int(path.name.split("-")[2]) for path in one.rig.objects()} == {0, 4}


@pytest.mark.parametrize("lag", [Lag.RECORDS, Lag.BACKUPS])
def test_no_snapshot_is_begun_while_one_is_under_way(make_rig: MakeRig, lag: Lag) -> None:
    one = LaggingRig(make_rig, lag, batches=8, tolerance=BarrierSnapshot(batches=2))
    rig = one.rig
    rig.go(7)
    assert rig.driver.commits.pace.skipped == 3, "batches 4, 5 and 6"
    newest = rig.driver.commits.records.newest
    assert newest is not None and newest.batch == 2
    spooled = {path.name.split("-")[1] for folder in rig.segment_folders().values() for path in folder.glob("spool-*")}
    assert spooled == ({"2"} if lag is Lag.BACKUPS else set())
    rig.hosts.lag = Lag.NOTHING
    rig.driver.close()
    assert rig.driver.commits.records.covered.batch == 2, "what was begun is made durable in the end"


def test_barriers_by_time(make_rig: MakeRig) -> None:
    clock = HandClock()
    one = LaggingRig(make_rig, Lag.NOTHING, hosts={"clock": clock}, tolerance=BarrierSnapshot(interval=10.0))
    for clock.now in (100.0, 105.0, 109.0, 111.0, 120.0, 121.5):
        one.rig.go(1)
    assert {int(path.name.split("-")[2]) for path in one.rig.objects()} == {0, 3, 5}


def test_barriers_by_items(make_rig: MakeRig) -> None:
    """What the batch at work brings is not known when it begins: twice as many have come before the third one."""
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=BarrierSnapshot(items=2 * ITEMS))
    one.rig.go()
    assert one.rig.driver.items == 6 * ITEMS
    assert {int(path.name.split("-")[2]) for path in one.rig.objects()} == {0, 3}


@pytest.mark.parametrize("keyed", [False, True], ids=["local", "keyed"])
@pytest.mark.parametrize("late", [0, 1])
def test_a_snapshot_that_is_not_complete_is_never_used(make_rig: MakeRig, late: int, keyed: bool) -> None:
    """One worker's part of it is in the store, the other one's is not."""
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=BarrierSnapshot(batches=2), keyed=keyed)
    rig = one.rig

    class Stuck(WatchedEnvironment):
        def start_upload(self, config: OperatorConfig, worker: int) -> None:
            if worker != late:
                super().start_upload(config, worker)

    def environment(host: str) -> TaskEnvironment:
        return Stuck(name=host, log=rig.root / "applied", uploads=True)

    rig.hosts.on_host = environment
    rig.go(5)
    parts = {(int(path.name[:5]), int(path.name.split("-")[2])) for path in rig.objects()}
    assert (1 - late, 2) in parts and (late, 2) not in parts
    rig.lose(1 - late)
    rig.go()
    name = rig.run_of().name
    assert one.replayed() == {(name, 1 - late): 4}
    assert one.again() == {(name, 1 - late, batch) for batch in range(1, 5)}
    one.assert_as_calm()
    assert rig.counts() == one.truth


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("lag", list(Lag))
def test_full_recovery_takes_everybody_back(make_rig: MakeRig, lag: Lag, lost: int) -> None:
    one = LaggingRig(make_rig, lag, tolerance=BarrierSnapshot(batches=2, recovery="full"), keyed=True)
    rig = one.rig
    rig.go(4)
    rig.lose(lost)
    rig.go()
    name = rig.run_of().name
    covered = 0 if lag is Lag.BACKUPS else 2
    again = {(name, worker, batch) for worker in (0, 1) for batch in range(covered + 1, 4)}
    # The other one had applied the batch at work when the loss was found.
    assert one.again() == again | {(name, 1 - lost, 4)}
    assert one.replayed() == {(name, worker): 3 - covered for worker in (0, 1)}
    one.assert_as_calm()
    assert rig.delivered == list(range(6))


def test_one_that_goes_back_takes_the_others_of_the_pipeline(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.BACKUPS, tolerance=BarrierSnapshot(batches=3, recovery="full"))
    rig = one.rig
    rig.go(3)
    for worker in (0, 1, 0):
        rig.lose(worker)
        rig.go(1)
        assert [member.version for member in rig.members] == [rig.committed] * 2
    one.assert_as_calm()
    assert rig.members[0].version == Batch(5)


class TestStoreAway:
    """Sinks take three seconds a batch, and lost workers may have to repeat ten."""

    def lagging(self, make_rig: MakeRig, lag: Lag, tolerance: Tolerance) -> LaggingRig:
        self.clock = HandClock()
        hosts = {"clock": self.clock}
        return LaggingRig(make_rig, lag, hosts=hosts, batches=12, tolerance=tolerance, max_replay_seconds=10.0)

    def take(self, batch: int) -> None:
        self.clock.now += 3.0

    @pytest.mark.parametrize("lag", [Lag.RECORDS, Lag.BACKUPS])
    @pytest.mark.parametrize(
        # Whether a batch is a barrier is decided before it begins, when it is not late yet.
        ("tolerance", "first"),
        [(MiniBatch(), 4), (BarrierSnapshot(batches=1), 5)],
        ids=["minibatch", "snapshot"],
    )
    def test_batches_go_on_for_so_long_and_then_wait(
        self, make_rig: MakeRig, tolerance: Tolerance, first: int, lag: Lag
    ) -> None:
        one = self.lagging(make_rig, lag, tolerance)
        covered = []
        for _ in range(2 * first + 1):
            one.rig.go(1, deliver=self.take)
            covered.append(int(one.rig.driver.commits.records.covered.batch))
        assert covered == [0] * first + [first] * first + [2 * first]
        one.rig.lose()
        one.rig.driver.ready()
        one.assert_as_calm()

    @pytest.mark.parametrize("lost", [False, True], ids=["", "lost"])
    def test_a_store_that_refuses_stops_the_query_when_somebody_has_to_wait(
        self, make_rig: MakeRig, lost: bool
    ) -> None:
        one = self.lagging(make_rig, Lag.NOTHING, MiniBatch())
        rig = one.rig
        store = RefusingStore(str(rig.checkpoint))
        rig.checkpoint.mkdir()
        rig.open_store = lambda place: store
        rig.go(1, deliver=self.take)
        store.refuses = True
        with pytest.raises(StoreNotWritable):
            rig.go(deliver=self.take)
        assert rig.committed == 3, "ten seconds after the last record"
        store.refuses = False
        if lost:
            rig.lose()
        rig.start()
        rig.go()
        assert rig.counts() == one.truth and rig.bound() == 0
        one.assert_as_calm()
        assert len(rig.ledger) == 2 * lost

    def test_a_store_that_comes_back_in_time_is_not_noticed(self, make_rig: MakeRig) -> None:
        one = self.lagging(make_rig, Lag.NOTHING, MiniBatch())
        rig = one.rig
        store = RefusingStore(str(rig.checkpoint))
        rig.checkpoint.mkdir()
        rig.open_store = lambda place: store
        rig.go(1, deliver=self.take)
        store.refuses = True
        rig.go(3, deliver=self.take)
        store.refuses = False
        rig.go(deliver=self.take)
        assert rig.counts() == one.truth and rig.ledger == []
        assert rig.driver.commits.records.covered.batch >= 10
        rig.driver.close()
        assert rig.driver.commits.records.covered.batch == 11


@dataclass(frozen=True, kw_only=True)
class DiesUploading(LocalEnvironment):
    """The process of worker 0 is killed when half of its oldest backup is in the store, if there is a marker."""

    marker: Path

    def start_upload(self, config: OperatorConfig, worker: int) -> None:
        if worker == 0 and self.marker.exists():
            self.marker.unlink()
            file = min(self._directory(config, worker).glob(f"{SPOOL}*"))
            waiting = Spooled.parse(file.name)
            assert waiting is not None
            config.store.put(waiting.name, file.read_bytes()[: file.stat().st_size // 2])
            die()
        self.upload(config, worker)


def test_a_process_killed_in_an_upload_costs_nothing(make_rig: MakeRig, tmp_path: Path) -> None:
    """Whoever works on the state next writes the whole backup in its place, and only then a record names it."""
    marker = tmp_path / "marker"
    rig, truth = make_rig(batches=8, tolerance=BarrierSnapshot(batches=2), max_replay_seconds=1000.0)
    rig.hosts.on_host = lambda host: DiesUploading(name=host, marker=marker)
    rig.hosts.fork()
    rig.go(2)
    marker.touch()
    rig.go(4)
    assert not marker.exists() and rig.ledger == []
    assert rig.driver.commits.records.covered.batch >= 2
    rig.lose()
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0
    assert all(entry.recovery is not None and entry.recovery.covered for entry in rig.ledger)


class RefusingStore(LocalStore):
    """Takes no backups, or nothing else of which it is told a part of the name, while it ``refuses``."""

    refuses = False

    def __init__(self, root: str, what: str = "/objects/") -> None:
        super().__init__(root)
        self.what = what

    def standing(self, folder: str) -> RefusingStore:
        return self  # a test tells this one when it refuses

    def put(self, name: str, data: bytes) -> None:
        if self.refuses and self.what in name:
            raise not_writable(self.path, "out of order")
        super().put(name, data)
