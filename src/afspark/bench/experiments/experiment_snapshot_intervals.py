"""Figure 6 of Carbone et al.: what barrier snapshots cost, by interval and kind, when nothing fails."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import afspark as af
from afspark.bench.drawing import Curve, grid
from afspark.bench.interleave import NONE, Contest
from afspark.bench.kept_rounds import run_contests
from afspark.bench.markdown import spread, table
from afspark.bench.rig import STORES, Rig
from afspark.bench.snapshot_costs import (
    APPROXIMATE,
    ASYNCHRONOUS,
    EVERY_BATCH,
    INTERVALS,
    MINIBATCH,
    SYNCHRONOUS,
    batch_records,
    contender,
    contest_of,
    interval_contests,
    one_run,
)

TITLE = "Barrier snapshots: what they cost, by interval (Carbone et al., figure 6)"
KINDS = (ASYNCHRONOUS, SYNCHRONOUS)
WITHOUT_INTERVAL = (APPROXIMATE, MINIBATCH)


def measure(rig: Rig) -> dict[str, Any]:
    """Six operators, three exchanges; all intervals, kinds of snapshots and stores."""
    spark, kept = rig.spark, rig.kept("snapshot-intervals")
    warm_up = partial(one_run, spark, af.BarrierSnapshot(interval=1.0), records=max(rig.records // 10, 100_000))
    measured = partial(run_contests, rounds=rig.rounds, kept=kept, warm_up=warm_up)
    all_contests = interval_contests(spark, rig.records)
    first = contest_of(INTERVALS[0])
    contests = measured({first: all_contests[first]})
    alike = [contest_of(interval) for interval in as_every_batch(contests[first])]
    contests |= measured({name: one for name, one in all_contests.items() if name not in (first, *alike)})
    contests |= dict.fromkeys(alike, contests[first])
    found = {
        "records": rig.records,
        "batch_records": batch_records(rig.records),
        "alike": [first, *alike],
        "contests": {name: _told(contest) for name, contest in contests.items()},
    }
    kept.forget()
    return found


def as_every_batch(shortest: Contest) -> list[float]:
    """The intervals after the first that are no longer than any run's median batch in the contest of the first.

    A barrier is due with every batch then, as in that contest.
    """
    batch = min(figures["batch"] for rounds in shortest.rounds.values() for figures in rounds)
    return [interval for interval in INTERVALS[1:] if interval <= batch]


def _told(contest: Contest) -> dict[str, Any]:
    others = [name for name in contest.rounds if name != NONE]
    return {
        "figures": contest.to_json(),
        "runtime": {name: contest.ratio_spread(name, NONE, "seconds") for name in others},
        "throughput": {name: contest.ratio_spread(name, NONE, "records_per_second") for name in others},
    }


def page(found: dict[str, Any]) -> str:
    text = (
        f"Six operators with two workers each, three full exchanges, per-key aggregates of 10⁵ keys each, "
        f"{found['records']:,} generated records in batches of {found['batch_records']:,}: the topology of Carbone et "
        "al., figure 5, on one machine. All contenders of an interval ran right after each other and a run of none. Runtime "
        "and throughput are over none. The effective interval is the time of all batches by the number of those with a backup: "
        "a batch is the shortest. Barriers that are due while a snapshot is on its way are skipped. A batch is as long as "
        "anybody can have stalled.\n\n"
    )
    alike = found.get("alike", [])
    if len(alike) > 1:
        text += (
            f"A barrier is due with every batch at {', '.join(alike)}, which are shorter than a batch: that was "
            "measured once.\n\n"
        )
    head = [
        "store",
        "interval",
        "kind",
        "runtime",
        "throughput",
        "effective interval, s",
        "taken",
        "skipped",
        "batch, s",
        "p99",
        "longest",
        "written",
    ]
    rows = []
    for store in STORES:
        for interval in INTERVALS:
            part = found["contests"][contest_of(interval)]
            rows += [_row(store, f"{interval:g} s", kind, part) for kind in KINDS]
        rows += [_row(store, "–", kind, found["contests"][EVERY_BATCH]) for kind in WITHOUT_INTERVAL]
    return text + table(head, rows) + _none(found) + PAPER


PAPER = (
    "Carbone et al. ran 10⁹ records on ten m3.medium instances of Amazon EC2 (section 7.1). Their figure 6 shows "
    "synchronous snapshots, after Naiad, the dearer the shorter the interval, because the system stands still "
    "for 1 to 2 s each, and asynchronous ones close to the baseline (section 7.2).\n"
)


def _row(store: str, interval: str, kind: str, part: dict[str, Any]) -> list[str]:
    name = contender(kind, store)
    figures = part["figures"][name]
    return [
        store,
        interval,
        kind,
        spread(part["runtime"][name], "{:.3f}"),
        spread(part["throughput"][name], "{:.3f}"),
        f"{figures['effective_interval']['median']:.2f}",
        *(f"{figures[name]['median']:.0f}" for name in ("backups", "skipped")),
        *(f"{figures[name]['median']:.2f}" for name in ("batch", "p99_batch", "longest_batch")),
        f"{figures['backup_bytes']['median'] / 1e6:,.0f} MB",
    ]


def _none(found: dict[str, Any]) -> str:
    figures = [part["figures"][NONE] for part in found["contests"].values()]
    least, most = (pick(one["seconds"][end] for one in figures) for pick, end in ((min, "least"), (max, "most")))
    batch, longest = (max(one[name]["median"] for one in figures) for name in ("batch", "longest_batch"))
    return (
        f"None took {least:.1f} to {most:.1f} s in all rounds; its median batch took {batch:.2f} s, "
        f"its longest {longest:.2f} s.\n\n"
    )


def draw(found: dict[str, Any], path: Path) -> str:
    panels = {store: _curves(found, store) for store in STORES}
    grid(
        path,
        panels,
        title="Runtime over none, by the interval between snapshots",
        subtitle=f"six operators, three exchanges, {found['records']:,} records; medians",
        xlabel="interval, s",
        level=1.0,
    )
    return (
        "Runtime over that of none, by interval, on three stores. To be held against figure 6 of Carbone et al., "
        "Lightweight Asynchronous Snapshots for Distributed Dataflows (2015), which shows the runtime of the same "
        "two kinds of snapshots, and of the baseline without, by interval: 10⁹ records, ten m3.medium instances"
    )


def _curves(found: dict[str, Any], store: str) -> list[Curve]:
    def runtime(contest: str, kind: str) -> float:
        median: float = found["contests"][contest]["runtime"][contender(kind, store)]["median"]
        return median

    snapshots = [
        Curve(kind, INTERVALS, [runtime(contest_of(interval), kind) for interval in INTERVALS]) for kind in KINDS
    ]
    flat = [
        Curve(kind, INTERVALS, [runtime(EVERY_BATCH, kind)] * len(INTERVALS), dashed=True) for kind in WITHOUT_INTERVAL
    ]
    return snapshots + flat
