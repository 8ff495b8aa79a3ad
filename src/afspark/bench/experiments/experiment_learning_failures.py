"""Convergence while local workers are killed: none, four or eight of eleven after a tenth of the input (experiment 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.anomalous_clicks import FIRST, LAST
from afspark.bench.drawing_panels import ExchangePanel, Line, LinePanel, Panel, save_panels
from afspark.bench.interleave import spread_of
from afspark.bench.kept_rounds import run_contests
from afspark.bench.learning_curves import (
    LearningCurve,
    batch_excess,
    delay_in_merges,
    delay_of,
    mean_norms,
    part_of,
    settled_norm,
)
from afspark.bench.markdown import table
from afspark.bench.rig import Rig
from afspark.bench.training_runs import ELEVEN, SLOTS, TrainingData, eleven_data, kills_after, trained_run, training
from afspark.model.consistency import BSP
from afspark.report.convergence_plot import LOSS, NORM

TITLE = "Training: convergence while workers are killed (experiment 7)"
#: On two cores about as long as the papers' runs, half a minute: what a recovery takes does not depend on that.
BATCHES, CHUNKS, STEPS = 20, 2, 8
KILLS = (0, 4, 8)
DATA = eleven_data(CHUNKS, STEPS)
#: Delays of convergence by four and eight failures that the papers have (figure 10).
PAPERS = {"clicks": {"4": 0.076, "8": 0.133}, "higgs": {"4": 0.124, "8": 0.20}}

GAPPED, GAP = "clicks", "a feature is missing"
COLORS_OF = {"0": "#6b7280", "4": "#1f77b4", "8": "#d95f02"}
Curves = Mapping[str, LearningCurve]


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
    return text + table(head, rows) + _beside_the_papers(found) + _exchanges(found)


def _beside_the_papers(found: Mapping[str, Any]) -> str:
    """Whether norms rise where theirs do, as the data tell."""
    same = all(_same_norms(part["curves"]) for part in found.values())
    calm = found[GAPPED]["curves"][str(KILLS[0])]
    (norm, loss), (other_norm, other_loss), (_, last_loss) = (
        _tenth(calm, end) for end in (FIRST, FIRST + 0.1, LAST + 0.1)
    )
    kills = (
        "here changes are the same with and without kills, merge by merge: kills cost time, and nothing else"
        if same
        else "here changes with kills differ from those without"
    )
    rises = "rises" if other_norm > norm else "does not rise, but falls on"
    return (
        "In the papers' figure 10 the norm rises sharply twice with clicks: right after the kills, and in the anomalous "
        f"stretch, whether anybody is killed or not. After the kills {kills}. In the "
        f"stretch the norm {rises}: {norm:.4g} in the mean of a tenth of all merges before it, {other_norm:.4g} in the "
        f"first tenth of it. What an item costs goes from {loss:.3f} to {other_loss:.3f}, and is {last_loss:.3f} in the "
        "tenth after it. The papers' clicks are a real trace, ours are drawn with labels as if the feature were there.\n"
    )


def _same_norms(curves: Curves) -> bool:
    return len({tuple(point[1] for point in curve) for curve in curves.values()}) == 1


def _tenth(curve: LearningCurve, end: float) -> tuple[float, float]:
    """The mean norm, and what an item costs, in the tenth of a curve that ends at a part of it."""
    points = curve[round((end - 0.1) * len(curve)) : round(end * len(curve))]
    return mean(point[1] for point in points), sum(point[3] for point in points) / sum(point[2] for point in points)


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
    panels: list[Panel] = []
    for name, part in found.items():
        panels += [_by_merges(name, part["curves"]), _by_seconds(name, part["curves"])]
    panels.append(_losses(GAPPED, found[GAPPED]["curves"]))
    if found[GAPPED]["events"]["pulls"]:
        panels.append(ExchangePanel(title=f"{GAPPED}, a calm batch", events=found[GAPPED]["events"]))
    bars = "thick bars: from the last merge before the kills to the first after them"
    save_panels(path, panels, title="Convergence under failures", subtitle=bars)
    return (
        "The norm of every change of the model by merges, and over seconds the mean of the newest tenth of all changes, "
        "while workers are killed after a tenth of the input, to be held against the papers' figure 10; what items cost; "
        "and who has pushed and pulled when in a batch"
    )


def _by_merges(name: str, curves: Curves) -> LinePanel:
    lines = _each_once(curves, lambda point: point[1])
    same = ": all curves are identical" if len(lines) == 1 else ""
    return _over_merges(f"{name}, over merges{same}", name, lines, NORM, log=True)


def _losses(name: str, curves: Curves) -> LinePanel:
    return _over_merges(f"{name}, over merges", name, _each_once(curves, lambda point: point[3] / point[2]), LOSS)


def _over_merges(title: str, name: str, lines: Sequence[Line], label: str, *, log: bool = False) -> LinePanel:
    count = len(lines[0].x)
    shaded = {GAP: (FIRST * count + 0.5, LAST * count + 0.5)} if name == GAPPED else {}
    marks = {"kills": _before_kills(lines[0].x) + 0.5}
    return LinePanel(title=title, lines=lines, xlabel="merges", ylabel=label, log=log, shaded=shaded, marks=marks)


def _each_once(curves: Curves, figure: Callable[[Sequence[float]], float]) -> list[Line]:
    """A line for all curves whose figures are the same."""
    names: dict[tuple[float, ...], list[str]] = {}
    for case, curve in curves.items():
        names.setdefault(tuple(figure(point) for point in curve), []).append(case)
    return [
        Line(
            name=f"{_told(cases)} killed",
            x=range(1, len(values) + 1),
            y=values,
            color=COLORS_OF[cases[0]],
            steps=True,
        )
        for values, cases in names.items()
    ]


def _told(names: Sequence[str]) -> str:
    """
    >>> _told(["0", "4", "8"]), _told(["8"])
    ('0, 4 and 8', '8')
    """
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _by_seconds(name: str, curves: Curves) -> LinePanel:
    calm = curves[str(KILLS[0])]
    lines = []
    for case, curve in curves.items():
        means, before = mean_norms(curve), _before_kills(curve)
        lines.append(
            Line(
                name=f"{case} killed",
                x=[point[0] for point in curve[-len(means) :]],
                y=means,
                color=COLORS_OF[case],
                steps=True,
                pause=(curve[before - 1][0], curve[before][0]) if curve is not calm else None,
            )
        )
    first, last = (calm[round(part * len(calm)) - 1][0] for part in (FIRST, LAST))
    later = ", ".join(f"{kills} killed {_percent(one)} later" for kills, one in PAPERS[name].items())
    return LinePanel(
        title=f"{name}, over seconds\npapers: {later}",
        lines=lines,
        xlabel="seconds",
        ylabel=f"{NORM}, mean",
        log=True,
        shaded={f"{GAP}\n(0 killed)": (first, last)} if name == GAPPED else {},
    )


def _before_kills(merges: Sequence[Any]) -> int:
    """How many merges there were when workers were killed."""
    return max(1, len(merges) // 10)
