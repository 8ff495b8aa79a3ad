"""The controller beside the batches: a day of bursts, restarts, and limits that nothing keeps."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from afspark.clock import SystemClock
from afspark.cluster.local.local_cluster import LocalCluster
from afspark.control import (
    FailureKind,
    InForce,
    MeasuredRecovery,
    Protection,
    RecoveryTimes,
    Scheme,
    Unit,
    Unreplicated,
)
from afspark.coordinator.adapting.control_loop import MOST_DECISIONS, ControlLoop, decisions_of
from afspark.coordinator.adapting.detection import Detection
from afspark.coordinator.adapting.query_meters import QueryMeters
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.record_writer import RecordWriter
from afspark.numbers import Incarnation
from afspark.policies import Adaptive, Costs
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.task_work import TaskWork
from afspark.store import LedgerEntry, Loss, ObjectRef, Recovery, Store, open_store
from afspark.store.control_log import ControlLog

EPOCHS = [f"{number:08d}-00000000000000aa" for number in range(4)]
#: items that the worker can take in a second, and bytes that the store can
SPEED, STORE = 200_000.0, 200e6
EVERY = 0.5


class Ticking(SystemClock):
    """It is the time that somebody has set."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@dataclass
class Recorded:
    """A fake engine: carries everything out at once."""

    wanted: dict[int, InForce] = field(default_factory=dict)
    calls: list[tuple[int, Protection, float | None]] = field(default_factory=list)

    def protections(self) -> Mapping[int, InForce]:
        return self.wanted

    def protect(self, worker: int, protection: Protection, interval: float | None) -> None:
        self.calls.append((worker, protection, interval))
        self.wanted[worker] = InForce(protection=protection, interval=interval, since=0.0)


class Day:
    """A worker of one operator whose input and state grow and shrink, in batches of half a second."""

    def __init__(self, store: Store, adaptive: Adaptive, epoch: int = 0, clock: Ticking | None = None) -> None:
        self.clock, self.engine = clock or Ticking(), Recorded()
        cluster = LocalCluster({"a": 1}, clock=self.clock)
        cluster.detection_seconds = lambda: 0.3  # type: ignore[method-assign]
        meters = QueryMeters(replayable=True, detection=Detection(cluster))
        self.loop = ControlLoop(cluster, meters, ControlLog(store), lambda _: self.engine)
        self.state: list[ObjectRef] = []
        self.batch, self.captured, self.changed = -1, -1e9, 0.0
        timings = SimpleNamespace(foresee=None, seen=None)
        self.run = SimpleNamespace(
            name="counts",
            title="counts",
            node=SimpleNamespace(tolerance=adaptive, internal=False, operator=SimpleNamespace(states=lambda: {"s": 0})),
            homes={0: "a"},
            group=SimpleNamespace(
                recoveries=SimpleNamespace(timings=timings),
                items_behind=lambda worker: 0,
                member=lambda worker: SimpleNamespace(chain=self.state),
                members=[],
            ),
            reports=[],
            stage_seconds=0.0,
        )
        self.loop.open([cast(OperatorRun, self.run)], EPOCHS[epoch])

    def seconds(self, seconds: float, *, rate: float, state: float, recovered: list[LedgerEntry] | None = None) -> None:
        """So much time passes with items at a rate and a state of so many bytes."""
        for _ in range(round(seconds / EVERY)):
            self.batch += 1
            self.clock.now += EVERY
            items = rate * EVERY
            in_force = self.engine.wanted.get(0)
            interval = 1.0 if in_force is None or in_force.interval is None else in_force.interval
            backups: tuple[ObjectRef, ...] = ()
            self.changed += 10 * items
            if self.clock.now - self.captured >= interval:
                backups = (ObjectRef(f"objects/{self.batch}", "", int(min(self.changed, state)), 1, False),)
                self.captured, self.changed = self.clock.now, 0.0
                self.state = [ObjectRef("image", "", int(state), 1, True)]
            written = sum(ref.bytes for ref in backups)
            work = TaskWork(
                seconds=items / SPEED,
                cpu=items / SPEED,
                items=int(items),
                bytes=int(items * 20),
                backup_cpu=written / 1e9,
                backup_seconds=written / STORE,
            )
            self.run.stage_seconds = items / SPEED + 0.05 + written / STORE
            self.run.reports = [
                TaskReport(worker=0, status=Status.APPLIED, host="a", items=int(items), backups=backups, work=work)
            ]
            records = SimpleNamespace(covered=SimpleNamespace(batch=self.batch), covered_at=self.clock.now)
            self.loop.batch_ended(self.batch, recovered or [], cast(RecordWriter, records), recording=0.02)
            recovered = None


