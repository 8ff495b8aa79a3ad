"""Convergence against Θ and L (experiment 8)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.interleave import Contest, spread_of
from afspark.bench.kept_rounds import run_contests
from afspark.bench.learning_curves import curve_seconds_to, settled_norm
from afspark.bench.markdown import spread, table
from afspark.bench.rig import Rig
from afspark.bench.training_runs import ELEVEN, SLOTS, TrainingData, eleven_data, trained_run, training
from afspark.model.consistency import BSP
from afspark.report.convergence_plot import NormLine, save_norms

TITLE = "Training: convergence against Θ and L (experiment 8)"
THETAS, ITEMS = (0.01, 0.1, 1.0, 10.0), (0, 20, 200, 2000)
CASES = dict.fromkeys([*((theta, 2000) for theta in THETAS), *((0.01, items) for items in ITEMS)])
BATCHES, STEPS = 8, 4
DATA = eleven_data(1, STEPS)


def measure(rig: Rig) -> dict[str, Any]:
    """Θ from 0.01 up with L = 2000, and L from 0 up with Θ = 0.01."""
    kept = rig.kept("learning-thresholds", batches=BATCHES, steps=STEPS)
    with rig.slots(SLOTS) as spark:
        contests = {
            name: {_label(*case): partial(_run, spark, data, *case) for case in CASES} for name, data in DATA.items()
        }

        def warm_up() -> None:
            for data in DATA.values():
                _run(spark, data, 0.01, 2000, batches=3)

        found = run_contests(contests, rounds=rig.rounds, kept=kept, warm_up=warm_up)
    told = {name: _summed_up(contest) for name, contest in found.items()}
    kept.forget()
    return told


def _label(theta: float, items: int) -> str:
    return f"Θ = {theta:g}, L = {items}"


def _run(
    spark: SparkSession, data: TrainingData, theta: float, items: int, *, batches: int = BATCHES
) -> dict[str, Any]:
    model = training(
        spark,
        data,
        af.Approximate(theta=theta, items=items),
        rows=batches * data.batch,
        iteration=data.iteration,
        consistency=BSP(),
        workers=ELEVEN,
    )
    found = trained_run(model, data)
    return {name: found[name] for name in ("curve", "seconds", "backup_bytes", "log_loss", "held")}


def _summed_up(contest: Contest) -> dict[str, Any]:
    return {case: _case(runs, contest) for case, runs in contest.rounds.items()}


def _case(runs: Sequence[dict[str, Any]], contest: Contest) -> dict[str, Any]:
    """Seconds until changes are as small as in the last tenth of the first case's run of the same round."""
    first = next(iter(contest.rounds.values()))
    reached = [
        curve_seconds_to(one["curve"], settled_norm(usual["curve"])) for one, usual in zip(runs, first, strict=True)
    ]
    return {
        "reached": reached,
        "seconds": spread_of([one["seconds"] for one in runs]),
        "backup_bytes": spread_of([one["backup_bytes"] for one in runs]),
        "log_loss": spread_of([one["log_loss"] for one in runs]),
        "held": all(one["held"] for one in runs),
        "curve": runs[-1]["curve"],
    }


def page(found: dict[str, Any]) -> str:
    text = (
        f"{ELEVEN} local workers as in experiment 7, {BATCHES} batches, nothing fails. Seconds until changes of the model "
        "are as small as in the last tenth of the first case's run of the same round, and stay so, in every round; a dash "
        "where they are not. L counts pushed items: here input can be read again, so that no item is ever backed up, and "
        "L can make no difference beyond chance. In the papers a small L costs most.\n\n"
    )
    rows = [
        [
            name,
            case,
            ", ".join("–" if one is None else f"{one:.1f}" for one in part["reached"]),
            spread(part["seconds"]),
            f"{part['backup_bytes']['median'] / 1e6:.1f}",
            f"{part['log_loss']['median']:.4f}",
            "held" if part["held"] else "VIOLATED",
        ]
        for name, cases in found.items()
        for case, part in cases.items()
    ]
    head = ["items", "thresholds", "s to the norm", "s in all", "MB backed up", "log loss", "theorem 1"]
    return text + table(head, rows)


def draw(found: dict[str, Any], path: Path) -> str:
    panels = {}
    for name, cases in found.items():
        for kind, chosen in (("Θ", [(theta, 2000) for theta in THETAS]), ("L", [(0.01, items) for items in ITEMS])):
            labels = [_label(*one) for one in chosen]
            panels[f"{name}, against {kind}"] = [
                NormLine(
                    label, [point[0] for point in cases[label]["curve"]], [point[1] for point in cases[label]["curve"]]
                )
                for label in labels
            ]
    save_norms(path, panels, title="Convergence against Θ and L", xlabel="seconds")
    return "The norm of every change over time, for several Θ and L; the papers' figure 11"
