"""What is made of runs with barrier snapshots: costs, recoveries, and how they are told and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.bench.catalogue import experiment
from afspark.bench.experiments import experiment_snapshot_cost as cost
from afspark.bench.experiments import experiment_snapshot_intervals as intervals
from afspark.bench.experiments import experiment_snapshot_recovery as recovery
from afspark.bench.interleave import NONE, Contest
from afspark.bench.kept_rounds import Contenders
from afspark.bench.recovery_costs import LossCase, batches_between, recovery_figures
from afspark.bench.rig import STORES
from afspark.bench.seen_batches import SeenBatches, costs, percentile
from afspark.bench.snapshot_costs import INTERVALS, batch_records, interval_contests
from afspark.bench.topology import OPERATORS, topology, with_route
from afspark.policies import Nothing


def seen(seconds: list[float], backups: list[int]) -> SeenBatches:
    found = SeenBatches()
    found.seconds = dict(enumerate(seconds))
    found.batches = {
        batch: {"items": 100, "backups": {"count": count, "bytes": 50 * count}} for batch, count in enumerate(backups)
    }
    return found


def test_costs_leave_out_the_warm_up_and_count_batches_with_backups() -> None:
    history = [{"skipped": [{"barriers": 2}, {"barriers": 1}]}, {"skipped": []}]
    found = costs(seen([9.0, 9.0, 1.0, 1.0, 4.0, 2.0], [1, 1, 0, 3, 0, 1]), history)
    assert (found["seconds"], found["records_per_second"], found["batches"]) == (8.0, 50.0, 4.0)
    assert (found["batch"], found["p99_batch"], found["longest_batch"]) == (1.5, 4.0, 4.0)
    assert (found["backups"], found["effective_interval"], found["backup_bytes"]) == (2.0, 4.0, 200.0)
    assert found["skipped"] == 3.0


def test_without_backups_there_is_no_interval() -> None:
    found = costs(seen([1.0] * 5, [0] * 5))
    assert (found["backups"], found["effective_interval"], found["skipped"]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("share", "expected"), [(0.99, 99.0), (0.5, 50.0), (1.0, 100.0), (0.0, 1.0)])
def test_percentiles_are_values_that_occurred(share: float, expected: float) -> None:
    assert percentile([float(value) for value in range(100, 0, -1)], share) == expected


def test_short_runs_have_many_batches_too() -> None:
    assert batch_records(10**8) == 1 << 20
    assert batch_records(10**6) == 1 << 15


def test_every_contender_has_a_run_of_none_beside_it() -> None:
    contests = interval_contests(None, 10**6)  # type: ignore[arg-type]
    assert len(contests) == len(INTERVALS) + 1
    expected = 1 + 2 * len(STORES)
    assert all(next(iter(contenders)) == NONE and len(contenders) == expected for contenders in contests.values())


def test_the_topology_has_six_operators_and_three_exchanges() -> None:
    pipeline = topology(None, Nothing(), records=1000).check()
    assert [node.name for node in pipeline.nodes] == list(OPERATORS)
    assert [node.keyed for node in pipeline.nodes] == [False, True] * 3


def test_routes_differ_where_pairs_do() -> None:
    values = np.arange(100, dtype=np.int64)
    items = pa.record_batch({"src": values, "dst": values + 7, "bytes": values})
    routes = with_route(items)
    assert routes.schema.names == ["route", "bytes"]
    assert len(set(routes.column("route").to_pylist())) == 100


def entry(operator: str, restoring: float, replaying: float, batches: int = 3) -> dict[str, Any]:
    return {
        "operator": operator,
        "restore_seconds": restoring,
        "replay_seconds": replaying,
        "replayed_batches": batches,
        "restored_cells": 10,
    }


def test_a_recovery_is_taken_apart() -> None:
    case = LossCase(keys=10, every=4, batch_records=1)
    assert (case.lost_in, case.batches) == (8, 11)
    seconds = dict.fromkeys(range(11), 1.0) | {0: 20.0, 4: 1.5, 6: 1.2, 8: 3.5}
    found = recovery_figures(seconds, [entry("by-target", 0.25, 0.8)], case)
    assert (found["batch"], found["interval"], found["delay"]) == (1.0, 4.0, 2.5)
    assert (found["restoring"], found["replaying"]) == (0.25, 0.8)
    assert found["rest"] == pytest.approx(1.45)
    # Batches 5, 6 and 7 took 3.2 s at first.
    assert (found["input_seconds"], found["speed"]) == (pytest.approx(3.2), pytest.approx(4.0))


def test_in_a_full_recovery_operators_follow_each_other_and_workers_do_not() -> None:
    ledger = [entry("a", 0.1, 1.0), entry("a", 0.2, 1.0), entry("b", 0.3, 2.0), entry("b", 0.1, 2.0)]
    found = recovery_figures(dict.fromkeys(range(11), 1.0), ledger, LossCase(keys=10, every=4, batch_records=1))
    assert (found["restoring"], found["replaying"], found["workers"]) == (0.5, 3.0, 4.0)
    assert found["restored_cells"] == 40.0


def test_intervals_are_whole_batches() -> None:
    assert [batches_between(interval, 0.4) for interval in (0.2, 1.0, 3.0)] == [2, 2, 8]


def contest(contenders: Contenders | list[str], figures: dict[str, float]) -> Contest:
    return Contest({name: [figures] for name in contenders})


def interval_document() -> dict[str, Any]:
    figures = costs(seen([1.0] * 9, [0, 1, 0] * 3))
    told: dict[str, Any] = {}
    for name, contenders in interval_contests(None, 1000).items():  # type: ignore[arg-type]
        one = contest(contenders, figures)
        others = [other for other in contenders if other != NONE]
        told[name] = {
            "figures": one.to_json(),
            "runtime": {other: one.ratio_spread(other, NONE, "seconds") for other in others},
            "throughput": {other: one.ratio_spread(other, NONE, "records_per_second") for other in others},
        }
    return {"records": 1000, "batch_records": 50, "alike": ["0.2 s", "0.5 s"], "contests": told}


def test_intervals_shorter_than_every_batch_are_one_contest() -> None:
    shortest = Contest({"none": [{"batch": 1.6}, {"batch": 1.2}], "asynchronous": [{"batch": 1.7}, {"batch": 0.9}]})
    assert intervals.as_every_batch(shortest) == [0.5]


def cost_document() -> dict[str, Any]:
    one = contest([NONE, *cost.CONTENDERS], costs(seen([1.0] * 9, [0, 1, 0] * 3)))
    ratios = {name: one.ratio_spread(name, NONE, "batch") for name in cost.CONTENDERS}
    return {"records": 10, "batch_records": 1, "figures": one.to_json(), "throughput": ratios, "usual": ratios}


def test_the_cost_of_snapshots_is_told() -> None:
    told = experiment("snapshot-cost").page(cost_document())
    assert "| none | 1 | 1 | 2 | 1.00 |" in told
    assert "| 0.5 s, 100 MB/s, 20 ms | 1.000 | 1.000 | 2 | 1.00 |" in told


def parallelism_document() -> dict[str, Any]:
    one = contest(["none", "asynchronous"], costs(seen([1.0] * 9, [0, 1, 0] * 3)))
    ratio = one.ratio_spread("asynchronous", "none", "seconds")
    part = {"figures": one.to_json(), "runtime": ratio, "throughput": ratio}
    return {"records": 1000, "parallelism": {str(workers): part for workers in (1, 2, 4, 8)}}


def recovery_document() -> dict[str, Any]:
    case = LossCase(keys=10, every=4, batch_records=1)
    one = contest(list(recovery.KINDS), recovery_figures(dict.fromkeys(range(11), 1.0), [entry("a", 0.1, 0.5)], case))
    names = [f"{recovery.BY_INTERVAL} {value:g}" for value in recovery.INTERVALS]
    names += [f"{recovery.BY_KEYS} {keys}" for keys in recovery.KEYS]
    return {"batch_records": 100, "contests": {name: one.to_json() for name in (*names, recovery.ALONE)}}


@pytest.mark.parametrize(
    ("name", "document", "told"),
    [
        ("snapshot-intervals", interval_document(), "| local disk | 0.2 s | asynchronous | 1.000 | 1.000 |"),
        ("snapshot-parallelism", parallelism_document(), "| 8 | 7.0 | 7.0 | 1.000 | 1.000 |"),
        ("snapshot-recovery", recovery_document(), "| 1,000,000 keys, interval 3 s | full | 1 | 10 | 4.0 |"),
    ],
)
def test_figures_are_told_and_drawn(name: str, document: dict[str, Any], told: str, tmp_path: Path) -> None:
    one = experiment(name)
    assert told in one.page(document)
    assert one.draw is not None
    assert "Carbone et al." in one.draw(document, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
