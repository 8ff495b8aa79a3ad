"""What fault tolerance costs workers that train one model, by the items of a step (AF-Stream, experiment 6)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import afspark as af
from afspark.bench.drawing_panels import DotPanel, Spread, save_panels
from afspark.bench.exchange_cost import CELL_BYTES, exchange_cost
from afspark.bench.interleave import AGAIN, NONE, Contest, Measure
from afspark.bench.kept_rounds import Contenders, run_contests
from afspark.bench.markdown import spread, table
from afspark.bench.native_training import native_training
from afspark.bench.rig import Rig
from afspark.bench.training_runs import DATA, WORKERS, TrainingData, merged_by_batch, trained_run, training
from afspark.model.consistency import BSP

TITLE = "Training: what fault tolerance costs, by the items of a step (experiment 6)"
#: The papers' thresholds, whose ratios are averaged.
THETAS = (0.1, 1.0, 10.0)
APPROXIMATE = {theta: f"approximate, Θ = {theta:g}" for theta in THETAS}
MINIBATCH, SNAPSHOT, BY_BATCH = "mini-batch", "snapshots every 3 s", "merged by batch"
NATIVE, NATIVE_NONE = "native", "native, in memory"
TOLERANCES: dict[str, af.Tolerance] = {
    **{name: af.Approximate(theta=theta, items=2000) for theta, name in APPROXIMATE.items()},
    MINIBATCH: af.MiniBatch(),
    SNAPSHOT: af.BarrierSnapshot(interval=3.0),
}
BATCHES = 12
#: Steps of a worker in a batch, and batches of a native run, whose batch is a step of everybody.
PARTS = {16: 12, 4: 8, 1: 6}
#: Papers: throughput with over without fault tolerance, averaged over sizes of iterations.
PAPERS = {"clicks": 0.9886, "higgs": 0.9894}
BOTH = "none, mean of both runs"
COLORS_OF = {
    BOTH: "#222222",
    APPROXIMATE[0.1]: "#fdae6b",
    APPROXIMATE[1.0]: "#d95f02",
    APPROXIMATE[10.0]: "#7f2704",
    MINIBATCH: "#1b9e77",
    SNAPSHOT: "#7570b3",
    NATIVE_NONE: "#7fb3d9",
    NATIVE: "#1f77b4",
}


def measure(rig: Rig) -> dict[str, Any]:
    """Steps of a sixteenth of a worker's share of a batch, a quarter, and all of it."""
    cases = {_case(name, data, parts): (data, parts) for name, data in DATA.items() for parts in PARTS}
    contests = {case: _contenders(rig, *one) for case, one in cases.items()}
    kept = rig.kept("training-cost", batches=BATCHES)

    def warm_up() -> None:
        for data in DATA.values():
            native_training(rig.spark, data, batches=3, batch=data.batch, durable=True)
            _trained(rig, data, af.MiniBatch(), data.batch // WORKERS, batches=3)
            _by_batch(rig, data, batches=3)

    found = run_contests(contests, rounds=rig.rounds, kept=kept, warm_up=warm_up)
    result = {
        "batches": BATCHES,
        "parts": PARTS,
        "cases": {case: _summed_up(contest) for case, contest in found.items()},
        "exchange": exchange_cost(),
    }
    kept.forget()
    return result


def _case(name: str, data: TrainingData, parts: int) -> str:
    return f"{name}, {data.batch // WORKERS // parts:,}"


def _trained(
    rig: Rig, data: TrainingData, tolerance: af.Tolerance, iteration: int, *, batches: int = BATCHES
) -> dict[str, Any]:
    rows = batches * data.batch
    model = training(rig.spark, data, tolerance, rows=rows, iteration=iteration, consistency=BSP())
    found = trained_run(model, data)
    return {name: found[name] for name in ("items_per_second", "batch", "backup_bytes", "log_loss", "held")}


def _by_batch(rig: Rig, data: TrainingData, *, batches: int = BATCHES) -> dict[str, Any]:
    model = merged_by_batch(rig.spark, data, af.Nothing(), rows=batches * data.batch)
    return trained_run(model, data, together=False)


def _contenders(rig: Rig, data: TrainingData, parts: int) -> Contenders:
    iteration = data.batch // WORKERS // parts
    run = partial(_trained, rig, data, iteration=iteration)
    none = partial(run, tolerance=af.Nothing())
    found: dict[str, Measure] = {NONE: none, AGAIN: none}
    found |= {name: partial(run, tolerance=tolerance) for name, tolerance in TOLERANCES.items()}
    native = partial(native_training, rig.spark, data, batches=PARTS[parts], batch=WORKERS * iteration)
    found |= {NATIVE: partial(native, durable=True), NATIVE_NONE: partial(native, durable=False)}
    # Its iteration is a whole share.
    return found | ({BY_BATCH: partial(_by_batch, rig, data)} if parts == 1 else {})


def _summed_up(contest: Contest) -> dict[str, Any]:
    ratio = partial(contest.ratio_spread, figure="items_per_second")
    ours = [AGAIN, *TOLERANCES]
    found: dict[str, Any] = {
        "figures": contest.to_json(),
        "ratios": {name: ratio(name, NONE) for name in ours},
        # Of the usual batch, where neither a pause of the machine nor one of Spark shows.
        "usual": {name: contest.ratio_spread(NONE, name, "batch") for name in ours},
        "native": {NATIVE: ratio(NATIVE, NATIVE_NONE), "none / native": ratio(NONE, NATIVE)},
        "held": all(one.get("held", True) for rounds in contest.rounds.values() for one in rounds),
    }
    if BY_BATCH in contest.rounds:
        found["over_by_batch"] = ratio(NONE, BY_BATCH)
    return found


def averages(found: dict[str, Any], figure: str) -> dict[str, tuple[float, float]]:
    """By data: approximate over the mean of both runs of none, averaged over Θ and the sizes of steps; and the standard
    error of that. ``figure``: "items_per_second", or "batch", where less is better.
    """
    sign = -1 if figure == "batch" else 1
    told = {}
    for name in DATA:
        ratios = []
        for case, part in found["cases"].items():
            if case.startswith(f"{name},"):
                medians = {one: figures[figure]["median"] for one, figures in part["figures"].items()}
                none = mean((medians[NONE], medians[AGAIN]))
                ratios += [(medians[one] / none) ** sign for one in APPROXIMATE.values()]
        told[name] = mean(ratios), stdev(ratios) / len(ratios) ** 0.5
    return told


def page(found: dict[str, Any]) -> str:
    # What older figures do not tell is not known.
    count = f"{found['batches']} batches" if "batches" in found else "batches"
    native = ""
    if "parts" in found:
        steps, runs = (", ".join(str(one) for one in of) for of in (found["parts"], found["parts"].values()))
        native = f"With {steps} steps of a worker in a batch of ours, a native run has {runs} batches. "
    text = (
        f"Two workers train a logistic regression in rounds (`BSP`), {count} of 2²⁰ clicks or collisions; "
        "throughput over that of none, medians over rounds, in brackets the least and the most. None runs twice in each "
        "round: what its second run does over the first is the scatter of the machine, and no other ratio is known "
        "better. Native: plain Structured Streaming, `foreachBatch` with the same kernels on a model that is broadcast "
        f"for every batch and averaged in the driver; a batch is an iteration. {native}It saves its model with every batch "
        "beside Spark's checkpoint, or has both in memory only.\n\n"
    )
    cases, names = found["cases"], [AGAIN, *TOLERANCES]
    rows = [
        [case, *(spread(part["ratios"][name], "{:.3f}") for name in names), *_native(part)]
        for case, part in cases.items()
    ]
    head = ["items, of a worker's step", *names, BOTH, "native / in memory", "none / native"]
    text += table(head, rows)
    for figure, what in (("items_per_second", "throughput"), ("batch", "usual batch")):
        told = ", ".join(
            f"{name} **{ratio:.3f}** ± {error:.3f} (papers: {PAPERS[name]})"
            for name, (ratio, error) in averages(found, figure).items()
        )
        text += f"- approximate over the mean of both runs of none, averaged over Θ and sizes, by {what}: {told}\n"
    for case, part in cases.items():
        if "over_by_batch" in part:
            ratio = spread(part["over_by_batch"], "{:.2f}")
            text += f"- {case}: **{ratio}** of the throughput of `logistic_regression`, merged once a batch\n"
    held = all(part["held"] for part in cases.values())
    text += f"- theorem 1: {'held in every run' if held else 'VIOLATED'}\n\n"
    return text + _exchange(found["exchange"])


def _native(part: dict[str, Any]) -> list[str]:
    return [f"{_drawn(part)[BOTH]['median']:.2f} M/s", *(spread(ratio, "{:.2f}") for ratio in part["native"].values())]


def _exchange(found: dict[str, Any]) -> str:
    text = (
        "A step besides learning, from one process to a server in another: a push, a merge into a model of a million "
        f"cells, and a pull of what has changed. **{found['step_ms']:.2f} ms** a step, and **{found['megabyte_ms']:.2f} "
        "ms** a pushed megabyte, which is pulled as well.\n\n"
    )
    rows = [
        [f"{int(cells):,}", f"{int(cells) * CELL_BYTES / 1e6:.3g}", f"{milliseconds:.2f}"]
        for cells, milliseconds in found["steps"].items()
    ]
    return text + table(["cells pushed", "MB", "ms"], rows)


def draw(found: dict[str, Any], path: Path) -> str:
    panels = [
        DotPanel(
            title=f"{name}, million items a second",
            groups={size: _drawn(part) for size, part in cases.items()},
            colors=COLORS_OF,
            xlabel="items of a worker's step",
            ylabel="",
            aims={size: PAPERS[name] * _drawn(part)[BOTH]["median"] for size, part in cases.items()},
            aimed=list(APPROXIMATE.values()),
            aim="none times what approximate has over none in the papers: 0.989",
        )
        for name, cases in _by_data(found).items()
    ]
    rounds = "dots are medians over rounds, bars go from the least to the most; that of none spans both of its runs"
    save_panels(path, panels, title="Throughput of training", subtitle=rounds, legend=3)
    return (
        "Throughput with and without fault tolerance, and of native Structured Streaming, by the items of a worker's step, "
        "on one scale; beside the papers' figure 9, of whose approximate fault tolerance the black lines tell"
    )


def _by_data(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The cases of each data by the size of a step."""
    told: dict[str, dict[str, Any]] = {}
    for case, part in found["cases"].items():
        name, _, size = case.partition(", ")
        told.setdefault(name, {})[size] = part
    return told


def _drawn(part: Mapping[str, Any]) -> dict[str, Spread]:
    """Million items a second of each contender; both runs of none together."""
    figures = {name: one["items_per_second"] for name, one in part["figures"].items()}
    runs = figures[NONE], figures[AGAIN]
    both = {
        "median": mean(one["median"] for one in runs),
        "least": min(one["least"] for one in runs),
        "most": max(one["most"] for one in runs),
    }
    shown = {BOTH: both} | {name: figures[name] for name in COLORS_OF if name in figures}
    return {name: {what: value / 1e6 for what, value in one.items()} for name, one in shown.items()}
