"""The controller over a day of bursts, and whether recoveries keep its limit: StreamMine3G's figures 5 and 6."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import afspark as af
from afspark.bench.bench_hosts import BenchHosts
from afspark.bench.controller_replay import Look, all_days, replayed
from afspark.bench.controller_run import ControllerSample, watched_day
from afspark.bench.drawing_days import DrawnDay, controller_days
from afspark.bench.interleave import spread_of
from afspark.bench.markdown import spread, table
from afspark.bench.real_failures import possible
from afspark.bench.recovery_trials import Trials
from afspark.bench.rig import Rig
from afspark.policies.replication import SCHEMES
from afspark.policies.snapshot import BarrierSnapshot

TITLE = "The controller: a day of bursts (StreamMine3G, figures 5 and 6)"
#: A day in so many seconds, so many records of it in a second on the average, and the limit of the real run.
DAY, RATE, LIMIT = 120.0, 20_000, 5.0
LIMITS = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0)
HOSTS, SLOTS, SEED = 3, 2, 1
#: Failures come as soon as all hosts are back: a day has room for about one in so many seconds.
_FAILURE_SECONDS = 30.0
_COOLDOWN = 5.0
#: Who begins later than that has missed the beginning of the day.
_LATE_SECONDS = 2.0
SIX = "six schemes alone"
VECTORS = {
    "all costs": af.Costs(cpu=1, memory=1, network=1, hosts=1),
    "hosts only": af.Costs(cpu=0, memory=0, network=0, hosts=1),
}


def measure(rig: Rig) -> dict[str, Any]:
    """A day in which nothing fails, and one in which a primary's host fails again and again."""
    with rig.on_hosts(HOSTS, slots=SLOTS) as hosts:
        moments, looks, decisions = _quiet_day(hosts)
        recoveries, decided = _days_with_failures(hosts, rig.seeds)
    vectors = {name: _adaptive(costs) for name, costs in VECTORS.items()}
    return {
        "day": DAY,
        "rate": RATE,
        "limit": LIMIT,
        "cooldown": _COOLDOWN,
        "moments": [vars(one) for one in moments],
        "decisions": decisions,
        "limits": all_days(looks, vectors, LIMITS),
        "limits_of_schemes": all_days(looks, vectors, LIMITS, schemes_only=True),
        "chosen": replayed(looks, vectors["all costs"]).to_json(),
        "recoveries": recoveries,
        "decisions_with_failures": decided,
    }


def _adaptive(costs: af.Costs) -> af.Adaptive:
    return af.Adaptive(recovery_seconds=LIMIT, costs=costs, cooldown=_COOLDOWN)


def _quiet_day(hosts: BenchHosts) -> tuple[list[ControllerSample], list[Look], list[dict[str, Any]]]:
    tolerance = _adaptive(VECTORS["all costs"])
    with watched_day(hosts, tolerance, rows=int(RATE * DAY), seconds=DAY, seed=SEED) as day:
        _sleep_until(day.began + DAY)
        return day.moments, day.looks, _told(day.query.decisions(), day.began)


def _days_with_failures(hosts: BenchHosts, failures: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """So many failures, of all kinds in turn, in as many days as they take."""
    tolerance, kinds = _adaptive(VECTORS["all costs"]), possible(hosts)
    seconds = max(DAY, (failures + 1) * _FAILURE_SECONDS)
    found: list[dict[str, Any]] = []
    with watched_day(hosts, tolerance, rows=int(RATE * seconds), seconds=seconds, seed=SEED) as day:
        _sleep_until(day.began)
        trials = Trials(hosts, day.query, tolerance)
        for number in range(failures):
            if time.time() > day.began + seconds - _FAILURE_SECONDS:
                break
            kind = kinds[number % len(kinds)]
            before = day.query.protections().get(0, "")
            figures = trials.run(kind, number)
            found.append({"failure": str(kind), "scheme": before, "at": time.time() - day.began, **figures})
            print(f"  {kind} under {before}: {figures['recovery']:.2f} s of {LIMIT:g}", flush=True)
        return found, _told(day.query.decisions(), day.began)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))


def _told(decisions: Sequence[Mapping[str, Any]], began: float) -> list[dict[str, Any]]:
    """Decisions without their candidates."""
    return [
        {
            "at": one["at"] - began,
            "from": one["from"],
            "to": one["to"],
            "interval": one["interval"],
            "why": one["reason"],
        }
        for one in decisions
    ]


def page(found: dict[str, Any]) -> str:
    return _day_text(found) + _limits_text(found) + _failures_text(found)


def _day_text(found: Mapping[str, Any]) -> str:
    rates = [value for _, value in _rates(found["moments"])]
    states = [one["state"] for one in found["moments"]]
    text = (
        f"A day of bursts in {found['day']:g} s: {found['rate']:,} records a second on the average, sums by key over a "
        "sliding window of ten seconds, so that the state follows the throughput, as in the paper's figure 4; one "
        f"worker on {HOSTS} hosts of this machine, `Adaptive(recovery_seconds={found['limit']:g}, cooldown="
        f"{found['cooldown']:g})` where CPU, memory, network and hosts all cost 1. "
        f"The query took {min(rates):,.0f} to {max(rates):,.0f} records a second, and its state had "
        f"{min(states) / 1e6:,.0f} to {max(states) / 1e6:,.0f} MB. {_beginning(found)}What was decided:\n\n"
    )
    rows = [
        [
            f"{one['at']:.0f}",
            one["from"] or "–",
            one["to"],
            "–" if not one["interval"] else f"{one['interval']:g}",
            one["why"],
        ]
        for one in _of_the_day(found["decisions"])
    ]
    return text + table(["second", "from", "to", "checkpoints, s apart", "because"], rows)


