"""Series of real failures, one query for each: figures are kept as they come, and a query that has failed is replaced."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import afspark as af
from afspark.bench.bench_hosts import BenchHosts
from afspark.bench.interleave import spread_of
from afspark.bench.kept_rounds import KeptRounds, OneRun, TimeLeft
from afspark.bench.real_failures import RealFailure
from afspark.bench.recovery_trials import LATE_SECONDS, Trials
from afspark.bench.replica_case import ReplicaCase
from afspark.errors import AfsparkError, first_line

#: An estimate may be below the time that was measured by this part of it.
ALLOWED = 0.2
#: A query is replaced so often before its series is given up.
_TRIES = 3


@dataclass(frozen=True, kw_only=True)
class TrialSeries:
    """The failures that one query has to go through, under a ``scheme`` as a table names it."""

    contest: str
    scheme: str
    case: ReplicaCase
    tolerance: af.Tolerance
    failures: Sequence[RealFailure]
    seeds: Sequence[int]
    late: float = LATE_SECONDS

    def runs(self) -> list[tuple[RealFailure, OneRun]]:
        """All of its failures, in order: each kind with the first seed, then with the next one."""
        return [
            (failure, OneRun(f"{self.contest}: {failure}", self.scheme, seed))
            for seed in self.seeds
            for failure in self.failures
        ]


def run_series(hosts: BenchHosts, series: Sequence[TrialSeries], kept: KeptRounds) -> None:
    """Has all failures happen that were not measured before; ``kept`` has their figures."""
    runs = [run for one in series for _, run in one.runs()]
    left = TimeLeft([run for run in runs if kept.figures(run) is None])
    for one in series:
        for _ in range(_TRIES):
            todo = [(failure, run) for failure, run in one.runs() if kept.figures(run) is None]
            if not todo or _carried_out(hosts, one, todo, kept, left):
                break


def _carried_out(
    hosts: BenchHosts,
    one: TrialSeries,
    todo: Sequence[tuple[RealFailure, OneRun]],
    kept: KeptRounds,
    left: TimeLeft,
) -> bool:
    """Whether a query has gone through all of it; one that failed leaves a figure that says so."""
    under_way: OneRun | None = None
    started = time.perf_counter()
    try:
        hosts.complete()
        with one.case.running(hosts, one.tolerance) as query:
            trials = Trials(hosts, query, one.tolerance, one.late)
            for failure, run in todo:
                under_way = run
                figures = trials.run(failure, run.round)
                under_way = None
                kept.keep(run, figures)
                left.done(run, time.perf_counter() - started)
                started = time.perf_counter()
                _say(run, figures, left)
    except AfsparkError as error:
        print(f"  {one.contest}, {one.scheme}: {first_line(error)}", file=sys.stderr, flush=True)
        if under_way is not None:
            kept.keep(under_way, {"failed": 1.0})
            left.done(under_way, time.perf_counter() - started)
        return False
    return True


def _say(run: OneRun, figures: Mapping[str, float], left: TimeLeft) -> None:
    shown = ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
    minutes = left.seconds() / 60
    text = f"  {run.contest}, seed {run.round}: {run.contender}  {shown}  ({minutes:.0f} min left)"
    print(text, file=sys.stderr, flush=True)


def summaries(series: Sequence[TrialSeries], kept: KeptRounds) -> dict[str, dict[str, Any]]:
    """By kind of failure and scheme what `summary` says."""
    found: dict[str, dict[str, Any]] = {}
    for one in series:
        for failure in one.failures:
            figures = [kept.figures(run) for kind, run in one.runs() if kind is failure]
            found.setdefault(str(failure), {})[one.scheme] = summary([known for known in figures if known is not None])
    return found


def summary(trials: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Median, least and most of every figure over the trials that have it; how many there were, and how many failed.

    ``above``: by which part of itself a recovery was above its estimate at the most; ``too_low``: how many of the
    estimates were below by more than is allowed, of those ``estimates`` that there were.

    >>> found = summary([{"recovery": 2.0, "estimated": 1.5}, {"recovery": 1.0, "estimated": 2.0}])
    >>> found["above"], found["too_low"], found["recovery"]["most"]
    (0.25, 1, 2.0)
    """
    done = [one for one in trials if "failed" not in one]
    names = dict.fromkeys(name for one in done for name in one)
    above = [1 - estimate / one["recovery"] for one in done for estimate in _estimate(one)]
    return {
        "count": len(trials),
        "failed": len(trials) - len(done),
        **{name: spread_of([one[name] for one in done if name in one]) for name in names},
        "estimates": len(above),
        "above": max(above, default=None),
        "too_low": sum(part > ALLOWED for part in above),
    }


def _estimate(one: Mapping[str, float]) -> Iterator[float]:
    """What was estimated for a recovery, for its kind of failure if that is known."""
    if "estimated" in one or "foreseen" in one:
        yield one.get("estimated", one.get("foreseen", 0.0))


def median_of(found: Mapping[str, Any], name: str) -> float | None:
    """The median of a figure; None if no trial has it."""
    return found[name]["median"] if name in found else None


def together(found: Mapping[str, Any], *names: str) -> float | None:
    """The medians of several figures, added up; None if there is none of them."""
    known = [value for name in names if (value := median_of(found, name)) is not None]
    return math.fsum(known) if known else None
