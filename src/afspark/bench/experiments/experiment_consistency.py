"""Three consistency models, with workers that are alike, one that is slow, and steps that are delayed (experiment 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.drawing_panels import (
    DotPanel,
    ExchangePanel,
    Line,
    LinePanel,
    Panel,
    exchange_seconds,
    save_panels,
)
from afspark.bench.interleave import Contest, spread_of
from afspark.bench.kept_rounds import run_contests
from afspark.bench.learning_curves import seconds_to_loss, shared_loss
from afspark.bench.markdown import spread, table
from afspark.bench.rig import Rig
from afspark.bench.training_runs import (
    ELEVEN,
    SLOTS,
    Delays,
    TrainingData,
    eleven_data,
    trained_run,
    training,
)
from afspark.model.consistency import ASP, BSP, SSP, Consistency
from afspark.model.trajectory import windowed_losses
from afspark.report.convergence_plot import LOSS

TITLE = "Training: three consistency models (experiment 9)"
MODELS: tuple[Consistency, ...] = (BSP(), SSP(5), SSP(10), ASP())
FIRST = str(MODELS[0])
BATCHES, STEPS = 4, 32
DATA = eleven_data(1, STEPS)
#: Seconds of a step, as long as eleven workers on two cores need for one.
LENGTH = 0.03
#: A worker that takes four times as long, and steps that are three steps longer with a chance of a quarter.
DISTURBED = {
    "alike": Delays(length=LENGTH),
    "one slow": Delays(length=LENGTH, slow=4.0),
    "delayed steps": Delays(length=LENGTH, chance=0.25, longer=3.0),
}

#: What is drawn over time: where models differ.
SHOWN = ("one slow", "delayed steps")
#: Lines that cover each other are told apart: the last is thin on top of a thick one.
LOOKS: dict[str, dict[str, Any]] = {
    "bsp": {"color": "#6b7280", "width": 1.8},
    "ssp:5": {"color": "#1f77b4", "width": 1.8, "style": "--"},
    "ssp:10": {"color": "#fdae6b", "width": 4.5},
    "asp": {"color": "#7f2704", "width": 1.2},
}


def measure(rig: Rig) -> dict[str, Any]:
    """All models under each disturbance."""
    kept = rig.kept("consistency", batches=BATCHES, steps=STEPS, length=LENGTH)
    with rig.slots(SLOTS) as spark:
        contests = {
            f"{name}, {kind}": {str(model): partial(_run, spark, data, delays, model) for model in MODELS}
            for name, data in DATA.items()
            for kind, delays in DISTURBED.items()
        }

        def warm_up() -> None:
            for data in DATA.values():
                _run(spark, data, DISTURBED["alike"], BSP())

        found = run_contests(contests, rounds=rig.rounds, kept=kept, warm_up=warm_up)
    told = {case: _summed_up(contest) for case, contest in found.items()}
    for case, part in told.items():
        if case != _shown_exchange(told):
            del part["events"]
    kept.forget()
    return told


def _run(spark: SparkSession, data: TrainingData, delays: Delays, consistency: Consistency) -> dict[str, Any]:
    model = training(
        spark,
        data,
        af.Approximate(theta=0.01, items=2000),
        rows=BATCHES * data.batch,
        iteration=data.iteration,
        consistency=consistency,
        workers=ELEVEN,
        delays=delays,
    )
    found = trained_run(model, data)
    # The change of a whole batch can be compared; a merge is a round, or one worker's step.
    late = found["batches"][len(found["batches"]) // 2 :]
    return {**found, "last_norm": mean(norm for _, norm in late)}


def _summed_up(contest: Contest) -> dict[str, Any]:
    return {
        "figures": contest.to_json(),
        "sooner": sooner(contest.rounds),
        "ratios": {str(model): contest.ratio_spread(str(model), FIRST, "items_per_second") for model in MODELS[1:]},
        "norms": {str(model): contest.ratio_spread(str(model), FIRST, "last_norm") for model in MODELS[1:]},
        "held": all(one["held"] for rounds in contest.rounds.values() for one in rounds),
        "losses": {name: windowed_losses(rounds[-1]["curve"]) for name, rounds in contest.rounds.items()},
        "batches": {name: rounds[-1]["batches"] for name, rounds in contest.rounds.items()},
        "events": {name: rounds[-1]["events"] for name, rounds in contest.rounds.items() if name in (FIRST, "asp")},
    }


def _shown_exchange(cases: dict[str, Any]) -> str:
    """The case of which a batch is drawn step by step."""
    return next(case for case in reversed(cases) if case.endswith("delayed steps"))


def sooner(rounds: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, float]]:
    """How many times sooner than the first model each reaches the least loss that all of them reach in a round."""
    ratios: dict[str, list[float]] = {str(model): [] for model in MODELS[1:]}
    for number in range(len(rounds[FIRST])):
        curves = {name: runs[number]["curve"] for name, runs in rounds.items()}
        loss = shared_loss(list(curves.values()))
        usual = seconds_to_loss(curves[FIRST], loss)
        for model, found in ratios.items():
            seconds = seconds_to_loss(curves[model], loss)
            assert usual is not None and seconds is not None
            found.append(usual / seconds)
    return {model: spread_of(found) for model, found in ratios.items()}


def page(found: dict[str, Any]) -> str:
    text = (
        f"{ELEVEN} workers in {SLOTS} slots on two cores train a logistic regression, {STEPS} steps of a worker in a batch, "
        f"{BATCHES} batches, Θ = 0.01 and L = 2000. A step takes {1e3 * LENGTH:g} ms at least, as if every worker had a "
        "machine of its own. Workers that are alike; one that takes four times as long; and any step of anybody three step "
        "lengths longer with a chance of a quarter. Throughput over that of `bsp`. Sooner: how many times sooner than "
        "`bsp` the newest tenth of the items costs as little as it does at best with the worst of the models, and 0.5 % more, in seconds from the first "
        "merge on. Last norm: the L1 norm of what a batch has changed, the mean of the second half of all batches, over that "
        "with `bsp`.\n\n"
    )
    others = [str(model) for model in MODELS[1:]]
    rows = [
        [
            case,
            *(spread(part["ratios"][name], "{:.2f}") for name in others),
            *(spread(part["sooner"][name], "{:.2f}") for name in others),
            *(spread(part["norms"][name], "{:.2f}") for name in others),
            *(f"{part['figures'][name]['log_loss']['median']:.4f}" for name in (FIRST, *others)),
            "held" if part["held"] else "VIOLATED",
        ]
        for case, part in found.items()
    ]
    head = [
        "workers",
        *(f"{name} / bsp" for name in others),
        *(f"{name} sooner" for name in others),
        *(f"last norm, {name} / bsp" for name in others),
        *(f"log loss, {name}" for name in (FIRST, *others)),
        "theorem 1",
    ]
    return text + table(head, rows)


def draw(found: dict[str, Any], path: Path) -> str:
    panels: list[Panel] = [
        LinePanel(
            title=f"{name}, {kind}",
            lines=[_line(model, losses) for model, losses in found[f"{name}, {kind}"]["losses"].items()],
            xlabel="seconds",
            ylabel=LOSS,
            legend=False,
        )
        for name in DATA
        for kind in SHOWN
    ]
    panels += [
        _ratios("throughput over bsp", found, "ratios"),
        _ratios("norm of the last changes over bsp", found, "norms"),
    ]
    last = _shown_exchange(found)
    exchanges = {name: events for name, events in found[last]["events"].items() if events["pulls"]}
    longest = max((exchange_seconds(events) for events in exchanges.values()), default=0.0)
    panels += [
        ExchangePanel(title=f"{last}: {name}", events=events, seconds=longest) for name, events in exchanges.items()
    ]
    save_panels(path, panels, title="Three consistency models", legend=len(MODELS))
    return (
        "What the newest tenth of the items cost over time, with a worker that is slow and with delayed steps; throughput "
        "and the norm of the changes of the last batches in all cases, medians with the least and the most; and who has "
        "pushed and pulled when in a batch of delayed steps, in rounds and without waiting, on one scale. The papers' "
        "figure 12 shows norms, of workers that are alike"
    )


def _line(model: str, losses: Sequence[Sequence[float]]) -> Line:
    return Line(name=model, x=[at for at, _ in losses], y=[loss for _, loss in losses], **LOOKS[model])


def _ratios(title: str, found: Mapping[str, Any], figure: str) -> DotPanel:
    return DotPanel(
        title=title,
        groups={case.replace(", ", "\n").replace(" ", "\n"): part[figure] for case, part in found.items()},
        colors={model: str(look["color"]) for model, look in LOOKS.items()},
        xlabel="",
        ylabel="",
        level=1.0,
    )
