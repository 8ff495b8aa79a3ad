"""What asynchronous snapshots cost at two intervals, in as many rounds as a ratio near one needs."""

from __future__ import annotations

from functools import partial
from typing import Any

import afspark as af
from afspark.bench.interleave import AGAIN, NONE, Measure
from afspark.bench.kept_rounds import run_contests
from afspark.bench.markdown import spread, table
from afspark.bench.rig import LOCAL, STORES, Rig
from afspark.bench.snapshot_costs import batch_records, contender, contest_of, one_run

TITLE = "Barrier snapshots: asynchronous ones against none"
INTERVALS = (3.0, 0.5)
PLACES = (LOCAL, "100 MB/s, 20 ms")
CONTENDERS = [AGAIN, *(contender(contest_of(interval), store) for interval in INTERVALS for store in PLACES)]


def measure(rig: Rig) -> dict[str, Any]:
    """All contenders beside one run of none in each round; the part of ``snapshot-intervals`` that is soon measured."""
    none = partial(one_run, rig.spark, af.Nothing(), records=rig.records)
    runs: dict[str, Measure] = {NONE: none, AGAIN: none}
    for interval in INTERVALS:
        for store in PLACES:
            runs[contender(contest_of(interval), store)] = partial(
                one_run, rig.spark, af.BarrierSnapshot(interval=interval), records=rig.records, store=STORES[store]
            )
    kept = rig.kept("snapshot-cost")
    warm_up = partial(one_run, rig.spark, af.BarrierSnapshot(interval=1.0), records=max(rig.records // 4, 100_000))
    contest = run_contests({"": runs}, rounds=rig.rounds, kept=kept, warm_up=warm_up)[""]
    kept.forget()
    return {
        "records": rig.records,
        "batch_records": batch_records(rig.records),
        "figures": contest.to_json(),
        "throughput": {name: contest.ratio_spread(name, NONE, "records_per_second") for name in CONTENDERS},
        "usual": {name: contest.ratio_spread(NONE, name, "batch") for name in CONTENDERS},
    }


def page(found: dict[str, Any]) -> str:
    text = (
        "Six operators with two workers each and three full exchanges, the topology of Carbone et al., figure 5; "
        f"{found['records']:,} records in batches of {found['batch_records']:,}. Throughput is that of all batches; the "
        "usual batch is the median one of a run, where neither a pause of the machine nor one of ours shows. None runs "
        "twice in each round: what its second run does over the first is the scatter of the machine, and no other ratio "
        "is known better. Ratios are medians over rounds, in brackets the least and the most.\n\n"
    )
    head = [
        "snapshots every",
        "throughput over none",
        "usual batch, none / snapshots",
        "taken",
        "batch, s",
        "p99",
        "longest",
        "written",
    ]
    return text + table(head, [_row(found, name) for name in (NONE, *found["throughput"])])


def _row(found: dict[str, Any], name: str) -> list[str]:
    figures = found["figures"][name]
    ratios = ["1", "1"] if name == NONE else [spread(found[kind][name], "{:.3f}") for kind in ("throughput", "usual")]
    return [
        name,
        *ratios,
        f"{figures['backups']['median']:.0f}",
        *(f"{figures[one]['median']:.2f}" for one in ("batch", "p99_batch", "longest_batch")),
        f"{figures['backup_bytes']['median'] / 1e6:,.0f} MB",
    ]
