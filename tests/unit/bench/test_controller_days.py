"""A day of bursts for the controller: records that come in time, histories that are replayed, and the page about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from afspark.bench.controller_replay import Look, all_days, replayed
from afspark.bench.drawing_days import DrawnDay, track
from afspark.bench.experiments import experiment_controller
from afspark.bench.live_records import CHUNK_RECORDS, LivePlanner, LiveRecords, live_sums
from afspark.control import FailureKind, Quantity, Situation, Unit, UnitHistory
from afspark.policies import ActiveStandby, Adaptive, Costs
from afspark.sources.bursts import bursts
from afspark.sources.chunks import NumberedChunk

UNIT = Unit("sums", 0)


def looks(*, rate: float, seconds: int, wait: float = 2.0) -> list[Look]:
    """A unit that recovers without a secondary in about four seconds, and with one in about one. ``wait``: for a host
    that may come back.
    """
    history = UnitHistory()
    for what, taken in {Quantity.WAIT: wait, Quantity.DEPLOY: 1.0, Quantity.PROMOTION: 0.3}.items():
        history = history.add(what, at=0.0, seconds=taken)
    for what in (Quantity.WIRE_SEND, Quantity.WIRE_RECEIVE):
        history = history.add(what, at=0.0, seconds=0.1)
    for kind in FailureKind:
        history = history.add(kind, at=0.0, seconds=0.5)
    history = history.add(Quantity.CHECKPOINT_SIZE, at=0.0, amount=1e6)
    history = history.add(Quantity.CHECKPOINT_WRITE, at=0.0, seconds=0.1, amount=1e6)
    for what, amount in {
        Quantity.RECEIVED: rate,
        Quantity.RECEIVED_BYTES: 24 * rate,
        Quantity.PROCESSED: 10 * rate,
        Quantity.CPU: 0.5,
    }.items():
        history = history.add(what, at=0.0, seconds=1.0, amount=amount)
    return [Look(float(at), Situation(unit=UNIT, history=history, now=float(at))) for at in range(seconds)]


def test_a_day_is_spent_under_what_the_limit_allows() -> None:
    day = looks(rate=1e4, seconds=60)
    hosts = Costs(cpu=0, memory=0, network=0, hosts=1)
    tight, wide = (replayed(day, Adaptive(recovery_seconds=limit, costs=hosts)) for limit in (2.0, 20.0))
    assert sum(tight.seconds.values()) == sum(wide.seconds.values()) == 59.0
    assert not {"passive-replication", "snapshot"} & tight.seconds.keys()
    assert {"passive-replication", "snapshot"} & wide.seconds.keys()
    assert wide.cost < tight.cost <= tight.active
    told = all_days(day, {"hosts": Adaptive(costs=hosts)}, (2.0, 20.0))
    assert told["hosts"]["20"]["share"] == wide.share()


def test_a_day_may_be_spent_under_the_six_schemes_alone() -> None:
    day, told = looks(rate=1e4, seconds=60, wait=0.1), {}
    for schemes_only in (False, True):
        found = all_days(day, {"all": Adaptive()}, (20.0,), schemes_only=schemes_only)
        told[schemes_only] = found["all"]["20"]["share"]
    assert set(told[False]) == {"active-replication", "snapshot"}
    assert set(told[True]) == {"active-replication", "passive-replication"}


def test_before_a_day_a_chunk_comes_every_second() -> None:
    now = [100.0 - 45.0]
    planner = LivePlanner(100 * CHUNK_RECORDS, 50.0, 100.0, bursts(1), lead=45, now=lambda: now[0])
    assert planner.discover() == {"chunks": 1}
    now[0] = 80.0
    assert planner.discover() == {"chunks": 25}
    now[0] = 100.0
    assert planner.discover() == {"chunks": 45}
    now[0] = 150.0
    assert planner.discover() == {"chunks": 145}


def test_records_cannot_be_read_before_their_time() -> None:
    now = [100.0]
    planner = LivePlanner(100 * CHUNK_RECORDS, 50.0, 100.0, bursts(1), now=lambda: now[0])
    assert planner.discover() == {"chunks": 1}, "the first one is there to warm up with"
    now[0] = 125.0
    half = planner.discover()["chunks"]
    assert 1 < half < 100
    now[0] = 150.0
    assert planner.discover() == {"chunks": 100}


def times_of(source: LiveRecords, chunks: Sequence[NumberedChunk]) -> list[float]:
    return [time for chunk in chunks for batch in source.read(chunk) for time in batch.column("time").to_pylist()]


def test_records_happen_in_order_and_the_pipeline_is_sound() -> None:
    source = LiveRecords(rows=3 * CHUNK_RECORDS, seconds=9.0, began=0.0)
    chunks = LivePlanner(source.rows, source.seconds, 0.0, bursts(0), now=lambda: 10.0).chunks(
        {"chunks": 0}, {"chunks": 3}
    )
    times = times_of(source, chunks)
    assert times == sorted(times) and times[0] >= 0 and times[-1] <= 9.0
    led = LiveRecords(rows=3 * CHUNK_RECORDS, seconds=9.0, began=0.0, lead=2)
    chunks = led.planner(None).chunks({"chunks": 0}, {"chunks": 5})
    before, day = times_of(led, chunks[:2]), times_of(led, chunks[2:])
    assert before == sorted(before) and before[0] == 0 and 1.9 < before[-1] < 2.0
    assert day == pytest.approx([2.0 + time for time in times])
    assert live_sums(None, ActiveStandby(), source).check().nodes


def test_the_page_and_the_plot_about_a_day(tmp_path: Path) -> None:
    moments = [
        {"at": at / 2, "records": 100 * at, "state": 10**6 * at, "protection": name, "wanted": name}
        for at, name in enumerate(["active-replication"] * 10 + ["deployed"] * 10)
    ]
    day: dict[str, Any] = {
        "share": {"deployed": 0.75, "active-replication": 0.25},
        "over_active": 0.5,
        "over_passive": None,
        "changes": 1,
    }
    recovery = {"failure": "host killed", "scheme": "deployed", "recovery": 6.0, "estimated": 4.0}
    found = {
        "day": 10.0,
        "rate": 200,
        "limit": 5.0,
        "cooldown": 5.0,
        "moments": moments,
        "decisions": [
            {"at": -30.0, "from": None, "to": "active-replication", "interval": None, "why": "unknown"},
            {"at": -9.0, "from": None, "to": "active-replication", "interval": None, "why": "first"},
            {"at": 5.0, "from": "active-replication", "to": "deployed", "interval": None, "why": "cheap"},
        ],
        "limits": {"all costs": {"2": day, "4": day}, "hosts only": {"2": day, "4": day}},
        "recoveries": [recovery, recovery | {"recovery": 4.0}],
    }
    text = experiment_controller.page(found)
    assert "1 of 2 recoveries" in text and "| hosts only | 4 | 25 % |" in text and "| 0.50 | – | 1 |" in text
    assert "| host killed | deployed | 2 | 5.00 (4.00 to 6.00) | 4.00 | 1 |" in text
    assert "| -9 |" in text and "unknown" not in text and "started before the day" in text
    assert "still starting" not in text and "six schemes alone" not in text
    assert "is modelled" in text and "costs nothing beyond the primary" in text
    plot, six = tmp_path / "plot.png", tmp_path / "six.png"
    assert experiment_controller.draw(found, plot) and plot.stat().st_size > 10_000
    late = found | {"moments": [one | {"at": one["at"] + 3.0} for one in moments]}
    assert "from second 3 on" in experiment_controller.page(late)
    found["limits_of_schemes"] = found["limits"]
    assert experiment_controller.page(found).count("| hosts only | 4 | 25 % |") == 2
    assert "six schemes alone" in experiment_controller.draw(found, six)
    assert six.stat().st_size > plot.stat().st_size


def test_the_track_of_a_day_is_what_was_decided() -> None:
    decided = [(-9.0, "active-replication"), (-1.0, "deployed"), (4.0, "snapshot")]
    assert track(DrawnDay(10.0, [], {}, decided)) == [(0.0, "deployed"), (4.0, "snapshot")]
    assert track(DrawnDay(10.0, [], {}, decided[2:])) == [(4.0, "snapshot")]
