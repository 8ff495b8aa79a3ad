"""What fault tolerance costs workers that train one model, by the items of a step (AF-Stream, experiment 6)."""

from __future__ import annotations

from functools import partial
from typing import Any

import afspark as af
from afspark.bench.interleave import AGAIN, NONE, Measure, interleave
from afspark.bench.markdown import spread, table
from afspark.bench.rig import Rig
from afspark.bench.training_runs import DATA, TrainingData, merged_by_batch, trained_run, training
from afspark.model.consistency import BSP

TITLE = "Training: what fault tolerance costs, by the items of a step"
APPROXIMATE, MINIBATCH, SNAPSHOT, BY_BATCH = "approximate", "mini-batch", "snapshots every 3 s", "merged by batch"
TOLERANCES: dict[str, af.Tolerance] = {
    APPROXIMATE: af.Approximate(theta=1, items=2000),
    MINIBATCH: af.MiniBatch(),
    SNAPSHOT: af.BarrierSnapshot(interval=3.0),
}
BATCHES = 10


def measure(rig: Rig) -> dict[str, Any]:
    """Steps of a sixteenth of a worker's share of a batch, a quarter, and all of it."""
    found: dict[str, Any] = {}
    for name, data in DATA.items():
        for parts in (16, 4, 1):
            iteration = data.batch // 2 // parts
            contest = interleave(_contenders(rig, data, iteration), rounds=rig.rounds)
            others = [AGAIN, BY_BATCH, *TOLERANCES]
            found[f"{name}, {iteration:,}"] = {
                "figures": contest.to_json(),
                "ratios": {other: contest.ratio_spread(other, NONE, "items_per_second") for other in others},
            }
    return found


def _contenders(rig: Rig, data: TrainingData, iteration: int) -> dict[str, Measure]:
    rows = BATCHES * data.batch

    def run(tolerance: af.Tolerance) -> dict[str, float]:
        model = training(rig.spark, data, tolerance, rows=rows, iteration=iteration, consistency=BSP())
        return trained_run(model, data)

    def by_batch() -> dict[str, float]:
        return trained_run(merged_by_batch(rig.spark, data, af.Nothing(), rows=rows), data)

    none = partial(run, af.Nothing())
    others: dict[str, Measure] = {name: partial(run, tolerance) for name, tolerance in TOLERANCES.items()}
    return {NONE: none, AGAIN: none, BY_BATCH: by_batch, **others}


def page(found: dict[str, Any]) -> str:
    text = (
        "Two workers train a logistic regression in rounds (`BSP`), ten batches of 2²⁰ clicks or 2¹⁹ collisions; "
        "throughput over that of none, medians over rounds, in brackets the least and the most. None runs twice in each "
        "round: what its second run does over the first is the scatter of the machine. “Merged by batch” is "
        "`logistic_regression`, whose workers hear of each other once a batch.\n\n"
    )
    names = [AGAIN, BY_BATCH, *TOLERANCES]
    rows = [
        [
            case,
            *(spread(part["ratios"][name], "{:.2f}") for name in names),
            f"{part['figures'][NONE]['items_per_second']['median'] / 1e6:.2f} M/s",
        ]
        for case, part in found.items()
    ]
    return text + table(["items, of a worker's step", *names, "none"], rows)