def _beginning(found: Mapping[str, Any]) -> str:
    """Whether the query was warm when the day began."""
    text = ""
    first = found["moments"][0]["at"]
    if first > _LATE_SECONDS:
        text += (
            f"The query was still starting when the day began: there are figures from second {first:.0f} on, when it works "
            "off what has come meanwhile. "
        )
    if any(one["at"] < 0 for one in found["decisions"]):
        text += (
            "It had started before the day, with a few records, to be warm: what held when the day began comes first. "
        )
    return text


def _of_the_day(decisions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The last one before the day, and all that follow."""
    before = [one for one in decisions if one["at"] < 0]
    return [*before[-1:], *(one for one in decisions if one["at"] >= 0)]


def _limits_text(found: Mapping[str, Any]) -> str:
    text = (
        "What was measured in that day was then given to the same controller with other limits and costs, with a clock "
        "that is set and not waited for: parts of the time under each scheme, and what is taken beyond the primary, over "
        "what active and passive replication would have taken all day. No query ran for this table. What a scheme takes "
        "is modelled, as the controller does it: from the CPU, the state, the network and the checkpoints that were "
        "measured of the primary, weighted by the costs; what other schemes would have changed in the measurements is not "
        "in it. A dash under over passive: where only hosts cost, passive replication costs nothing beyond the primary, "
        "and there is nothing to divide by.\n\n"
    )
    text += _limits_table(found["limits"], [*(kind.name for kind in SCHEMES), BarrierSnapshot.name])
    if "limits_of_schemes" in found:
        text += "The same where barrier snapshots are no choice, as in the paper, under its six schemes alone:\n\n"
        text += _limits_table(found["limits_of_schemes"], [kind.name for kind in SCHEMES])
    return text


def _limits_table(vectors: Mapping[str, Any], names: Sequence[str]) -> str:
    rows = [
        [
            vector,
            limit,
            *(f"{100 * one['share'].get(name, 0.0):.0f} %" for name in names),
            *("–" if one[name] is None else f"{one[name]:.2f}" for name in ("over_active", "over_passive")),
            str(one["changes"]),
        ]
        for vector, limits in vectors.items()
        for limit, one in limits.items()
    ]
    return table(["costs", "limit, s", *names, "over active", "over passive", "changes"], rows)


def _failures_text(found: Mapping[str, Any]) -> str:
    done = found["recoveries"]
    within = sum(one["recovery"] <= found["limit"] for one in done)
    text = (
        f"In another day the primary's host failed {len(done)} times at seeded moments, whatever the controller had "
        f"chosen: {within} of {len(done)} recoveries took no longer than the limit of {found['limit']:g} s. The scheme is the "
        "one in force at that moment, which may be passed through on the way from one decision to the next.\n\n"
    )
    kinds = dict.fromkeys((one["failure"], one["scheme"]) for one in done)
    rows = []
    for failure, scheme in kinds:
        ones = [one for one in done if (one["failure"], one["scheme"]) == (failure, scheme)]
        times, estimates = ([one[name] for one in ones if name in one] for name in ("recovery", "estimated"))
        rows.append(
            [
                failure,
                scheme,
                str(len(ones)),
                spread(spread_of(times), "{:.2f}"),
                f"{statistics.median(estimates):.2f}" if estimates else "–",
                str(sum(one > found["limit"] for one in times)),
            ]
        )
    return text + table(["failure", "scheme", "n", "recovery, s", "estimate", "over the limit"], rows)


def _rates(moments: Sequence[Mapping[str, Any]], seconds: float = 3.0) -> list[tuple[float, float]]:
    """Records a second over the last few seconds, by the seconds of the day."""
    found = []
    for place, one in enumerate(moments):
        before = next((two for two in moments[:place] if one["at"] - two["at"] <= seconds), None)
        if before is not None:
            found.append((one["at"], (one["records"] - before["records"]) / (one["at"] - before["at"])))
    return found


def draw(found: dict[str, Any], path: Path) -> str:
    rates = dict(_rates(found["moments"]))
    moments = [one for one in found["moments"] if one["at"] in rates]
    day = DrawnDay(
        found["day"],
        [one["at"] for one in moments],
        {
            "thousand records a second": [rates[one["at"]] / 1e3 for one in moments],
            "state, MB": [one["state"] / 1e6 for one in moments],
        },
        [(one["at"], one["to"]) for one in found["decisions"]],
    )
    shares = {
        f"{kind}{vector}, by limit": {limit: one["share"] for limit, one in limits.items()}
        for kind, vectors in (("", found["limits"]), (f"{SIX}: ", found.get("limits_of_schemes", {})))
        for vector, limits in vectors.items()
    }
    controller_days(
        path,
        day,
        shares,
        title="The controller over a day of bursts",
        subtitle=f"limit {found['limit']:g} s, all costs 1; below: the same day with other limits and costs",
    )
    alone = "; first with barrier snapshots, then under the paper's six schemes alone" * ("limits_of_schemes" in found)
    return (
        "Throughput, size of state and what was decided over a day of bursts, and the parts of time under each scheme by "
        f"limit, for two vectors of costs{alone}. To be held against figures 5 and 6 of StreamMine3G's adaptive fault "
        "tolerance, which show the same of a sentiment analysis of Twitter streams on 50 nodes"
    )