def quiet(day: Day, seconds: float = 60.0) -> None:
    day.seconds(seconds, rate=1_000.0, state=20e6)


def burst(day: Day, seconds: float = 60.0) -> None:
    day.seconds(seconds, rate=60_000.0, state=600e6)


def store_in(path: Path) -> Store:
    return open_store(str(path))


def test_a_day_of_bursts_goes_through_schemes(tmp_path: Path) -> None:
    """Small states are restored in time, large ones only by a secondary that has them."""
    day = Day(store_in(tmp_path), Adaptive(recovery_seconds=2, cooldown=5))
    assert day.engine.calls[0][:2] == (0, Scheme.ACTIVE_REPLICATION), "that is where a worker starts"
    chosen: list[Protection] = []
    for part in (quiet, burst, quiet, burst):
        part(day)
        chosen.append(day.engine.wanted[0].protection)
    assert chosen[0] is chosen[2] is Unreplicated.BARRIER_SNAPSHOT
    assert chosen[1] is chosen[3] and chosen[1] in (Scheme.HOT_STANDBY, Scheme.COLD_STANDBY)
    found = day.loop.decisions()
    assert len(found) <= 12, "noise moves nothing to and fro"
    assert [one["from"] for one in found[1:]] == [one["to"] for one in found[:-1]]
    for one in found:
        assert one["operator"] == "counts" and one["worker"] == 0 and one["reason"] and one["limit"] == 2.0
        (taken,) = (two for two in one["candidates"] if two["protection"] == one["to"])
        assert taken["estimate"]["seconds"] <= 2.0 and taken["verdict"] == "in time"
    assert [(0, two["to"], two["interval"]) for two in found] == day.engine.calls, "what was decided was carried out"


def test_what_hosts_cost_decides(tmp_path: Path) -> None:
    """If memory and hosts are free and CPU is dear, a secondary that sleeps is better than no secondary."""
    free = Day(store_in(tmp_path / "free"), Adaptive(recovery_seconds=2, costs=Costs(cpu=1, network=0, hosts=0)))
    dear = Day(store_in(tmp_path / "dear"), Adaptive(recovery_seconds=2, costs=Costs(cpu=1, network=0, hosts=10)))
    for day in (free, dear):
        quiet(day)
    secondaries = (Scheme.HOT_STANDBY, Scheme.COLD_STANDBY, Scheme.DEPLOYED)
    assert dear.engine.wanted[0].protection not in secondaries
    (first, *_), (second, *_) = (
        free.loop.estimates(cast(OperatorRun, free.run)),
        dear.loop.estimates(cast(OperatorRun, dear.run)),
    )
    by_name = {one["protection"]: one["cost"] for one in first["candidates"]}
    assert all(one["cost"] >= by_name[one["protection"]] for one in second["candidates"])


def test_estimates_are_those_of_the_controller(tmp_path: Path) -> None:
    day = Day(store_in(tmp_path), Adaptive(recovery_seconds=2, cooldown=5))
    quiet(day)
    (found,) = day.loop.estimates(cast(OperatorRun, day.run))
    assert found["limit"] == 2 and found["in_force"]["protection"] == Unreplicated.BARRIER_SNAPSHOT
    assert len(found["candidates"]) == 7 and not any(one["unknown"] for one in found["candidates"])
    assert [one["protection"] for one in found["candidates"] if one["in_force"]] == [Unreplicated.BARRIER_SNAPSHOT]
    steps = set(found["candidates"][0]["estimate"])
    assert {"detection", "wait", "promotion", "deploy", "read", "wire_send", "wire_receive", "replay"} == steps


