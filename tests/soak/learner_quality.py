"""The log loss of the same items by afspark, scikit-learn and river: ``python -m tests.soak.learner_quality``.

Neither of the others is a dependency: ``pip install scikit-learn river`` before. What is not there is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import math

import numpy as np

from afspark.algorithms.linear_learners import LogisticLearner
from afspark.sources import Higgs
from afspark.sources.chunks import NumberedChunk
from tests.twins.learners_twin import progressive_log_loss


def ours(items: object, count: int) -> float:
    learner = LogisticLearner()
    learner.check(items.schema)  # type: ignore[attr-defined]
    return learner.learn(np.zeros(learner.cells), items, 0).facts.loss / count  # type: ignore[arg-type]


def scikit(rows: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(
        loss="log_loss", alpha=0.0, penalty=None, learning_rate="invscaling", eta0=1.0, power_t=0.5, shuffle=False
    )
    loss, margin = 0.0, 0.0
    for place in range(len(rows)):
        if place:
            margin = float(model.decision_function(rows[place : place + 1])[0])
        loss += float(np.logaddexp(0.0, margin)) - labels[place] * margin
        model.partial_fit(rows[place : place + 1], labels[place : place + 1], classes=[0, 1])
    return loss / len(rows)


def river(rows: np.ndarray, labels: np.ndarray) -> float:
    from river import linear_model, optim

    shrinking = optim.schedulers.InverseScaling(1.0, power=0.5)
    model = linear_model.LogisticRegression(
        optim.SGD(shrinking), l2=0.0, intercept_lr=optim.schedulers.InverseScaling(1.0, power=0.5)
    )
    loss = 0.0
    for row, label in zip(rows, labels, strict=True):
        named = dict(enumerate(row))
        chance = min(max(model.predict_proba_one(named)[True], 1e-15), 1.0 - 1e-15)
        loss -= math.log(chance if label else 1.0 - chance)
        model.learn_one(named, bool(label))
    return loss / len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.learner_quality")
    parser.add_argument("--items", type=int, default=20_000)
    count = parser.parse_args().items
    (items,) = Higgs(count, seed=3).read(NumberedChunk(index=0, units=count, bytes=0))
    rows = items.column("features").flatten().to_numpy().reshape(count, -1).astype(float)
    labels = items.column("label").to_numpy()
    print(f"afspark      {ours(items, count):.6f}")
    print(f"the formula  {progressive_log_loss(rows, labels)[0]:.6f}")
    for name, package, measure in (("scikit-learn", "sklearn", scikit), ("river       ", "river", river)):
        told = f"{measure(rows, labels):.6f}" if importlib.util.find_spec(package) else "not installed"
        print(f"{name} {told}")


if __name__ == "__main__":
    main()
