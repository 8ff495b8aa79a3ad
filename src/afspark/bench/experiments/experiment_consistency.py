"""Three consistency models, with workers that are alike, one that is slow, and steps that are delayed (experiment 9)."""

from __future__ import annotations

from functools import partial
from typing import Any

import afspark as af
from afspark.bench.interleave import Measure, interleave
from afspark.bench.markdown import spread, table
from afspark.bench.rig import Rig
from afspark.bench.training_runs import DATA, Delays, TrainingData, trained_run, training
from afspark.model.consistency import ASP, BSP, SSP, Consistency

TITLE = "Training: three consistency models"
MODELS: tuple[Consistency, ...] = (BSP(), SSP(5), SSP(10), ASP())
#: A worker that takes four times as long, and steps that are three steps longer with a chance of a quarter.
DISTURBED = {"alike": Delays(), "one slow": Delays(slow=4.0), "delayed steps": Delays(chance=0.25, longer=3.0)}
BATCHES, STEPS = 4, 32


def measure(rig: Rig) -> dict[str, Any]:
    """All models under each disturbance."""
    found: dict[str, Any] = {}
    for name, data in DATA.items():
        for kind, delays in DISTURBED.items():
            contest = interleave(_contenders(rig, data, delays), rounds=rig.rounds)
            found[f"{name}, {kind}"] = {
                "figures": contest.to_json(),
                "ratios": {
                    str(model): contest.ratio_spread(str(model), str(MODELS[0]), "items_per_second")
                    for model in MODELS[1:]
                },
            }
    return found


def _contenders(rig: Rig, data: TrainingData, delays: Delays) -> dict[str, Measure]:
    def run(consistency: Consistency) -> dict[str, float]:
        model = training(
            rig.spark,
            data,
            af.Approximate(theta=0.01, items=2000),
            rows=BATCHES * data.batch,
            iteration=data.batch // 2 // STEPS,
            consistency=consistency,
            delays=delays,
        )
        return trained_run(model, data)

    return {str(model): partial(run, model) for model in MODELS}


def page(found: dict[str, Any]) -> str:
    text = (
        f"Two workers train a logistic regression, {STEPS} steps of a worker in a batch, {BATCHES} batches, Θ = 0.01 and "
        "L = 2000. Workers that are alike; one that takes four times as long; and any step of anybody three step lengths "
        "longer with a chance of a quarter. Throughput over that of `bsp`, and the log loss of all items, each predicted "
        "before it was learned from.\n\n"
    )
    rows = [
        [
            case,
            *(spread(part["ratios"][str(model)], "{:.2f}") for model in MODELS[1:]),
            *(f"{part['figures'][str(model)]['log_loss']['median']:.4f}" for model in MODELS),
        ]
        for case, part in found.items()
    ]
    head = ["workers", *(f"{model} / bsp" for model in MODELS[1:]), *(f"log loss, {model}" for model in MODELS)]
    return text + table(head, rows)
