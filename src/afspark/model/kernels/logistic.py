"""Online logistic regression: one gradient step an item, and the merging of models.

The model is an array of cells, of which cell 0 is the bias. For an item with features x (and 1 for the bias) and label
y in {0, 1}, p = 1 / (1 + exp(-z)) with z = model · x is predicted first; then the model moves by
``rate / sqrt(t) * (y - p) * x``, where t numbers the items from 1. Features longer than ``norm`` (Euclidean, without
the bias) are shortened to it, which bounds every step. An item whose z is no finite number changes nothing.

Large models are not copied: a cell is fetched into ``work`` when it is first needed. ``work[j]`` is (value, mark), and
a mark other than the present ``epoch`` means that the cell has not been fetched.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from afspark.model.kernels.hashing import GOLDEN, hash_int64, mix
from afspark.model.kernels.plain_arrays import Array, read_only

_S32 = np.uint64(32)
# A product of probabilities is turned into a logarithm before it gets too small, and a tiny factor at once.
_SMALL, _TINY = 1e-200, 1e-100


class Lesson(NamedTuple):
    """What a batch of items taught: items with label 1, items predicted rightly, the sum of log losses, and items
    without a finite z, which count nowhere else."""

    positives: int
    correct: int
    loss: float
    bad: int


@njit(cache=True, nogil=True, inline="always")
def _chance(z):  # type: ignore[no-untyped-def]
    """The chance of label 1, without overflow."""
    e = math.exp(-abs(z))
    return 1.0 / (1.0 + e) if z > 0.0 else e / (1.0 + e)


@njit(cache=True, nogil=True, inline="always")
def _judge(z, wanted, loss, product):  # type: ignore[no-untyped-def]
    """How far the predicted chance is from the label; the sum of log losses and the product that is not yet in it."""
    p = _chance(z)
    hit = p if wanted else 1.0 - p
    if hit < _TINY:
        loss += abs(z)
    else:
        product *= hit
        if product < _SMALL:
            loss -= math.log(product)
            product = 1.0
    return (1.0 if wanted else 0.0) - p, loss, product


@njit(cache=True, nogil=True)
def _learn_dense(labels, features, model, t, rate, norm):  # type: ignore[no-untyped-def]
    rows, width = features.shape
    whole = width - width % 4
    limit = norm * norm
    positives = correct = bad = 0
    loss, product = 0.0, 1.0
    for i in range(rows):
        # Four sums side by side: in this order whatever the processor, and not one after the other.
        a0 = a1 = a2 = a3 = 0.0
        s0 = s1 = s2 = s3 = 0.0
        for k in range(0, whole, 4):
            x0 = np.float64(features[i, k])
            x1 = np.float64(features[i, k + 1])
            x2 = np.float64(features[i, k + 2])
            x3 = np.float64(features[i, k + 3])
            a0 += model[k + 1] * x0
            a1 += model[k + 2] * x1
            a2 += model[k + 3] * x2
            a3 += model[k + 4] * x3
            s0 += x0 * x0
            s1 += x1 * x1
            s2 += x2 * x2
            s3 += x3 * x3
        for k in range(whole, width):
            x0 = np.float64(features[i, k])
            a0 += model[k + 1] * x0
            s0 += x0 * x0
        square = (s0 + s1) + (s2 + s3)
        scale = norm / math.sqrt(square) if square > limit else 1.0
        z = model[0] + scale * ((a0 + a1) + (a2 + a3))
        if not (math.isfinite(z) and math.isfinite(square)):
            bad += 1
            continue
        t += 1
        wanted = labels[i] != 0
        positives += wanted
        correct += (z > 0.0) == wanted
        error, loss, product = _judge(z, wanted, loss, product)
        step = rate / math.sqrt(t) * error
        model[0] += step
        step *= scale
        for k in range(width):
            model[k + 1] += step * np.float64(features[i, k])
    return positives, correct, loss - math.log(product), bad


@njit(cache=True, nogil=True)
def _learn_ones(labels, cells, base, work, epoch, touched, count, t, rate):  # type: ignore[no-untyped-def]
    rows, width = cells.shape
    if work[0, 1] != epoch:
        work[0, 0] = base[0]
        work[0, 1] = epoch
        touched[count] = 0
        count += 1
    bias = work[0, 0]
    positives = correct = 0
    loss, product = 0.0, 1.0
    for i in range(rows):
        z = bias
        for k in range(width):
            j = cells[i, k]
            if work[j, 1] != epoch:
                work[j, 0] = base[j]
                work[j, 1] = epoch
                touched[count] = j
                count += 1
            z += work[j, 0]
        t += 1
        wanted = labels[i] != 0
        positives += wanted
        correct += (z > 0.0) == wanted
        error, loss, product = _judge(z, wanted, loss, product)
        step = rate / math.sqrt(t) * error
        bias += step
        for k in range(width):
            work[cells[i, k], 0] += step
    work[0, 0] = bias
    return positives, correct, loss - math.log(product), count


@njit(cache=True, nogil=True)
def _learn_sparse(  # type: ignore[no-untyped-def]
    labels, offsets, cells, values, base, work, epoch, touched, count, t, rate, norm
):
    limit = norm * norm
    if work[0, 1] != epoch:
        work[0, 0] = base[0]
        work[0, 1] = epoch
        touched[count] = 0
        count += 1
    positives = correct = bad = 0
    loss, product = 0.0, 1.0
    for i in range(len(labels)):
        dot = square = 0.0
        for k in range(offsets[i], offsets[i + 1]):
            j = cells[k]
            if work[j, 1] != epoch:
                work[j, 0] = base[j]
                work[j, 1] = epoch
                touched[count] = j
                count += 1
            dot += work[j, 0] * values[k]
            square += values[k] * values[k]
        scale = norm / math.sqrt(square) if square > limit else 1.0
        z = work[0, 0] + scale * dot
        if not (math.isfinite(z) and math.isfinite(square)):
            bad += 1
            continue
        t += 1
        wanted = labels[i] != 0
        positives += wanted
        correct += (z > 0.0) == wanted
        error, loss, product = _judge(z, wanted, loss, product)
        step = rate / math.sqrt(t) * error
        work[0, 0] += step
        step *= scale
        for k in range(offsets[i], offsets[i + 1]):
            work[cells[k], 0] += step * values[k]
    return positives, correct, loss - math.log(product), bad, count


@njit(cache=True, nogil=True)
def _add_model(index, values, weight, base, work, epoch, touched, count):  # type: ignore[no-untyped-def]
    """Adds weight · value to the sums of cells that differ from ``base``; ``work[j]`` is (sum, weights, mark)."""
    for i in range(len(index)):
        j = index[i]
        v = values[i]
        if v == base[j]:
            continue
        if work[j, 2] != epoch:
            work[j, 0] = 0.0
            work[j, 1] = 0.0
            work[j, 2] = epoch
            touched[count] = j
            count += 1
        work[j, 0] += weight * v
        work[j, 1] += weight
    return count


@njit(cache=True, nogil=True)
def _averages(cells, base, work, out):  # type: ignore[no-untyped-def]
    """The sums, with ``base`` for the weight that nobody used."""
    for i in range(len(cells)):
        j = cells[i]
        rest = 1.0 - work[j, 1]
        out[i] = work[j, 0] + rest * base[j]


@njit(cache=True, nogil=True)
def _place_integers(values, slots, first, out):  # type: ignore[no-untyped-def]
    rows, width = values.shape
    span = np.uint64(slots)
    for i in range(rows):
        for k in range(width):
            h = mix(hash_int64(np.int64(values[i, k])) + np.uint64(k + 1) * GOLDEN)
            out[i, k] = first + np.uint32(((h >> _S32) * span) >> _S32)


@njit(cache=True, nogil=True)
def _place_hashes(hashes, number, slots, first, out):  # type: ignore[no-untyped-def]
    span = np.uint64(slots)
    salt = np.uint64(number + 1) * GOLDEN
    for i in range(len(hashes)):
        h = mix(hashes[i] + salt)
        out[i] = first + np.uint32(((h >> _S32) * span) >> _S32)


def place_integers(values: Array, *, slots: int, first: int = 0) -> Array:
    """The cell of every (column, integer) of a matrix, as uint32: first … first + slots - 1, by a stable hash."""
    out = np.empty(values.shape, np.uint32)
    _place_integers(values, slots, np.uint32(first), out)
    return out


def place_hashes(hashes: Array, *, number: int, slots: int, first: int, out: Array) -> None:
    """The same for one column, column ``number``, of which the values have been hashed."""
    _place_hashes(hashes, number, slots, np.uint32(first), out)


def learn_dense(labels: Array, features: Array, model: Array, *, t: int, rate: float, norm: float) -> Lesson:
    """Learns from rows of numbers in place; ``t`` items went before. The model has one cell more than a row."""
    if model.shape != (features.shape[1] + 1,) or len(labels) != len(features):
        raise ValueError(f"{labels.shape} labels and {features.shape} features do not fit {model.shape} cells")
    return Lesson(*_learn_dense(labels, features, model, t, rate, norm))


class Workspace:
    """Cells of a large model that are being worked on, without a copy of the model.

    ``begin`` costs nothing that depends on the model's size; neither does ``changes``, beyond the cells touched.
    """

    _free: dict[tuple[int, int], list[Workspace]] = {}  # noqa: RUF012 - of the process: memory is kept for the next

    def __init__(self, cells: int, width: int) -> None:
        self.cells, self.width = cells, width
        self._work = np.zeros((cells, width))
        self._touched = np.empty(cells, np.uint32)
        self._epoch = 0.0
        self._count = 0

    @classmethod
    def begin(cls, base: Array, *, merging: bool = False) -> Workspace:
        """One on top of ``base``, which must stay as it is until the workspace is done with."""
        free = cls._free.setdefault((len(base), 3 if merging else 2), [])
        space = free.pop() if free else cls(len(base), 3 if merging else 2)
        space._base = read_only(base.view())
        space._epoch += 1.0
        space._count = 0
        return space

    _base: Array

    def end(self) -> None:
        """Gives the memory to the next ``begin`` in this process."""
        self._free[self.cells, self.width].append(self)

    def learn_ones(self, labels: Array, cells: Array, *, t: int, rate: float) -> Lesson:
        """Learns from rows of cells (uint32, all below the size, cell 0 left out) whose features are 1."""
        positives, correct, loss, self._count = _learn_ones(
            labels, cells, self._base, self._work, self._epoch, self._touched, self._count, t, rate
        )
        return Lesson(positives, correct, loss, 0)

    def learn_sparse(
        self, labels: Array, offsets: Array, cells: Array, values: Array, *, t: int, rate: float, norm: float
    ) -> Lesson:
        """Learns from rows of (cell, value): row i is ``offsets[i]:offsets[i + 1]`` of both arrays."""
        *lesson, self._count = _learn_sparse(
            labels,
            offsets,
            cells,
            values,
            self._base,
            self._work,
            self._epoch,
            self._touched,
            self._count,
            t,
            rate,
            norm,
        )
        return Lesson(*lesson)

    def add_model(self, index: Array, values: Array, weight: float) -> None:
        """One of the models to be merged: values of some cells; the weights of all models add up to 1."""
        self._count = _add_model(index, values, weight, self._base, self._work, self._epoch, self._touched, self._count)

    def changes(self) -> tuple[Array, Array]:
        """The cells that were touched, in order, and what they are now; of merged models their average."""
        # A scan of all marks is cheaper than sorting many cells.
        if 8 * self._count > self.cells:
            cells = np.flatnonzero(self._work[:, self.width - 1] == self._epoch).astype(np.uint32)
        else:
            cells = np.sort(self._touched[: self._count])
        if self.width == 2:
            return cells, self._work[cells, 0]
        out = np.empty(len(cells))
        _averages(cells, self._base, self._work, out)
        return cells, out
