"""The experiments about training: what they make of figures, without Spark; and their parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.bench import exchange_cost
from afspark.bench.experiments import (
    experiment_consistency,
    experiment_learning_failures,
    experiment_learning_thresholds,
    experiment_training_cost,
)
from afspark.bench.learning_curves import SHOWN_POINTS, thinned_curve
from afspark.bench.native_training import DriverModel
from afspark.bench.rig import Rig
from afspark.bench.training_runs import CHUNK, ELEVEN, Delays, eleven_data

EXPERIMENTS = [
    experiment_training_cost,
    experiment_learning_failures,
    experiment_learning_thresholds,
    experiment_consistency,
]


class StubRig(Rig):
    """No session."""

    spark = None  # type: ignore[assignment]

    @contextmanager
    def slots(self, slots: int) -> Iterator[Any]:
        yield None


class Runs:
    """Stands for runs: curves that fall, the same for all that are alike."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.count, self.fails_at = 0, fails_at

    def trained_run(self, model: Any, data: Any, **settings: Any) -> dict[str, Any]:
        if self.count == self.fails_at:
            raise KeyboardInterrupt
        self.count += 1
        curve = [[0.1 * (1 + at), 1.0 / (1 + at), 100, 100 * (0.3 + 0.4 / (1 + at))] for at in range(40)]
        events = {"pulls": [[0, 11, 0, 5.0, 5.1, 0], [1, 12, 0, 5.0, 5.2, 0]], "pushes": [[0, 11, 0, 5.3]]}
        return {
            "items_per_second": 1e6 + self.count,
            "batch": 0.5,
            "backup_bytes": 1e6,
            "log_loss": 0.4,
            "prediction_rate": 0.8,
            "merges": 40,
            "seconds": 4.0,
            "failures": 0,
            "regret_per_item": 0.1,
            "held": True,
            "batches": [[1.0, 2.0], [4.0, 0.5]],
            "curve": curve,
            "events": events,
        }

    def native(self, *given: Any, **settings: Any) -> dict[str, float]:
        return {"items_per_second": 1e5, "batch": 0.5, "log_loss": 0.4}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Any:
    def plant(runs: Runs) -> Runs:
        for module in EXPERIMENTS:
            monkeypatch.setattr(module, "training", lambda *given, **settings: None)
            monkeypatch.setattr(module, "trained_run", runs.trained_run)
        monkeypatch.setattr(experiment_training_cost, "merged_by_batch", lambda *given, **settings: None)
        monkeypatch.setattr(experiment_training_cost, "native_training", runs.native)
        cost = {"steps": {"1": 0.2, "1000000": 12.2}, "step_ms": 0.2, "megabyte_ms": 1.0}
        monkeypatch.setattr(experiment_training_cost, "exchange_cost", lambda: cost)
        return runs

    return plant


