"""Logistic regression by stochastic gradient descent as scikit-learn and river document it, in plain numpy.

scikit-learn: ``SGDClassifier(loss="log_loss", alpha=0, learning_rate="invscaling", eta0=1, power_t=0.5,
shuffle=False)`` with ``partial_fit`` moves weights and intercept by eta0 / t**power_t times the negative gradient of an
item's loss, t from 1. river: ``LogisticRegression(SGD(InverseScaling(1, power=0.5)), intercept_lr=InverseScaling(1,
power=0.5))`` does the same with learning_rate / (t + 1)**power, t from 0. Items are predicted before they are learned
from (progressive validation).
"""

from __future__ import annotations

import numpy as np


def progressive_log_loss(rows: np.ndarray, labels: np.ndarray, *, rate: float = 1.0) -> tuple[float, np.ndarray]:
    """The mean log loss of all items, each predicted before it was learned from, and the model (the bias first)."""
    model = np.zeros(rows.shape[1] + 1)
    inputs = np.column_stack([np.ones(len(rows)), rows])
    loss = 0.0
    for t, (row, label) in enumerate(zip(inputs, labels.astype(float), strict=True), start=1):
        margin = float(row @ model)
        loss += float(np.logaddexp(0.0, margin)) - label * margin
        chance = 1.0 / (1.0 + np.exp(-margin))
        model += rate / np.sqrt(t) * (label - chance) * row
    return loss / len(rows), model
