"""What lies between two versions of a model, and what a server keeps of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from afspark.exchange.change_log import LOG_BYTES
from afspark.exchange.model_versions import ModelVersions
from afspark.model.training import Cells

SIZE = 50


def merged(versions: ModelVersions, count: int) -> Iterator[np.ndarray]:
    """Merges changes of some cells each; the model after every merge."""
    chance = np.random.default_rng(5)
    for _ in range(count):
        parts = []
        for _ in range(2):
            index = chance.choice(SIZE, int(chance.integers(0, 20)), replace=False).astype(np.uint32)
            parts.append((Cells(index, chance.normal(size=len(index))), 0.5))
        versions.merge(parts)
        yield versions.model.copy()


def after(model: np.ndarray, cells: Cells) -> list[float]:
    assert len(set(cells.index.tolist())) == len(cells.index)
    held = model.copy()
    held[cells.index] = cells.values
    return held.tolist()


@pytest.mark.parametrize("log_bytes", [LOG_BYTES, 3000, 0])
def test_changes_of_several_versions_are_every_cell_once_with_its_last_value(log_bytes: int) -> None:
    """Also where the log does not stay in memory."""
    versions = ModelVersions(np.random.default_rng(3).normal(size=SIZE), log_bytes=log_bytes)
    models = [versions.model.copy(), *merged(versions, 12)]
    for since in range(len(models)):
        for upto in range(since, len(models)):
            assert after(models[since], versions.changes(since, upto)) == models[upto].tolist()
    for upto, model in enumerate(models):
        assert versions.changes(None, upto).values.tolist() == model.tolist()
    # Looking changes nothing of what is merged next.
    before = versions.model.copy()
    versions.merge([(Cells(np.array([3], np.uint32), np.array([1.0])), 1.0)])
    assert versions.norms[-1] == abs(versions.model[3] - before[3])


@pytest.mark.parametrize("forgets", [False, True])
def test_the_memory_of_a_server_does_not_grow_with_the_steps_of_a_batch(forgets: bool) -> None:
    versions = ModelVersions(np.zeros(SIZE), forgets=forgets, log_bytes=3000)
    models = [versions.model.copy()]
    for model in merged(versions, 200):
        models.append(model)
        assert versions.nbytes <= 3000
        # Nobody is given more than a whole model.
        assert all(len(versions.changes(since, versions.newest).index) <= SIZE for since in range(versions.newest))
    for since in range(0, len(models), 7):
        assert after(models[since], versions.changes(since, versions.newest)) == models[-1].tolist()


def test_what_a_batch_has_changed_is_what_is_another_value_now() -> None:
    first = np.arange(5.0)
    versions = ModelVersions(first)
    for change in (1.0, 2.0, -1.0):
        versions.merge([(Cells(np.array([1], np.uint32), np.array([change])), 1.0)])
        versions.merge([(Cells(np.array([4], np.uint32), np.array([-1.0 if change == 1.0 else 0.5])), 1.0)])
    found = versions.changed()
    assert (found.index.tolist(), found.values.tolist()) == ([1], [3.0])
