"""Checkpoint interval against overhead and recovery time, under the schemes that recover from checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import afspark as af
from afspark.bench.drawing_panels import Line, LinePanel, save_panels
from afspark.bench.interleave import Measure
from afspark.bench.kept_rounds import run_contests
from afspark.bench.markdown import spread, table
from afspark.bench.real_failures import RealFailure
from afspark.bench.replica_case import ReplicaCase
from afspark.bench.replica_costs import what_it_takes
from afspark.bench.rig import Rig
from afspark.bench.scheme_colors import SCHEME_COLORS
from afspark.bench.topology import CHUNK_RECORDS
from afspark.bench.trial_series import TrialSeries, median_of, run_series, summaries
from afspark.policies.replication import ColdStandby, HotStandby, PassiveReplication, Replicated

TITLE = "Replicas: checkpoint interval against overhead and recovery"
INTERVALS = (0.5, 2.0, 8.0)
SCHEMES_WITH_CHECKPOINTS: tuple[type[Replicated], ...] = (HotStandby, ColdStandby, PassiveReplication)
KEYS, RECORDS, SECONDS, PAUSE = 10**6, 16 * CHUNK_RECORDS, 10.0, 500
HOSTS, SLOTS, MOST_SEEDS = 3, 2, 5
NONE = "none"
UNKNOWN = dict.fromkeys(("median", "least", "most"), math.nan)


def measure(rig: Rig) -> dict[str, Any]:
    """Costs as fast as batches go, and recoveries of a killed host with a batch each half a second."""
    with rig.on_hosts(HOSTS, slots=SLOTS) as hosts:
        kept = rig.kept("replica-intervals")
        series = [
            TrialSeries(
                contest=contest_of(interval),
                scheme=kind.name,
                case=ReplicaCase(keys=KEYS, pause=PAUSE),
                tolerance=kind(interval=interval),
                failures=(RealFailure.HOST_KILLED,),
                seeds=range(1, min(rig.seeds, MOST_SEEDS) + 1),
            )
            for kind in SCHEMES_WITH_CHECKPOINTS
            for interval in INTERVALS
        ]
        run_series(hosts, series, kept)
        case = ReplicaCase(keys=KEYS, records=RECORDS)
        contests: dict[str, dict[str, Measure]] = {
            contest_of(interval): {
                NONE: partial(what_it_takes, hosts, case, af.Nothing(), SECONDS),
                **{
                    kind.name: partial(what_it_takes, hosts, case, kind(interval=interval), SECONDS)
                    for kind in SCHEMES_WITH_CHECKPOINTS
                },
            }
            for interval in INTERVALS
        }
        done = run_contests(contests, rounds=rig.rounds, kept=kept, warm_up=lambda: None)
        recoveries = {
            contest_of(interval): summaries([one for one in series if one.contest == contest_of(interval)], kept)
            for interval in INTERVALS
        }
    return {
        "keys": KEYS,
        "costs": {
            name: {
                kind.name: {
                    "throughput": contest.ratio_spread(kind.name, NONE, "records_per_second"),
                    "cpu": contest.ratio_spread(kind.name, NONE, "cpu_per_million"),
                }
                for kind in SCHEMES_WITH_CHECKPOINTS
            }
            for name, contest in done.items()
        },
        "recoveries": {name: one[RealFailure.HOST_KILLED] for name, one in recoveries.items()},
    }


def contest_of(interval: float) -> str:
    return f"every {interval:g} s"


def page(found: dict[str, Any]) -> str:
    text = (
        f"The worker of the experiment before, {found['keys']:,} keys. Costs while nothing fails, over none; recovery after "
        "the primary's host was killed, with a batch each half a second. The longer the interval, the more is replayed.\n\n"
    )
    head = ["scheme", "checkpoints", "throughput", "CPU a record", "n", "recovery, s", "of that replay", "estimate"]
    rows = [
        _row(kind.name, name, found["costs"][name][kind.name], found["recoveries"][name][kind.name])
        for kind in SCHEMES_WITH_CHECKPOINTS
        for name in found["costs"]
    ]
    return text + table(head, rows)


def _row(scheme: str, contest: str, costs: Mapping[str, Any], recovery: Mapping[str, Any]) -> list[str]:
    replay, estimate = (median_of(recovery, name) for name in ("step_replay", "estimated"))
    return [
        scheme,
        contest,
        spread(costs["throughput"], "{:.2f}"),
        spread(costs["cpu"], "{:.2f}"),
        str(recovery["count"]),
        spread(recovery["recovery"], "{:.2f}") if "recovery" in recovery else "–",
        "–" if replay is None else f"{replay:.2f}",
        "–" if estimate is None else f"{estimate:.2f}",
    ]


def draw(found: dict[str, Any], path: Path) -> str:
    panels = [
        _panel("throughput over none", found["costs"], "throughput"),
        _panel("CPU a record over none", found["costs"], "cpu"),
        _panel("recovery after a killed host, s", found["recoveries"], "recovery"),
    ]
    spreads = f"{found['keys']:,} keys; medians, with the least and the most"
    save_panels(path, panels, title="The interval of checkpoints", subtitle=spreads, columns=len(panels), legend=3)
    return "Throughput and CPU over none, and recovery of a killed host, by the interval between checkpoints"


def _panel(title: str, found: Mapping[str, Any], figure: str) -> LinePanel:
    """A point for each interval at which a scheme has the figure; elsewhere its line is broken."""
    lines = []
    for place, kind in enumerate(SCHEMES_WITH_CHECKPOINTS, -(len(SCHEMES_WITH_CHECKPOINTS) // 2)):
        spreads = [schemes[kind.name].get(figure, UNKNOWN) for schemes in found.values()]
        lines.append(
            Line(
                name=kind.name,
                x=[at + 0.05 * place for at in range(len(spreads))],
                y=[one["median"] for one in spreads],
                color=SCHEME_COLORS[kind.name],
                spread=spreads,
            )
        )
    ticks: dict[float, str] = {at: contest.removeprefix("every ") for at, contest in enumerate(found)}
    return LinePanel(
        title=title, lines=lines, xlabel="between checkpoints", ylabel="", from_zero=True, ticks=ticks, legend=False
    )
