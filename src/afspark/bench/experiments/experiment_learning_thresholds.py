"""Convergence against Θ and L (experiment 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.drawing_panels import Line, LinePanel, Panel, save_panels
from afspark.bench.interleave import Contest, spread_of
from afspark.bench.kept_rounds import run_contests
from afspark.bench.learning_curves import curve_seconds_to, mean_norms, settled_norm
from afspark.bench.markdown import spread, table
from afspark.bench.rig import Rig
from afspark.bench.training_runs import ELEVEN, SLOTS, TrainingData, eleven_data, trained_run, training
from afspark.model.consistency import BSP
from afspark.report.convergence_plot import NORM

TITLE = "Training: convergence against Θ and L (experiment 8)"
THETAS, ITEMS = (0.01, 0.1, 1.0, 10.0), (0, 20, 200, 2000)
CASES = dict.fromkeys([*((theta, 2000) for theta in THETAS), *((0.01, items) for items in ITEMS)])
BATCHES, STEPS = 8, 4
DATA = eleven_data(1, STEPS)
COLORS_OF = {"clicks": "#1f77b4", "higgs": "#d95f02"}


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
        f"L can make no difference beyond chance. In the papers a small L costs most.{_same(found)}\n\n"
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


def _same(found: Mapping[str, Any]) -> str:
    """What norms and seconds differ in."""
    if not all(_same_norms(cases) for cases in found.values()):
        return ""
    return (
        " The norm of a change is the same in all cases, merge by merge: thresholds decide what is backed up, and "
        "nothing that is learnt. Seconds differ by what backups take and by chance, which are not told apart by so few rounds."
    )


def draw(found: dict[str, Any], path: Path) -> str:
    thetas = {theta: f"{theta:g}" for theta in THETAS}
    panels: list[Panel] = [
        LinePanel(
            title="MB backed up, by Θ (L = 2000)",
            lines=[_backups(name, cases, [(theta, 2000) for theta in THETAS]) for name, cases in found.items()],
            xlabel="Θ",
            ylabel="MB",
            log=True,
            ticks=dict(enumerate(thetas.values())),
        ),
        LinePanel(
            title="MB backed up, by L (Θ = 0.01)",
            lines=[_backups(name, cases, [(0.01, items) for items in ITEMS]) for name, cases in found.items()],
            xlabel="L",
            ylabel="MB",
            log=True,
            ticks={place: str(items) for place, items in enumerate(ITEMS)},
        ),
    ]
    for name, cases in found.items():
        same = ": the same merge by merge" if _same_norms(cases) else ""
        panels.append(
            LinePanel(
                title=f"{name}, norms in all {len(cases)} cases{same}",
                lines=[
                    Line(
                        name="",
                        x=[point[0] for point in one["curve"][-len(means) :]],
                        y=means,
                        color=COLORS_OF[name],
                        width=1.0,
                        alpha=0.45,
                        steps=True,
                    )
                    for one in cases.values()
                    for means in [mean_norms(one["curve"])]
                ],
                xlabel="seconds",
                ylabel=f"{NORM}, mean",
                log=True,
                legend=False,
            )
        )
    save_panels(path, panels, title="Convergence against Θ and L")
    return (
        "What was backed up, by Θ and by L; and over time the mean norm of the newest tenth of all changes, a line for each "
        "case. Where the norms are the same merge by merge, lines differ by how long batches took and by nothing else. The "
        "papers' figure 11 has norms by L and Θ"
    )


def _backups(name: str, cases: Mapping[str, Any], chosen: Sequence[tuple[float, int]]) -> Line:
    """Megabytes of the chosen thresholds, one after the other."""
    spreads = [cases[_label(*one)]["backup_bytes"] for one in chosen]
    told = [{what: value / 1e6 for what, value in spread.items()} for spread in spreads]
    return Line(name=name, x=range(len(told)), y=[one["median"] for one in told], color=COLORS_OF[name], spread=told)


def _same_norms(cases: Mapping[str, Any]) -> bool:
    return len({tuple(point[1] for point in one["curve"]) for one in cases.values()}) == 1
