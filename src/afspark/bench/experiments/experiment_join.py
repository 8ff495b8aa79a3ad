"""Experiment 4."""

from __future__ import annotations

from afspark.bench.accuracy.campaign import Campaign
from afspark.bench.accuracy.join_accuracy import JoinStudy
from afspark.bench.workloads import JOIN

TITLE = "Online join after failures (experiment 4)"
_PROMISE = (
    "Observed: sampled items that are missing from both sides together. Promised: Θ for each side, + L·β + Γ (theorem 2 "
    "takes the samples that are left for the width of the interval); generated visits can be read again, so that only "
    "Θ can be used up. Held: observed ≤ realised ≤ promised. `inside` is 1 if the interval of the result held the truth "
    "in every run."
)

_CAMPAIGN = Campaign(JOIN, JoinStudy, JoinStudy.measure, _PROMISE)
measure, page, draw = _CAMPAIGN.measure, _CAMPAIGN.page, _CAMPAIGN.draw