def test_a_later_driver_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    day = Day(store, Adaptive(recovery_seconds=2, cooldown=5))
    quiet(day)
    burst(day)
    in_force, told = day.engine.wanted[0], day.loop.decisions()
    # The driver dies without a word.
    again = Day(store, Adaptive(recovery_seconds=2, cooldown=5), 1, day.clock)
    assert again.loop.decisions() == told, "decisions are written with the batch after them"
    assert again.engine.calls[0] == (0, in_force.protection, in_force.interval)
    burst(again, 3.0)
    assert again.engine.wanted[0].protection is in_force.protection, "it knows what a recovery would take"
    again.loop.close()
    third = Day(store, Adaptive(recovery_seconds=2, cooldown=5), 2, day.clock)
    assert third.loop.decisions() == again.loop.decisions()


def test_what_cannot_be_understood_is_measured_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = store_in(tmp_path)
    ControlLog(store).write(EPOCHS[0], {"shared": {"luck": []}, "units": [], "decisions": [{"at": 1}]})
    day = Day(store, Adaptive(recovery_seconds=2), 1)
    assert day.loop.decisions()[0]["to"] == Scheme.ACTIVE_REPLICATION
    assert len([one for one in caplog.records if "not understood" in one.message]) == 2


def test_what_is_no_longer_offered_is_decided_anew(tmp_path: Path) -> None:
    """Approximation was chosen, and the query is started again without an error that is allowed."""
    store, chosen = store_in(tmp_path), {"to": str(Unreplicated.APPROXIMATE), "interval": None}
    (first,) = Day(store, Adaptive(recovery_seconds=2, theta=400)).loop.decisions()
    left = {"shared": {}, "records": [], "units": [], "decisions": [{**first, **chosen}]}
    ControlLog(store).write(EPOCHS[0], left)
    again = Day(store, Adaptive(recovery_seconds=2, theta=400), 1)
    assert again.engine.calls[0] == (0, Unreplicated.APPROXIMATE, None)
    without = Day(store, Adaptive(recovery_seconds=2), 2)
    assert {protection for _, protection, _ in without.engine.calls} == {Scheme.ACTIVE_REPLICATION}
    quiet(without)
    assert without.engine.wanted[0].protection is Unreplicated.BARRIER_SNAPSHOT


def test_few_decisions_are_kept(tmp_path: Path) -> None:
    day = Day(store_in(tmp_path), Adaptive(recovery_seconds=2))
    (one,) = day.loop.decisions()
    many = [{**one, "at": float(number)} for number in range(2 * MOST_DECISIONS)]
    kept = decisions_of([{"decisions": many[:150]}, {"decisions": many[50:]}])
    assert [one.to_json() for one in kept] == many[-MOST_DECISIONS:]


def recovery(seconds: float, at: float) -> LedgerEntry:
    """A failure of a worker with an active replica that the batch was late for."""
    found = MeasuredRecovery(
        at=at,
        unit=Unit("counts", 0),
        kind=FailureKind.FROZEN,
        protection=Scheme.ACTIVE_REPLICATION,
        estimated=RecoveryTimes(),
        measured=RecoveryTimes(promotion=seconds),
    )
    loss = Loss(
        batch=3,
        operator="counts",
        worker=0,
        incarnation=Incarnation(0),
        counted=True,
        cause="",
        theta={},
        failures=0,
    )
    return LedgerEntry(loss, Recovery(seconds=0.0, restored_cells=0, account=found.to_json()))


def test_a_limit_that_nothing_keeps_is_told_once_and_active_replication_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    day = Day(store_in(tmp_path), Adaptive(recovery_seconds=0.1, cooldown=5))
    with caplog.at_level(logging.WARNING, "afspark"):
        day.seconds(5.0, rate=1_000.0, state=20e6)
        assert "the best estimate is 0.35 s" in caplog.text
        day.seconds(20.0, rate=1_000.0, state=20e6, recovered=[recovery(0.9, day.clock.now)])
    (warning,) = caplog.records
    assert "nothing recovers within 0.1 s" in warning.getMessage() and "counts[0]" in warning.getMessage()
    assert day.engine.wanted[0].protection is Scheme.ACTIVE_REPLICATION
    active: dict[str, Any] = day.loop.estimates(cast(OperatorRun, day.run))[0]["candidates"][0]
    assert active["seconds"] == 0.9 and active["verdict"] == "too slow"


def test_a_fixed_tolerance_is_never_decided_about(tmp_path: Path) -> None:
    day = Day(store_in(tmp_path), cast(Adaptive, Adaptive().first))
    quiet(day)
    assert day.engine.calls == [] and day.loop.decisions() == []
