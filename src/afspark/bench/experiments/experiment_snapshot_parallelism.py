"""Figure 7 of Carbone et al.: fixed input at different parallelism, with snapshots and without."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import afspark as af
from afspark.bench.drawing import Curve, grid
from afspark.bench.interleave import NONE
from afspark.bench.kept_rounds import Contenders, run_contests
from afspark.bench.markdown import spread, table
from afspark.bench.rig import Rig
from afspark.bench.snapshot_costs import ASYNCHRONOUS, one_run

TITLE = "Barrier snapshots: fixed input at different parallelism (Carbone et al., figure 7)"
PARALLELISM = (1, 2, 4, 8)
INTERVAL = 3.0


def measure(rig: Rig) -> dict[str, Any]:
    """The same input with 1, 2, 4 and 8 workers an operator, in one session with eight slots."""
    kept = rig.kept("snapshot-parallelism")
    with rig.slots(max(PARALLELISM)) as spark:
        contests: dict[str, Contenders] = {
            str(workers): {
                NONE: partial(one_run, spark, af.Nothing(), records=rig.records, workers=workers),
                ASYNCHRONOUS: partial(
                    one_run, spark, af.BarrierSnapshot(interval=INTERVAL), records=rig.records, workers=workers
                ),
            }
            for workers in PARALLELISM
        }
        most = max(PARALLELISM)
        warm_up = partial(one_run, spark, af.Nothing(), records=max(rig.records // 10, 100_000), workers=most)
        done = run_contests(contests, rounds=rig.rounds, kept=kept, warm_up=warm_up)
    found = {
        workers: {
            "figures": contest.to_json(),
            "runtime": contest.ratio_spread(ASYNCHRONOUS, NONE, "seconds"),
            "throughput": contest.ratio_spread(ASYNCHRONOUS, NONE, "records_per_second"),
        }
        for workers, contest in done.items()
    }
    kept.forget()
    return {"records": rig.records, "parallelism": found}


def page(found: dict[str, Any]) -> str:
    text = (
        f"{found['records']:,} records through the six operators, each with so many workers; a snapshot every "
        f"{INTERVAL:g} s on the local disk, or none. All workers share the cores of one machine, so that more of them "
        "than cores cannot be faster: what counts is that snapshots cost the same at any parallelism.\n\n"
    )
    head = ["workers an operator", "none, s", "snapshots, s", "runtime over none", "throughput over none", "snapshots"]
    rows = []
    for workers, part in found["parallelism"].items():
        none, snapshots = (part["figures"][name] for name in (NONE, ASYNCHRONOUS))
        rows.append(
            [
                workers,
                spread(none["seconds"]),
                spread(snapshots["seconds"]),
                spread(part["runtime"], "{:.3f}"),
                spread(part["throughput"], "{:.3f}"),
                f"{snapshots['backups']['median']:.0f}",
            ]
        )
    return (
        text
        + table(head, rows)
        + (
            "Carbone et al. processed 10⁹ records on 5 to 40 instances, which each had a core of its own: both their "
            "baseline and their snapshots every 3 s took the shorter the more there were, linearly (section 7.2).\n"
        )
    )


def draw(found: dict[str, Any], path: Path) -> str:
    workers = [int(name) for name in found["parallelism"]]
    runtime = [
        Curve(label, workers, [part["figures"][name]["seconds"]["median"] for part in found["parallelism"].values()])
        for name, label in ((NONE, "none"), (ASYNCHRONOUS, "a snapshot every 3 s"))
    ]
    ratio = [Curve("", workers, [part["runtime"]["median"] for part in found["parallelism"].values()])]
    grid(
        path,
        {"runtime, s": runtime, "runtime over none": ratio},
        title="Fixed input at different parallelism",
        subtitle=f"{found['records']:,} records, one machine; medians",
        xlabel="workers of each operator",
        logx=False,
    )
    return (
        "Runtime of fixed input by the number of workers, all on one machine. To be held against figure 7 of Carbone "
        "et al. (2015): the runtime of 10⁹ records with a snapshot every 3 s and without, on 5 to 40 m3.medium "
        "instances, both linear in their number"
    )
