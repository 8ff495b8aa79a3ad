"""A failure-free logistic regression by a second way: one process, whole copies of the model, none of the engine.

It learns batch by batch as the workers of a pipeline would, so that without failures both have the same model up to
rounding, and with failures the difference is what they cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit

from afspark.algorithms import Features
from afspark.model.kernels.plain_arrays import Array
from afspark.sources import Chunk, Source


@dataclass(frozen=True)
class Recount:
    """What a failure-free run would have come to."""

    model: Array
    items: int
    correct: int
    loss: float
    skipped: int

    @property
    def prediction_rate(self) -> float:
        return self.correct / self.items if self.items else math.nan

    @property
    def log_loss(self) -> float:
        return self.loss / self.items if self.items else math.nan


def relearn(
    source: Source,
    batches: Iterable[Sequence[Sequence[Chunk]]],
    features: Features,
    rate: float,
    *,
    iteration: int | None = None,
) -> Recount:
    """Learns from ``batches``, each of which is the chunks of every worker.

    Models are merged when all workers have learned from so many items of theirs; None: when the batch ends.
    """
    merged = np.zeros(features.cells)
    seen: dict[int, int] = {}
    skipped = correct = 0
    loss = 0.0
    for shares in batches:
        steps = [list(_steps(source, chunks, features, iteration)) for chunks in shares]
        for step in range(max(map(len, steps), default=0)):
            models: list[tuple[int, Array]] = []
            for worker, items in enumerate(one[step] if step < len(one) else None for one in steps):
                if items is None:
                    continue
                model, before = merged.copy(), seen.get(worker, 0)
                sound = features.sound(items)
                labels, (offsets, cells, values) = features.labels(sound), _rows(features, sound)
                hits, cost, bad = _learn(labels, offsets, cells, values, model, before, rate, _norm(features))
                seen[worker] = before + len(labels) - bad
                correct, loss, skipped = correct + hits, loss + cost, skipped + items.num_rows - len(labels) + bad
                models.append((seen[worker] - before, model))
            total = sum(items for items, _ in models)
            if total:
                merged = sum((items / total * model for items, model in models), np.zeros(features.cells))
    return Recount(merged, sum(seen.values()), correct, loss, skipped)


def _steps(
    source: Source, chunks: Sequence[Chunk], features: Features, iteration: int | None
) -> Iterator[pa.RecordBatch]:
    """The items of a worker in a batch, divided into steps; those in which nothing can be learned are none."""
    found = [items for chunk in chunks for items in source.read(chunk)]
    if not found:
        return
    rows = pa.concat_batches(found)
    width = iteration or rows.num_rows
    for start in range(0, rows.num_rows, max(1, width)):
        items = rows.slice(start, width)
        if iteration is None or features.sound(items).num_rows:
            yield items


def _rows(features: Features, items: pa.RecordBatch) -> tuple[Array, Array, Array]:
    if features.sparse or (features.numeric and features.categorical):
        return features.sparse_of(items)
    if features.categorical:
        cells = features.cells_of(items)
        values = np.ones(cells.size)
    else:
        numbers = features.numbers_of(items)
        cells = np.broadcast_to(np.arange(1, numbers.shape[1] + 1), numbers.shape)
        values = numbers.astype(np.float64).reshape(-1)
    rows, width = cells.shape
    return np.arange(rows + 1) * width, np.ascontiguousarray(cells, np.uint32).reshape(-1), values


def _norm(features: Features) -> float:
    if features.categorical:
        return math.sqrt(features.norm**2 + (features.values or 0) ** 2) if features.numeric else math.inf
    return features.norm


@njit(cache=True)
def _learn(labels, offsets, cells, values, model, t, rate, norm):  # type: ignore[no-untyped-def]
    correct = bad = 0
    loss = 0.0
    for i in range(len(labels)):
        z = square = 0.0
        for k in range(offsets[i], offsets[i + 1]):
            z += model[cells[k]] * values[k]
            square += values[k] ** 2
        scale = min(1.0, norm / math.sqrt(square)) if square > 0.0 else 1.0
        z = model[0] + scale * z
        if not (math.isfinite(z) and math.isfinite(square)):
            bad += 1
            continue
        t += 1
        y = 1.0 if labels[i] else 0.0
        p = 1.0 / (1.0 + math.exp(-z)) if z > -700.0 else 0.0
        correct += (z > 0.0) == (y == 1.0)
        loss += math.log1p(math.exp(-abs(z))) + (abs(z) if (z > 0.0) != (y == 1.0) else 0.0)
        step = rate * (y - p) / math.sqrt(t)
        model[0] += step
        for k in range(offsets[i], offsets[i + 1]):
            model[cells[k]] += step * scale * values[k]
    return correct, loss, bad
