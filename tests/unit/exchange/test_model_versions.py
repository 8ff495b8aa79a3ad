"""What lies between two versions of a model."""

from __future__ import annotations

import numpy as np

from afspark.exchange.model_versions import ModelVersions
from afspark.model.training import Cells


def test_changes_of_several_versions_are_every_cell_once_with_its_last_value() -> None:
    chance = np.random.default_rng(5)
    versions = ModelVersions(chance.normal(size=50))
    models = [versions.model.copy()]
    for _ in range(12):
        parts = []
        for _ in range(2):
            index = chance.choice(50, int(chance.integers(0, 20)), replace=False).astype(np.uint32)
            parts.append((Cells(index, chance.normal(size=len(index))), 0.5))
        versions.merge(parts)
        models.append(versions.model.copy())
    for since in range(len(models)):
        for upto in range(since, len(models)):
            cells = versions.changes(since, upto)
            assert len(set(cells.index.tolist())) == len(cells.index)
            held = models[since].copy()
            held[cells.index] = cells.values
            assert held.tolist() == models[upto].tolist()
    # Looking changes nothing of what is merged next.
    before = versions.model.copy()
    versions.merge([(Cells(np.array([3], np.uint32), np.array([1.0])), 1.0)])
    assert versions.norms[-1] == abs(versions.model[3] - before[3])
