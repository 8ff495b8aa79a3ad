"""How long until the driver knows of a failure, and until the next batch is applied: Spark's defaults and ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import afspark as af
from afspark.bench.markdown import spread, table
from afspark.bench.real_failures import RealFailure, possible
from afspark.bench.replica_case import ReplicaCase
from afspark.bench.rig import Rig
from afspark.bench.trial_series import TrialSeries, run_series, summaries

TITLE = "How soon failures are noticed"
KEYS, PAUSE, HOSTS, SLOTS, MOST_SEEDS = 10**4, 500, 3, 2, 5
#: So long the driver's own watch would wait for an answer: then Spark finds out first.
_NEVER = 3600.0
_LATE = 400.0


@dataclass(frozen=True)
class Watched:
    """Who watches the executors, under which tolerance; in ``seeds`` at most, because it may take minutes."""

    name: str
    tolerance: af.Tolerance
    silent: float | None = None
    seeds: int = MOST_SEEDS


WATCHED = (
    Watched("the driver's watch, with secondaries (active standby)", af.ActiveStandby(interval=1.0)),
    Watched("the driver's watch, without (snapshots)", af.BarrierSnapshot(interval=1.0), seeds=2),
    Watched("Spark's defaults (snapshots)", af.BarrierSnapshot(interval=1.0), _NEVER, seeds=1),
)


def measure(rig: Rig) -> dict[str, Any]:
    """A small worker, whose host fails in every way that can be had."""
    with rig.on_hosts(HOSTS, slots=SLOTS) as hosts:
        kept = rig.kept("detection")
        series = [
            TrialSeries(
                contest="detection",
                scheme=one.name,
                case=ReplicaCase(
                    keys=KEYS, pause=PAUSE, options={} if one.silent is None else {"silentSeconds": one.silent}
                ),
                tolerance=one.tolerance,
                failures=possible(hosts),
                seeds=range(1, min(rig.seeds, one.seeds) + 1),
                late=_LATE,
            )
            for one in WATCHED
        ]
        run_series(hosts, series, kept)
        return {"keys": KEYS, "pause": PAUSE, "found": summaries(series, kept)}


def page(found: dict[str, Any]) -> str:
    text = (
        f"A worker of {found['keys']:,} keys with a batch each {found['pause'] / 1000:g} s. Seconds "
        "from the failure of its host until the driver knew, by its own watch or because "
        "Spark had removed the executor, and until the batch was applied that the failure held up. A killed host "
        "closes its connections, as its operating system does when processes die; one without power does not, and is "
        "like one whose network is cut. Without secondaries a silent host is waited for, `hostGraceSeconds` (20 s).\n\n"
    )
    rows = [
        [failure, who, str(one["count"]), *(_spread(one, name) for name in ("noticed", "recovery"))]
        for failure in RealFailure
        for who, one in found["found"].get(str(failure), {}).items()
    ]
    return text + table(["failure", "noticed by", "n", "the driver knew, s", "next batch applied, s"], rows)


def _spread(found: dict[str, Any], name: str) -> str:
    return spread(found[name], "{:.2f}") if name in found else "–"
