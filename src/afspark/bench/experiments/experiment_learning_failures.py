"""Convergence while local workers are killed: none, four or eight of eleven after a tenth of the input (experiment 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.interleave import spread_of
from afspark.bench.kept_rounds import run_contests
from afspark.bench.learning_curves import (
    LearningCurve,
    batch_excess,
    delay_in_merges,
    delay_of,
    part_of,
    settled_norm,
)
from afspark.bench.markdown import table
from afspark.bench.rig import Rig
from afspark.bench.training_runs import ELEVEN, SLOTS, TrainingData, eleven_data, kills_after, trained_run, training
from afspark.model.consistency import BSP
from afspark.report.convergence_plot import NormLine, save_norms

TITLE = "Training: convergence while workers are killed (experiment 7)"
#: On two cores about as long as the papers' runs, half a minute: what a recovery takes does not depend on that.
BATCHES, CHUNKS, STEPS = 20, 2, 8
KILLS = (0, 4, 8)
DATA = eleven_data(CHUNKS, STEPS)
#: Delays of convergence by four and eight failures that the papers have (figure 10).
PAPERS = {"clicks": {"4": 0.076, "8": 0.133}, "higgs": {"4": 0.124, "8": 0.20}}


def measure(rig: Rig) -> dict[str, Any]:
    """Rounds in which each number of kills has a run; the curves are those of the last round."""
    kept = rig.kept("learning-failures", batches=BATCHES, chunks=CHUNKS, steps=STEPS)
    with rig.slots(SLOTS) as spark:
        contests = {
            name: {str(kills): partial(killed_run, spark, data, kills) for kills in KILLS}
            for name, data in DATA.items()
        }

        def warm_up() -> None:
            for data in DATA.values():
                killed_run(spark, data, 0, batches=3)

        found = run_contests(contests, rounds=rig.rounds, kept=kept, warm_up=warm_up)
    told = {name: summarised(contest.rounds) for name, contest in found.items()}
    kept.forget()
    return told


def killed_run(spark: SparkSession, data: TrainingData, kills: int, *, batches: int = BATCHES) -> dict[str, Any]:
    """So many local workers are killed after a tenth of the batches."""
    model = training(
        spark,
        data,
        af.Approximate(theta=0.01, items=2000),
        rows=batches * data.batch,
        iteration=data.iteration,
        consistency=BSP(),
        workers=ELEVEN,
    )
    return trained_run(model, data, faults=kills_after(kills, batch=batches // 10))


def summarised(rounds: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Delays, seconds and losses over rounds; the curves and events of the last round."""
    calm = rounds[str(KILLS[0])]
    return {
        "delays": {
            case: [delay_of(one["curve"], usual["curve"]) for one, usual in zip(runs, calm, strict=True)]
            for case, runs in rounds.items()
            if runs is not calm
        },
        "in_merges": {
            case: [delay_in_merges(one["curve"], usual["curve"]) for one, usual in zip(runs, calm, strict=True)]
            for case, runs in rounds.items()
            if runs is not calm
        },
        "within": {
            case: [
                part_of(batch_excess(one["batches"], len(one["batches"]) // 10), usual["curve"])
                for one, usual in zip(runs, calm, strict=True)
            ]
            for case, runs in rounds.items()
            if runs is not calm
        },
        **{
            figure: {case: spread_of([one[figure] for one in runs]) for case, runs in rounds.items()}
            for figure in ("seconds", "log_loss", "regret_per_item")
        },
        "failures": {case: [one["failures"] for one in runs] for case, runs in rounds.items()},
        "held": all(one["held"] for runs in rounds.values() for one in runs),
        "curves": {case: runs[-1]["curve"] for case, runs in rounds.items()},
        "events": calm[-1]["events"],
    }


def page(found: dict[str, Any]) -> str:
    text = (
        f"{ELEVEN} local workers in {SLOTS} slots on two cores train a logistic regression in rounds (`BSP`), "
        f"{BATCHES} batches of {DATA['clicks'].batch:,} items, {STEPS} steps of a worker in each; Θ = 0.01, L = 2000. Clicks have an "
        "anomalous stretch, from 40 % to 67 % of the stream, whose items miss a feature. After a tenth of the input some "
        "workers lose state and process in the middle of a batch. Delay: how much later changes of the model are as small "
        "as in the last tenth of the run without kills (means of a tenth of all merges, to 5 %), and stay so; a dash where "
        "they are not. It compares two runs on a noisy machine. Beside it the same in merges, which is what the model "
        "itself is behind, and how much longer the batch with the kills and the next took than two usual ones of the same "
        "run, over the same time. Seconds count from the first merge on. Rounds side by side. Theorem 1 held in every run, or it says so.\n\n"
    )
    rows = []
    for name, part in found.items():
        for case, seconds in part["seconds"].items():
            rows.append(
                [
                    name,
                    case,
                    ", ".join(_percent(one) for one in part["delays"].get(case, [])),
                    ", ".join(_percent(one) for one in part["in_merges"].get(case, [])),
                    ", ".join(_percent(one) for one in part["within"].get(case, [])),
                    _percent(PAPERS[name].get(case)) if case in PAPERS[name] else "",
                    f"{seconds['median']:.1f}",
                    f"{settled_norm(part['curves'][case]):.3g}",
                    f"{part['log_loss'][case]['median']:.4f}",
                    f"{part['regret_per_item'][case]['median']:.4f}",
                    "held" if part["held"] else "VIOLATED",
                ]
            )
    head = [
        "items",
        "killed",
        "delay",
        "in merges",
        "by the batch with the kills",
        "papers",
        "seconds",
        "norm at the end",
    ]
    head += ["log loss", "regret/item", "theorem 1"]
    return text + table(head, rows) + _exchanges(found)


def _exchanges(found: Mapping[str, Any]) -> str:
    """How many processes have pushed and pulled in the last batch of a run, and how long pulls waited."""
    rows = []
    for name, part in found.items():
        pulls, pushes = part["events"]["pulls"], part["events"]["pushes"]
        if pulls:
            waits = sorted(answered - asked for _, _, _, asked, answered, _ in pulls)
            processes = len({one[1] for one in pushes})
            rows.append(
                [name, f"{processes}", f"{len(pushes)}", f"{len(pulls)}", f"{1e3 * waits[len(waits) // 2]:.1f}"]
            )
    head = ["last batch of", "processes", "pushes", "pulls", "a pull waits, ms (median)"]
    return "\n" + table(head, rows) if rows else ""


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def draw(found: dict[str, Any], path: Path) -> str:
    panels, notes, labels = {}, {}, {}
    for name, part in found.items():
        for kind in ("merges", "seconds"):
            panel = f"{name}, over {kind}"
            panels[panel] = [_line(f"{case} killed", curve, kind) for case, curve in part["curves"].items()]
            labels[panel] = kind
        later = ", ".join(f"{kills} killed {_percent(one)} later" for kills, one in PAPERS[name].items())
        notes[panel] = f"papers: {later}"
    save_norms(
        path,
        panels,
        title="Convergence under failures",
        xlabel=labels,
        notes=notes,
        exchanges={f"{name}, calm batch": part["events"] for name, part in found.items()},
    )
    return (
        "The norm of every change while workers are killed after a tenth of the input, beside the papers' figure 10; and "
        "who has pushed and pulled when in a batch"
    )


def _line(name: str, curve: LearningCurve, kind: str) -> NormLine:
    x = [point[0] for point in curve] if kind == "seconds" else list(range(1, len(curve) + 1))
    return NormLine(name, x, [point[1] for point in curve])
