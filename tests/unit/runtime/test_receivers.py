"""The driver's side of receivers: what records hold of the lanes, batch after batch."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import flight

import afspark as af
from afspark.clock import SystemClock
from afspark.cluster.local.local_cluster import LocalCluster
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.receivers.receiver_hosts import ExecutorReceivers
from afspark.coordinator.receivers.receivers import Receivers, receiver_plans
from afspark.errors import StoreFull
from afspark.graph.pipeline import Pipeline
from afspark.policies import NoBackup
from afspark.protocol.lifecycle import Hint
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.push.producer.producer import Producer
from afspark.push.receiver.receiver_process import ReceiverProcess
from afspark.push.receiver.session_listing import is_receiver_start
from afspark.push.wire.push_errors import SessionOver, from_flight
from afspark.push.wire.security import new_secret
from afspark.push.wire.worker_messages import BackupNumber
from afspark.sources import Pushed
from afspark.store import CommitRecord, open_store
from afspark.store.commits import LanePositions
from afspark.store.local import LocalStore
from afspark.task.intake import Intake, Start
from afspark.task.remote_lane import open_lane
from afspark.task.step_progress import StepProgress
from tests.unit.push.flightclient import Client

SCHEMA = pa.schema([("n", pa.int64())])
WORKERS = 2


class Count(af.Operator):
    alpha = 1.0

    def states(self) -> dict[str, Any]:
        return {"count": af.HashTable(key="int64", value="int64")}


class Ticks:
    """Batches of a query of which only the receivers and the positions are real."""

    def __init__(self, folder: Path, items: float = 1000) -> None:
        source = Pushed.of(SCHEMA, lanes=WORKERS)
        tolerance = af.Approximate(theta=0, items=items)
        pipeline = Pipeline.single(source=source, operator=Count(), name="count", workers=WORKERS, tolerance=tolerance)
        (self.name,) = pipeline.sources
        self.receivers = Receivers(LocalCluster({"a": 1}), pipeline, {self.name: open_store(str(folder))})
        self.receivers.open()
        self.batch = 0
        self.items = 0
        self.gaps = 0

    @property
    def address(self) -> str:
        return self.receivers.addresses()[0]

    def go(self, *, stepped: bool = True) -> LanePositions:
        """One batch; the positions in its record."""
        requests = [self._request(worker) for worker in range(WORKERS)]
        reports = [self._serve(request) for request in requests]
        self.receivers.advance(self.name, reports)
        record = CommitRecord(self.batch, "", {}, lanes=self.receivers.recorded())
        lanes = CommitRecord.from_json(json.loads(json.dumps(record.to_json()))).lanes
        self.receivers.confirm(self.name, requests, stepped=stepped)
        self.batch += 1
        return lanes[self.name]

    def _request(self, worker: int) -> TaskRequest:
        return TaskRequest(
            worker=worker,
            batch=self.batch,
            incarnation=0,
            hint=Hint.RESUME,
            fence=1,
            home="",
            backup=NoBackup(),
        )

    def _serve(self, request: TaskRequest) -> TaskReport:
        # What a task gets has been pickled.
        ticket = pickle.loads(pickle.dumps(self.receivers.ticket(self.name, request.worker)))
        with closing(open_lane(request, ticket)) as lane:
            intake = Intake(lane, seconds=math.inf)
            intake.resume(StepProgress(positions=ticket.positions), Start(durable=BackupNumber(request.batch, -1, 0)))
            for _ in range(2):
                portion = intake.portion(wait=0.05)
                assert portion is not None
                self.items += sum(batch.num_rows for batch in portion.items)
            self.gaps += sum(gap.items for gap in intake.gaps)
            return TaskReport(worker=request.worker, status=Status.APPLIED, host="", positions=dict(intake.positions))


@pytest.fixture
def ticks(tmp_path: Path) -> Iterator[Ticks]:
    made = Ticks(tmp_path)
    yield made
    made.receivers.close()


def send(address: str, name: str, rows: int) -> None:
    with Producer(address, name, SCHEMA, batch_rows=1) as producer:
        producer.send(pa.record_batch({"n": list(range(rows))}, schema=SCHEMA))


def test_a_record_holds_no_positions_of_sessions_that_have_ended(ticks: Ticks) -> None:
    with Producer(ticks.address, "alive", SCHEMA, batch_rows=1) as alive:
        alive.send(pa.record_batch({"n": [1, 2, 3]}, schema=SCHEMA))
        alive.flush(10)
        for _ in range(5):
            for number in range(4):
                send(ticks.address, f"short {number}", 3)
            ticks.go()
        # Not before their objects in the item log are deleted.
        for _ in range(200):
            lanes = ticks.go()
            if max(map(len, lanes.values())) == 2:
                break
        assert [[name for name in lane if not is_receiver_start(name)] for lane in lanes.values()] == [
            [alive.id]
        ] * WORKERS
    assert ticks.items == 3 + 5 * 4 * 3
    assert ticks.gaps == 0


def test_a_receiver_that_died_is_told_which_sessions_are_over(ticks: Ticks) -> None:
    send(ticks.address, "short", 3)
    with Producer(ticks.address, "alive", SCHEMA, batch_rows=1) as alive:
        alive.send(pa.record_batch({"n": [1, 2, 3, 4]}, schema=SCHEMA))
        alive.flush(10)
        for _ in range(3):
            ticks.go()
        ticks.receivers.crash()
        alive.send(pa.record_batch({"n": [5, 6]}, schema=SCHEMA))
        alive.flush(10)
        ticks.go()
    assert (ticks.items, ticks.gaps) == (9, 0)


def test_a_session_that_is_over_is_not_taken_for_another_after_the_receivers_death(ticks: Ticks) -> None:
    client = Client(ticks.address, "short")
    client.hello()
    client.bye({})
    ticks.go()
    assert client.id not in ticks.receivers.positions[ticks.name][0]
    ticks.receivers.crash()
    with pytest.raises(flight.FlightError) as caught:
        client.again(ticks.address).hello()
    assert isinstance(from_flight(caught.value, ""), SessionOver)


def test_the_workers_secret_is_another_for_every_start_and_stays_out_of_sight(tmp_path: Path) -> None:
    secrets = set()
    for _ in range(2):
        ticks = Ticks(tmp_path)
        ticket = ticks.receivers.ticket(ticks.name, 0)
        secret = ticket.access.worker_secret
        secrets.add(secret)
        assert secret not in repr(ticket) and secret not in json.dumps(ticks.receivers.recorded())
        assert not any(secret in path.read_bytes().decode("latin1") for path in tmp_path.rglob("*") if path.is_file())
        ticks.receivers.close()
    assert len(secrets) == 2


def test_items_stay_with_their_receiver_until_spark_has_committed_their_batch(ticks: Ticks) -> None:
    """If everything dies after the record and before that, the batch runs again from the record before it."""

    def pending() -> int:
        (receiver,) = ticks.receivers.stats().values()
        return sum(lane["pending_items"] for lane in receiver["lanes"].values())

    with Producer(ticks.address, "p", SCHEMA, batch_rows=1) as producer:
        producer.send(pa.record_batch({"n": [1, 2, 3]}, schema=SCHEMA))
        producer.flush(10)
        ticks.go(stepped=False)
        assert (ticks.items, pending()) == (3, 3)
        ticks.go(stepped=False)
        assert (ticks.items, pending()) == (3, 0)


def test_what_a_receivers_death_can_have_taken_is_told_even_if_no_producer_comes_back(ticks: Ticks) -> None:
    lanes = range(WORKERS)
    assert ticks.receivers.lost(ticks.name) == dict.fromkeys(lanes, 0.0)
    with Producer(ticks.address, "p", SCHEMA, batch_rows=1) as producer:
        producer.send(pa.record_batch({"n": [1, 2, 3]}, schema=SCHEMA))
        producer.flush(10)
        # l = 1000 / (2 · 2 workers), and half of that for the next one
        for lost in (250.0, 375.0):
            ticks.receivers.crash()
            assert ticks.receivers.lost(ticks.name) == dict.fromkeys(lanes, lost)


def test_however_often_a_receiver_dies_no_more_than_the_limit_is_lost_and_all_of_it_is_told(ticks: Ticks) -> None:
    """Each time after as many items as are acknowledged without a backup, and nobody has taken them."""
    limit, crashes, each = 1000, 5, 400
    possible: dict[int, float] = {}
    with Producer(ticks.address, "p", SCHEMA, batch_rows=1) as producer:
        for _ in range(crashes):
            producer.send(pa.record_batch({"n": list(range(each))}, schema=SCHEMA))
            producer.flush(10)
            ticks.receivers.crash()
            possible = ticks.receivers.lost(ticks.name)
        producer.send(pa.record_batch({"n": [1, 2]}, schema=SCHEMA))
        producer.flush(10)
        ticks.go()
    assert ticks.items + ticks.gaps == crashes * each + 2
    assert each < ticks.gaps <= sum(possible.values()) <= limit


@pytest.mark.parametrize("room", [True, False], ids=["room", "no room"])
def test_an_orderly_end_that_cannot_keep_what_it_holds_is_a_failure(
    tmp_path: Path, room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledged items that are in no state and in no log are gone with the receiver; there may be room for less."""
    ticks, real = Ticks(tmp_path), LocalStore.put
    with Producer(ticks.address, "p", SCHEMA, batch_rows=1) as producer:
        producer.send(pa.record_batch({"n": list(range(400))}, schema=SCHEMA))
        producer.flush(10)

    def put(store: LocalStore, name: str, data: bytes) -> None:
        if "items/" in name and not room:
            raise StoreFull("no room", path=store.path)
        real(store, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put", put)
        ticks.receivers.close()
    after = Ticks(tmp_path)
    assert after.receivers.lost(after.name) == dict.fromkeys(range(WORKERS), 0.0 if room else 250.0)
    after.go()
    assert after.items == (400 if room else 0)
    after.receivers.close()


class Loopback(LocalCluster):
    """Runs receivers at once, in this process, under a clock that is behind the driver's."""

    def run_on(self, homes: Any, work: Any) -> Any:
        return work(cast(Any, SimpleNamespace(host="127.0.0.1", clock=SystemClock())), 0)


def test_no_clock_decides_which_receivers_are_there(tmp_path: Path) -> None:
    """Hosts whose clocks differ from the driver's, or are set back, serve as any other; a dead start's serve never."""

    class Behind(SystemClock):
        def time(self) -> float:
            return super().time() - 3600

    source = Pushed.of(SCHEMA, lanes=1)
    pipeline = Pipeline.single(source=source, operator=Count(), name="count", workers=1, tolerance=af.MiniBatch())
    (node,) = pipeline.nodes
    store, secret = open_store(str(tmp_path)), new_secret()
    plans = receiver_plans(source, node, pipeline, secret)
    died = ReceiverProcess(replace(plans[0], opened_by="an earlier start"), store)
    assert died.open().failures == 0
    hosts = ExecutorReceivers(Loopback({"127.0.0.1": 1}), plans, store, source.access(secret), lambda lanes: {})
    hosts.cluster.clock = Behind()
    hosts.open()
    try:
        (found,) = hosts.announced()
        assert (found.failures, found.address != died.announced.address) == (1, True)  # type: ignore[union-attr]
    finally:
        hosts.close()
        died.close()


@pytest.mark.parametrize(
    ("stepped", "exact", "told"),
    [(True, False, 10), (True, True, 40), (False, False, 40)],
    ids=["state goes too", "exact", "no steps"],
)
def test_items_that_went_with_a_state_are_counted_there(stepped: bool, exact: bool, told: int) -> None:
    group = SimpleNamespace(
        config=SimpleNamespace(stepped=stepped, exact=exact),
        member=lambda worker: SimpleNamespace(counted_failures=()),
        budget=SimpleNamespace(counted=lambda counted_failures: {}),
    )
    run = OperatorRun(cast("Any", SimpleNamespace(keyed=False, workers=1)), cast("Any", group))
    run.entrances = [run]
    run.gaps = {(1, 0): 30, (4, 0): 10}
    run.hear_of_receivers({0: 10.0})
    assert run.lost_items() == told
    # What is not known any more takes nothing back.
    run.hear_of_receivers({0: 4.0})
    assert run.lost_items() == told


@pytest.mark.parametrize("stepped", [True, False])
def test_what_no_number_has_limited_is_told_as_far_as_it_is_known(stepped: bool) -> None:
    """L in seconds: a number that a later start sets says nothing about what was lost before."""
    config = SimpleNamespace(stepped=stepped, exact=False)
    run = OperatorRun(cast("Any", SimpleNamespace(keyed=False, workers=1)), cast("Any", SimpleNamespace(config=config)))
    run.entrances = [run]
    run.gaps = {(1, 0): 300}
    run.hear_of_receivers({0: math.inf})
    run.hear_of_receivers({0: 5.0})
    assert run.lost_items() == 300


def test_a_failure_is_told_by_the_limit_of_its_receiver_whatever_is_set_afterwards(tmp_path: Path) -> None:
    """Also if its driver died before its first record, and whether the limit is lowered or raised."""
    for items, lost in ((1000.0, 0.0), (8.0, 250.0), (4000.0, 251.0), (0.0, 501.0)):
        ticks = Ticks(tmp_path, items=items)
        assert ticks.receivers.lost(ticks.name) == dict.fromkeys(range(WORKERS), lost)