@pytest.mark.parametrize("module", EXPERIMENTS, ids=lambda module: module.__name__.rpartition("experiment_")[2])
def test_an_experiment_goes_on_where_it_was_cut_off_and_is_told_and_drawn(
    module: Any, planted: Any, tmp_path: Path
) -> None:
    rig = StubRig(tmp_path, rounds=2, keep=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        module.measure((planted(Runs(fails_at=9)), rig)[1])
    first = sum(len(path.read_text().splitlines()) for path in tmp_path.glob("*.rounds"))
    assert first > 0
    again = planted(Runs())
    found = json.loads(json.dumps(module.measure(rig)))
    assert again.count > 0 and not list(tmp_path.glob("*.rounds"))
    text = module.page(found)
    assert "|---" in text and "VIOLATED" not in text
    assert module.draw(found, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_what_the_targets_are_about_is_told(planted: Any, tmp_path: Path) -> None:
    planted(Runs())
    rig = StubRig(tmp_path, rounds=1)
    cost = experiment_training_cost.page(experiment_training_cost.measure(rig))
    assert "averaged over Θ and sizes, by throughput: clicks **1.000** ± 0.000" in cost and "a pushed megabyte" in cost
    assert "of the throughput of `logistic_regression`" in cost
    found = experiment_consistency.measure(rig)
    assert found["clicks, delayed steps"]["sooner"]["asp"]["median"] == 1.0
    assert found["higgs, alike"]["norms"]["ssp:10"]["median"] == 1.0


def test_figures_that_do_not_say_how_many_batches_there_were_are_told_without(planted: Any, tmp_path: Path) -> None:
    planted(Runs())
    found = json.loads(json.dumps(experiment_training_cost.measure(StubRig(tmp_path, rounds=1))))
    told = experiment_training_cost.page(found)
    assert "12 batches of 2²⁰" in told and "With 16, 4, 1 steps" in told and "12, 8, 6 batches" in told
    found["batches"] = 6
    assert "6 batches of 2²⁰" in experiment_training_cost.page(found)
    del found["batches"], found["parts"]
    older = experiment_training_cost.page(found)
    assert "(`BSP`), batches of 2²⁰" in older and "a native run has" not in older
    assert experiment_training_cost.draw(found, tmp_path / "plot.png")


def test_none_is_drawn_with_both_of_its_runs() -> None:
    runs = {"none": (2e6, 1e6, 3e6), "none again": (4e6, 3.5e6, 5e6)}
    spreads = {name: dict(zip(("median", "least", "most"), one, strict=True)) for name, one in runs.items()}
    figures = {name: {"items_per_second": one} for name, one in spreads.items()}
    drawn = experiment_training_cost._drawn({"figures": figures})
    assert drawn == {experiment_training_cost.BOTH: {"median": 3.0, "least": 1.0, "most": 5.0}}


def test_curves_that_are_the_same_are_one_line_and_the_page_says_so(planted: Any, tmp_path: Path) -> None:
    planted(Runs())
    found = experiment_learning_failures.measure(StubRig(tmp_path, rounds=1))
    panel = experiment_learning_failures._by_merges("clicks", found["clicks"]["curves"])
    assert [line.name for line in panel.lines] == ["0, 4 and 8 killed"] and "identical" in panel.title
    assert "kills cost time, and nothing else" in experiment_learning_failures.page(found)
    found["clicks"]["curves"]["8"] = [[at, 2 * norm, *others] for at, norm, *others in found["clicks"]["curves"]["8"]]
    panel = experiment_learning_failures._by_merges("clicks", found["clicks"]["curves"])
    assert [line.name for line in panel.lines] == ["0 and 4 killed", "8 killed"] and "identical" not in panel.title
    assert "changes with kills differ" in experiment_learning_failures.page(found)


def test_the_page_says_whether_the_norm_rises_in_the_anomalous_stretch(planted: Any, tmp_path: Path) -> None:
    planted(Runs())
    found = experiment_learning_failures.measure(StubRig(tmp_path, rounds=1))
    assert "the norm does not rise, but falls on" in experiment_learning_failures.page(found)
    curve = found["clicks"]["curves"]["0"]
    for place in range(16, 20):
        curve[place] = [curve[place][0], 9.0, 100, 90.0]
    told = experiment_learning_failures.page(found)
    assert "the norm rises" in told and "to 0.900" in told


def test_kills_and_the_stretch_are_marked(planted: Any, tmp_path: Path) -> None:
    planted(Runs())
    curves = experiment_learning_failures.measure(StubRig(tmp_path, rounds=1))["clicks"]["curves"]
    merges = experiment_learning_failures._by_merges("clicks", curves)
    assert merges.marks == {"kills": 4.5} and merges.shaded["a feature is missing"] == (
        16.5,
        pytest.approx(27.2, abs=0.1),
    )
    calm, *killed = experiment_learning_failures._by_seconds("higgs", curves).lines
    assert calm.pause is None and [one.pause for one in killed] == [(curves["4"][3][0], curves["4"][4][0])] * 2


def test_a_violation_of_the_theorem_is_told(planted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = planted(Runs())
    real = runs.trained_run
    for module in EXPERIMENTS:
        monkeypatch.setattr(
            module, "trained_run", lambda *given, **settings: real(*given, **settings) | {"held": False}
        )
        assert "VIOLATED" in module.page(module.measure(StubRig(tmp_path, rounds=1)))


def test_delays_are_lengths_of_steps() -> None:
    slow = Delays(length=0.1, slow=4.0)
    assert slow.pause(0.02, 0, 0, 0) == pytest.approx(0.08 + 0.3)
    assert slow.pause(0.02, 1, 0, 0) == pytest.approx(0.08)
    assert slow.pause(0.2, 0, 0, 0) == pytest.approx(0.6)
    chance = Delays(length=0.1, chance=0.25, longer=3.0)
    drawn = [chance.pause(0.1, worker, 0, step) for worker in range(11) for step in range(100)]
    assert {round(one, 3) for one in drawn} == {0.0, 0.3}
    assert 0.2 < np.mean([one > 0 for one in drawn]) < 0.3


def test_eleven_workers_have_whole_chunks_and_steps() -> None:
    for data in eleven_data(2, 8).values():
        assert data.batch == 2 * ELEVEN * CHUNK and data.iteration == CHUNK // 4


def test_long_curves_are_told_with_fewer_points() -> None:
    curve = [[float(at), 1.0 / (1 + at), 2, 1.0] for at in range(5000)]
    thin = thinned_curve(curve)
    assert len(thin) <= SHOWN_POINTS
    assert sum(point[2] for point in thin) == 10_000 and thin[-1][0] == 4999


def test_the_driver_of_the_native_model_averages_by_items_and_saves(tmp_path: Path) -> None:
    found = DriverModel(np.zeros(4), tmp_path)
    cells = [np.array(index, np.uint32).tobytes() for index in ([0, 1], [1, 3])]
    changes = [np.array(values, float).tobytes() for values in ([4.0, 4.0], [8.0, 8.0])]
    found.merge(pa.table({"cells": cells, "changes": changes, "items": [1, 3], "loss": [1.0, 2.0]}))
    assert found.model.tolist() == [1.0, 7.0, 0.0, 6.0]
    found.save(5)
    kept = np.load(tmp_path / "model.npz")
    assert kept["model"].tolist() == found.model.tolist() and (kept["batch"], kept["items"]) == (5, 4)


def test_a_step_costs_more_the_more_it_pushes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_cost, "CELLS", (1, 200_000))
    monkeypatch.setattr(exchange_cost, "STEPS", 8)
    found = exchange_cost.exchange_cost()
    assert found["step_ms"] > 0 and found["megabyte_ms"] > 0
