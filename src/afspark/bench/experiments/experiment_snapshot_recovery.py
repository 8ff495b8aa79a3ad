"""How long a recovery from barrier snapshots takes: by interval, by size of the state, partial and full."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from afspark.bench.drawing import Curve, grid
from afspark.bench.kept_rounds import Contenders, KeptRounds, OneRun, run_contests
from afspark.bench.markdown import spread, table
from afspark.bench.recovery_costs import LossCase, batches_between, lose_one, usual_batch
from afspark.bench.rig import Rig
from afspark.bench.snapshot_costs import batch_records

TITLE = "Barrier snapshots: recovery"
INTERVALS = (0.5, 1.0, 3.0, 10.0)
KEYS = (10**4, 10**5, 10**6)
KINDS = ("partial", "full")
BY_INTERVAL, BY_KEYS, ALONE = "interval", "keys", "one worker"
SMALL_BATCH = 1 << 18


def measure(rig: Rig) -> dict[str, Any]:
    """One worker of the fourth operator is lost right before a barrier."""
    kept = rig.kept("snapshot-recovery")
    size = batch_records(rig.records)
    usual = LossCase(keys=10**5, every=4, batch_records=min(size, SMALL_BATCH))
    alone = LossCase(keys=10**6, every=4, batch_records=size, alone=True)
    cases: dict[str, dict[str, LossCase]] = {}
    for interval in INTERVALS:
        every = batches_between(interval, _usual(rig, kept, usual))
        cases[f"{BY_INTERVAL} {interval:g}"] = {kind: replace(usual, every=every, recovery=kind) for kind in KINDS}
    for keys in KEYS:
        other = replace(usual, keys=keys)
        every = batches_between(3.0, _usual(rig, kept, other))
        cases[f"{BY_KEYS} {keys}"] = {kind: replace(other, every=every, recovery=kind) for kind in KINDS}
    # As many batches again as take three seconds.
    every = batches_between(3.0, _usual(rig, kept, alone)) + 1
    cases[ALONE] = {"partial": replace(alone, every=every)}
    contests: dict[str, Contenders] = {
        name: {kind: partial(lose_one, rig.spark, case) for kind, case in kinds.items()}
        for name, kinds in cases.items()
    }
    done = run_contests(contests, rounds=rig.rounds, kept=kept, warm_up=lambda: lose_one(rig.spark, usual))
    kept.forget()
    return {"batch_records": usual.batch_records, "contests": {name: one.to_json() for name, one in done.items()}}


def _usual(rig: Rig, kept: KeptRounds, case: LossCase) -> float:
    """Seconds of a batch: measured once, so that a run that was cut off goes on with the same intervals."""
    run = OneRun("usual batch", f"{case.keys} keys{', alone' if case.alone else ''}", 0)
    figures = kept.figures(run)
    if figures is None:
        # Twice, because the first run of a session is a slow one.
        if not len(kept):
            usual_batch(rig.spark, case)
        figures = usual_batch(rig.spark, case)
        kept.keep(run, figures)
    return figures["batch"]


def page(found: dict[str, Any]) -> str:
    text = (
        f"The six operators of the topology above, {found['batch_records']:,} records a batch, two workers each. One "
        "worker of the fourth operator loses its state and its process right before a barrier, so that nearly a whole "
        "interval has to be replayed. The delay is how much longer the batch took that found it lost. Restoring is "
        "reading the snapshot, replaying is applying the batches since then once more; the rest is noticing, a new "
        "Python process, the ledger, and Spark's retry of the task. Speed is the time that the replayed batches took "
        "at first by the time of their replay. In a partial recovery the lost worker alone goes back, in a full one "
        "all twelve do.\n\n"
    )
    head = [
        "case",
        "recovery",
        "workers",
        "cells restored",
        "interval, s",
        "delay, s",
        "restoring, s",
        "replaying, s",
        "rest, s",
        "replayed",
        "speed",
    ]
    rows = [_row(case, kind, figures) for case, kinds in found["contests"].items() for kind, figures in kinds.items()]
    last = found["contests"][ALONE]["partial"]
    beyond = last["delay"]["median"] - last["replaying"]["median"]
    return (
        text
        + table(head, rows)
        + (
            f"One worker of 10⁶ keys with {last['input_seconds']['median']:.1f} s of input to replay was back after "
            f"{last['replaying']['median']:.2f} s of replay and {beyond:.2f} s besides; the replay ran at "
            f"{spread(last['speed'], '{:.2f}')} times the usual speed.\n"
        )
    )


def _row(case: str, kind: str, figures: dict[str, Any]) -> list[str]:
    return [
        _called(case),
        kind,
        f"{figures['workers']['median']:.0f}",
        f"{figures['restored_cells']['median']:,.0f}",
        f"{figures['interval']['median']:.1f}",
        *(spread(figures[name], "{:.2f}") for name in ("delay", "restoring", "replaying", "rest")),
        f"{figures['replayed_batches']['median']:.0f} batches, {figures['input_seconds']['median']:.1f} s",
        spread(figures["speed"], "{:.1f}"),
    ]


def _called(case: str) -> str:
    if case == ALONE:
        return "one operator, one worker, 10⁶ keys, 3 s"
    kind, value = case.rsplit(" ", 1)
    return f"interval {value} s, 10⁵ keys" if kind == BY_INTERVAL else f"{int(value):,} keys, interval 3 s"


def draw(found: dict[str, Any], path: Path) -> str:
    contests = found["contests"]
    panels = {
        "by interval, s": _curves(contests, {value: f"{BY_INTERVAL} {value:g}" for value in INTERVALS}),
        "by keys of an aggregate, s": _curves(contests, {keys: f"{BY_KEYS} {keys}" for keys in KEYS}),
    }
    grid(
        path,
        panels,
        title="Recovery of a lost worker",
        subtitle="six operators, lost right before a barrier; medians",
        xlabel=("interval between snapshots, s", "keys"),
    )
    return (
        "How much longer the batch took that found a worker lost, and what of that was replay, by interval and by the "
        "size of the state: only the lost worker goes back (partial), or everybody (full). Carbone et al. describe "
        "both (section 5) and measure neither"
    )


def _curves(contests: dict[str, Any], places: dict[float, str]) -> list[Curve]:
    return [
        Curve(
            f"{kind}: {called}",
            list(places),
            [contests[name][kind][figure]["median"] for name in places.values()],
            dashed=figure == "replaying",
        )
        for figure, called in (("delay", "delay"), ("replaying", "of that replaying"))
        for kind in KINDS
    ]
