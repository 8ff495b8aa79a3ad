"""Experiment 3."""

from __future__ import annotations

from afspark.bench.accuracy.campaign import Campaign
from afspark.bench.accuracy.hitters import HeavyHitterStudy
from afspark.bench.workloads import HITTERS

TITLE = "Heavy hitters after failures (experiment 3)"
_PROMISE = (
    "Observed: the largest difference of a counter of the merged sketch from that of an exact one, in bytes. Promised: "
    "Θ + L·α with packets of at most α = 1500 bytes; generated packets can be read again, so that only Θ can be used up. "
    "Realised: what `query.bounds()` tells. Held: observed ≤ realised ≤ promised, no heavy hitter missed, and of the keys "
    "below (1 − ε)φ − Θ − α·L at most one in sixteen reported (theorem 1, with ε = 1/2)."
)

_CAMPAIGN = Campaign(HITTERS, HeavyHitterStudy, HeavyHitterStudy.measure, _PROMISE)
measure, page, draw = _CAMPAIGN.measure, _CAMPAIGN.page, _CAMPAIGN.draw
