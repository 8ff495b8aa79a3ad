"""Experiment 3."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from afspark.bench.accuracy.campaign import Campaign, tell
from afspark.bench.accuracy.hitters import HeavyHitterStudy
from afspark.bench.accuracy.pushedtrial import pushed_trial
from afspark.bench.markdown import table
from afspark.bench.rig import Rig
from afspark.bench.workloads import HITTERS

TITLE = "Heavy hitters after failures (experiment 3)"
_PROMISE = (
    "Observed: the largest difference of a counter of the merged sketch from that of an exact one, in bytes. Promised: "
    "Θ + L·α with packets of at most α = 1500 bytes; generated packets can be read again, so that only Θ can be used up. "
    "Realised: what `query.bounds()` tells. Held: observed ≤ realised ≤ promised, no heavy hitter missed, and of the keys "
    "below (1 − ε)φ − Θ − α·L at most one in sixteen reported (theorem 1, with ε = 1/2)."
)

_CAMPAIGN = Campaign(HITTERS, HeavyHitterStudy, HeavyHitterStudy.measure, _PROMISE)
draw = _CAMPAIGN.draw


def measure(rig: Rig) -> dict[str, Any]:
    """Generated packets, and with half as many seeds pushed ones, which failures can take."""
    found = _CAMPAIGN.measure(rig)
    study = HeavyHitterStudy()
    name, tolerance = next(iter(study.tolerances.items()))
    trials = []
    for seed in range(1, -(-rig.seeds // 2) + 1):
        trials.append(pushed_trial(rig.spark, study, tolerance, seed))
        tell(f"pushed, {name}", trials[-1])
    found["pushed"] = {"setting": name, "trials": [one.to_json() for one in trials]}
    return found


def page(found: dict[str, Any]) -> str:
    trials = found["pushed"]["trials"]
    last = [trial["scores"][-1] for trial in trials]
    verdicts = [trial["verdict"] for trial in trials]
    text = (
        "The same packets pushed: the failures take the receivers as well, and each part of the stream ends with "
        "messages so small that as many items as l allows are acknowledged and nowhere else. Lost items are known by "
        "number alone, so each is compensated with the 1500 bytes that it can have had, which reports pairs of a little "
        "less than 10 MB.\n\n"
    )
    head = [
        "setting",
        "bounds held",
        "recall",
        "mean precision",
        "worst",
        "items lost, mean",
        "most",
        "compensated, most",
    ]
    lost = [score["lost_items"] for score in last]
    row = [
        found["pushed"]["setting"],
        f"{sum(int(verdict['held']) for verdict in verdicts)} of {len(verdicts)}",
        f"{min(score['recall'] for score in last):g}",
        f"{fmean(score['score'] for score in last):.2%}",
        f"{min(score['score'] for score in last):.2%}",
        f"{fmean(lost):.0f}",
        f"{max(lost):.0f}",
        f"{max(verdict['realised'] for verdict in verdicts) / 1e6:.2f} MB",
    ]
    return _CAMPAIGN.page(found) + text + table(head, [row])
