"""Experiment 5."""

from __future__ import annotations

from afspark.bench.accuracy.campaign import Campaign
from afspark.bench.accuracy.regression_accuracy import RegressionStudy
from afspark.bench.workloads import REGRESSION

TITLE = "Online logistic regression after failures (experiment 5)"
_PROMISE = (
    "Observed: regret per item, that is the mean loss of the predictions on the way, less that of the final model on the "
    "same items. Promised: theorem 1 of the extended paper per item, (C·H·(Θ² + α·L²) + F²·k·√T + (H² + F²)·√T) / T with C = 1, "
    "H = √12, F from the length of the model: it says that the regret vanishes with T, and is not tight. Realised: "
    "what `query.bounds()` says of the local models, at most Θ. Held: observed ≤ promised, and realised ≤ Θ."
)

_CAMPAIGN = Campaign(REGRESSION, RegressionStudy, RegressionStudy.measure, _PROMISE)
measure, page, draw = _CAMPAIGN.measure, _CAMPAIGN.page, _CAMPAIGN.draw
