"""Bad items of a pushed stream: durable elsewhere before they are confirmed, each once, whatever dies meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from afspark.errors import OperatorFailed, StoreError
from afspark.model.operator import Operator
from afspark.model.state_label import StateLabel
from afspark.model.states import HashTable, StateSpec
from afspark.policies import ThresholdBackup
from afspark.protocol.bad_items import BadRules
from afspark.protocol.fault_plan import FaultPhase, FaultPlan
from afspark.protocol.lifecycle import Hint
from afspark.protocol.losses import CountedLoss
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident import SegmentAddress, process_cache
from afspark.store import Store, load_chain, open_store
from afspark.store.quarantine import BadItem, Quarantine
from afspark.task.ingest import GivenPackets, Ingest
from afspark.task.intake import Intake
from afspark.task.lane_feed import LaneFeed
from tests.unit.runtime.environments import LaneClock, attend
from tests.unit.runtime.test_steps import A, Died, FakeLane, _from_last_full

pytestmark = pytest.mark.some(3)

PORTIONS = [[1, 2, 13, 3], [4, 5, 6], [26, 39], [7, 13, 8, 9]]
GOOD = dict.fromkeys(range(1, 10), 1)
#: number of the item -> what it is
POISON = {2: 13, 7: 26, 8: 39, 10: 13}


class Superstitious(Operator):
    """Counts numbers, in no order, and cannot take multiples of 13."""

    key = ("n",)

    def __init__(self) -> None:
        self.waiting: list[int] = []

    def states(self) -> Mapping[str, StateSpec]:
        return {"seen": HashTable(key="int64", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        self.waiting += items.column("n").to_pylist()

    def finish(self, states: Mapping[str, Any]) -> None:
        for number in self.waiting:
            states["seen"].add([number], 1)
            if number % 13 == 0:
                raise ValueError(f"{number} is unlucky")
        self.waiting.clear()


@dataclass
class Worker:
    """One worker of a pushed stream; its host can be lost."""

    store: Store
    place: Path
    on_bad: Any = "skip"
    #: keeps what it makes for others until the batch ends, so that steps cannot be closed
    emit: bool = False
    #: nothing may be lost; else what is may be, and with a threshold of 0 that is nothing either
    exact: bool = True
    lane: FakeLane = field(default_factory=lambda: FakeLane(PORTIONS))
    incarnation: int = 1

    def run(self, probe: Callable[[FaultPhase], None] = lambda phase: None, room: int = 1 << 20) -> TaskReport:
        config = OperatorConfig(
            query_id="q",
            fingerprint="f",
            operator_name="tally",
            workers=1,
            checkpoint="",
            store=self.store,
            epoch="00000001-0123456789abcdef",
            segments=None,
            emit=self.emit,
            faults=FaultPlan(),
            pushed=True,
            exact=self.exact,
            bad=BadRules(choices={"": self.on_bad}),
            pristine=cloudpickle.dumps(Superstitious()),  # type: ignore[no-untyped-call]
        )
        request = TaskRequest(
            worker=0,
            batch=1,
            incarnation=self.incarnation,
            hint=Hint.CREATE if self.incarnation == 1 else Hint.RECOVER,
            fence=0,
            home="a",
            backup=ThresholdBackup(theta={"seen": 0.0}),
            quarantine_room=room,
            counts=True,
            counted=dict.fromkeys(range(1, self.incarnation), CountedLoss()),
        )

        def ingest(packets: Any) -> Ingest:
            return Ingest(GivenPackets(packets), ())

        intake = Intake(self.lane, seconds=3, clock=LaneClock(self.lane))
        feed = LaneFeed("", intake, ingest, start={})
        return attend(config, request, Superstitious(), feed, SegmentAddress(self.place), "a", probe)

    def lose_host(self) -> None:
        process_cache().clear()
        shutil.rmtree(self.place, ignore_errors=True)
        self.incarnation += 1

    def quarantine(self, report: TaskReport) -> list[BadItem]:
        """What the driver would find after it has noted the batch."""
        kept = Quarantine(self.store)
        kept.note(1, [("tally", 0, bad) for bad in report.bad])
        return kept.items()

    def counts(self, report: TaskReport) -> dict[int, int]:
        found: dict[int, int] = {}
        for image in load_chain(self.store, _from_last_full(report.backups)).images.get(StateLabel("seen"), ()):
            found |= dict(zip(image.column("key").to_pylist(), image.column("value").to_pylist(), strict=True))
        return found

    def check(self, report: TaskReport) -> None:
        assert report.status is Status.APPLIED
        assert report.positions is not None
        taken = report.positions[A]
        sent = [number for portion in PORTIONS for number in portion][:taken]
        assert self.counts(report) == {number: 1 for number in sent if number % 13}
        kept = self.quarantine(report)
        assert [(item.producer, item.number, item.row["n"]) for item in kept] == [
            (A, at, number) for at, number in enumerate(sent) if number % 13 == 0
        ]
        assert sum(bad.items for bad in report.bad) == len(kept)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    made = 0

    def worker(**settings: Any) -> Worker:
        nonlocal made
        made += 1
        process_cache().clear()
        store = open_store(str(tmp_path / f"store{made}"))
        return Worker(store, tmp_path / f"segments{made}" / "q" / "tally-0", **settings)

    yield worker
    process_cache().clear()


@pytest.mark.parametrize("emit", [False, True], ids=["steps", "one step"])
def test_good_items_are_counted_once_and_bad_ones_are_kept_with_their_numbers(
    make: Callable[..., Worker], emit: bool
) -> None:
    worker = make(emit=emit)
    report = worker.run()
    assert report.positions == {A: 13}
    worker.check(report)
    assert {item.number: item.row["n"] for item in worker.quarantine(report)} == POISON
    assert all(item.error == f"ValueError: {item.row['n']} is unlucky" for item in worker.quarantine(report))
    assert worker.counts(report) == GOOD


@pytest.mark.some(3)
@pytest.mark.parametrize("host", [False, True], ids=["process", "host"])
@pytest.mark.parametrize(
    ("emit", "exact"), [(False, True), (False, False), (True, True)], ids=["steps", "approximate steps", "one step"]
)
def test_whatever_dies_at_whichever_moment_each_item_counts_once(
    make: Callable[..., Worker], emit: bool, exact: bool, host: bool
) -> None:
    for moment in count():
        worker = make(emit=emit, exact=exact)
        left = moment

        def die(phase: FaultPhase) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Died

        try:
            report = worker.run(probe=die)
        except Died:
            if host:
                worker.lose_host()
            process_cache().clear()
            report = worker.run()
        worker.check(report)
        if left > 0:
            break
    assert moment > 20


def test_an_item_is_not_confirmed_before_it_is_durable_in_quarantine(make: Callable[..., Worker]) -> None:
    worker = make()
    put = worker.store.put

    def refuse(name: str, data: bytes) -> None:
        if name.startswith("quarantine"):
            # Nothing of the portion that holds the bad item was confirmed.
            assert worker.lane.confirmed == 0
            raise StoreError("no")
        put(name, data)

    worker.store.put = refuse  # type: ignore[method-assign]
    report = worker.run()
    assert report.status is Status.FAILED and isinstance(report.error, StoreError)
    assert worker.lane.confirmed == 0
    del worker.store.put  # type: ignore[method-assign]
    worker.check(worker.run())


def test_a_bad_item_that_stops_the_query_is_named_by_producer_and_number(make: Callable[..., Worker]) -> None:
    worker = make(on_bad="stop")
    report = worker.run()
    assert report.status is Status.FAILED
    error = report.error
    assert isinstance(error, OperatorFailed)
    assert (error.producer, error.number, error.row) == (A, 2, "{'n': 13}")
    assert f"item 2 of producer '{A}'" in str(error)
    # What the user chooses instead at the next start applies to the same item.
    worker.on_bad = "skip"
    worker.check(worker.run())


def test_null_keys_are_left_out_whatever_their_number(make: Callable[..., Worker]) -> None:
    worker = make(lane=FakeLane([[1, *[None] * 5_000, 2, 13]]))
    report = worker.run()
    assert {(one.kind, one.items) for bad in report.bad for one in bad.counts} == {
        ("null key", 5_000),
        ("ValueError", 1),
    }
    assert worker.counts(report) == {1: 1, 2: 1}


def test_without_room_items_are_counted_and_nothing_is_kept(make: Callable[..., Worker]) -> None:
    worker = make()
    report = worker.run(room=100)
    assert sum(bad.items for bad in report.bad) == len(POISON) and worker.quarantine(report) == []
    assert worker.counts(report) == GOOD


def test_rows_are_cut_to_the_room_there_is(make: Callable[..., Worker]) -> None:
    worker = make(lane=FakeLane([[13] * 500 + [1]]))
    report = worker.run(room=8_000)
    (bad,) = report.bad
    assert bad.items == 500
    assert 0 < len(worker.quarantine(report)) < 500
    assert worker.counts(report) == {1: 1}
