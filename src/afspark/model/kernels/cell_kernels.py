"""Kernels over the cells of a state: values, shadows, and the journal of the running transaction.

Cell numbers come as unsigned or known-good integers; bounds are the caller's. Each kernel does one step of an
update, so that the caller can publish the journal between the step that writes it and the step that changes
values.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import overload

from afspark.model.kernels.memory import prefetch

SUM_BLOCK = 256
"""Terms summed at a stretch. Summing block by block keeps the rounding error of long sums small."""

_AHEAD = 16
"""How far ahead the cells of a table, which lie anywhere, are asked for. Written out in each loop: a function,
even an inlined one, would count references to its arrays at every turn.
"""


def distance(a, b):  # type: ignore[no-untyped-def]
    """|a - b| as float64: exact before one rounding for integers, never NaN for floats.

    Two NaNs, or two equal infinities, are at distance 0; a NaN and anything else are at infinite distance.
    """
    raise NotImplementedError("only callable from compiled kernels")


@overload(distance, inline="always")
def _distance(a, b):  # type: ignore[no-untyped-def]
    if isinstance(a, types.Integer):

        def integers(a, b):  # type: ignore[no-untyped-def]
            # Modular: larger minus smaller is the exact difference, which may need all 64 bits.
            if a >= b:
                return np.float64(np.uint64(a) - np.uint64(b))
            return np.float64(np.uint64(b) - np.uint64(a))

        return integers

    def floats(a, b):  # type: ignore[no-untyped-def]
        d = abs(a - b)
        if d == d:
            return d
        if a == b or (a != a and b != b):
            return 0.0
        return np.inf

    return floats


@njit(cache=True, nogil=True)
def all_within(cells, size):  # type: ignore[no-untyped-def]
    """Whether every cell number is in 0..size-1."""
    bad = False
    for i in range(len(cells)):
        bad |= (cells[i] < 0) | (cells[i] >= size)
    return not bad


@njit(cache=True, nogil=True)
def journal_cells(cells, values, stamps, attempt, journal, olds, count):  # type: ignore[no-untyped-def]
    """Appends cells not yet stamped with ``attempt``, and their present values. Returns the new count."""
    for i in range(len(cells)):
        cell = np.uint64(cells[i])
        if stamps[cell] != attempt:
            stamps[cell] = attempt
            journal[count] = cell
            olds[count] = values[cell]
            count += 1
    return count


@njit(cache=True, nogil=True)
def add_integers(cells, deltas, step, values):  # type: ignore[no-untyped-def]
    """``values[cells[i]] += deltas[i * step]`` in order. Returns whether a sum left the range of int64."""
    wrapped = np.int64(0)
    for i in range(len(cells)):
        cell = np.uint64(cells[i])
        old = values[cell]
        delta = deltas[i * step]
        new = old + delta
        wrapped |= (old ^ new) & (delta ^ new)
        values[cell] = new
    return wrapped < 0


@njit(cache=True, nogil=True)
def add_floats(cells, deltas, step, values):  # type: ignore[no-untyped-def]
    """``values[cells[i]] += deltas[i * step]`` in order."""
    for i in range(len(cells)):
        values[np.uint64(cells[i])] += deltas[i * step]
    return False


@njit(cache=True, nogil=True)
def put_cells(cells, news, step, values):  # type: ignore[no-untyped-def]
    """``values[cells[i]] = news[i * step]`` in order."""
    for i in range(len(cells)):
        values[np.uint64(cells[i])] = news[i * step]


@njit(cache=True, nogil=True)
def undo_cells(journal, olds, count, values):  # type: ignore[no-untyped-def]
    """Puts the journalled old values back."""
    for i in range(count):
        values[journal[i]] = olds[i]


@njit(cache=True, nogil=True)
def move_shadows(cells, values, shadows):  # type: ignore[no-untyped-def]
    """``shadows[cells] = values[cells]``."""
    for i in range(len(cells)):
        shadows[cells[i]] = values[cells[i]]


@njit(cache=True, nogil=True, inline="always")
def life(old, new, shadow):  # type: ignore[no-untyped-def]
    """1 if a cell came to life (value or shadow not zero) by its new value, -1 if it died, else 0."""
    return np.int64(shadow == 0) * (np.int64(new != 0) - np.int64(old != 0))


@njit(cache=True, nogil=True)
def fold_sums(squared, journal, olds, values, shadows, counting):  # type: ignore[no-untyped-def]
    """Power sums of the journalled cells against their shadows, of the old and of the present values; and how
    many cells came to life in balance, if that is to be counted.
    """
    before = 0.0
    after = 0.0
    gained = np.int64(0)
    for start in range(0, len(journal), SUM_BLOCK):
        block_before = 0.0
        block_after = 0.0
        for i in range(start, min(start + SUM_BLOCK, len(journal))):
            if counting and i + _AHEAD < len(journal):
                prefetch(shadows, np.int64(journal[i + _AHEAD]))
                prefetch(values, np.int64(journal[i + _AHEAD]))
            cell = journal[i]
            shadow = shadows[cell]
            b = distance(olds[i], shadow)
            a = distance(values[cell], shadow)
            if squared:
                b *= b
                a *= a
            block_before += b
            block_after += a
            if counting:
                gained += life(olds[i], values[cell], shadow)
        before += block_before
        after += block_after
    return before, after, gained


@njit(cache=True, nogil=True)
def fold_max(journal, olds, values, shadows, counting):  # type: ignore[no-untyped-def]
    """Nothing by the old values, because a maximum cannot be corrected; by the present ones the largest distance of a
    journalled cell from its shadow; and how many cells came to life, if counted.
    """
    largest = 0.0
    gained = np.int64(0)
    for i in range(len(journal)):
        if counting and i + _AHEAD < len(journal):
            prefetch(shadows, np.int64(journal[i + _AHEAD]))
            prefetch(values, np.int64(journal[i + _AHEAD]))
        cell = journal[i]
        largest = max(largest, distance(values[cell], shadows[cell]))
        if counting:
            gained += life(olds[i], values[cell], shadows[cell])
    return 0.0, largest, gained


@njit(cache=True, nogil=True)
def fold_keys(journal, olds, values, shadows, counting):  # type: ignore[no-untyped-def]
    """How many journalled cells are zero or non-zero where their shadow is not, by the old and by the present
    values; and how many cells came to life in balance, if that is to be counted.
    """
    before = np.int64(0)
    after = np.int64(0)
    gained = np.int64(0)
    for i in range(len(journal)):
        if counting and i + _AHEAD < len(journal):
            prefetch(shadows, np.int64(journal[i + _AHEAD]))
            prefetch(values, np.int64(journal[i + _AHEAD]))
        cell = journal[i]
        durable = shadows[cell] != 0
        before += np.int64((olds[i] != 0) != durable)
        after += np.int64((values[cell] != 0) != durable)
        if counting:
            gained += life(olds[i], values[cell], shadows[cell])
    return np.float64(before), np.float64(after), gained


@njit(cache=True, nogil=True)
def key_changes(cells, values, shadows, out):  # type: ignore[no-untyped-def]
    """``out[i]`` = 1 if cell ``cells[i]`` is zero where its shadow is not, or the other way round, else 0."""
    for i in range(len(cells)):
        out[i] = np.float64((values[cells[i]] != 0) != (shadows[cells[i]] != 0))


@njit(cache=True, nogil=True)
def count_key_changes(values, shadows):  # type: ignore[no-untyped-def]
    """How many cells are zero where their shadow is not, or the other way round."""
    count = np.int64(0)
    for i in range(len(values)):
        count += np.int64((values[i] != 0) != (shadows[i] != 0))
    return np.float64(count)


@njit(cache=True, nogil=True)
def distances(cells, values, shadows, out):  # type: ignore[no-untyped-def]
    """``out[i]`` = distance of cell ``cells[i]`` from its shadow."""
    for i in range(len(cells)):
        out[i] = distance(values[cells[i]], shadows[cells[i]])


@njit(cache=True, nogil=True)
def squared_distances(cells, values, shadows, out):  # type: ignore[no-untyped-def]
    """``out[i]`` = square of the distance of cell ``cells[i]`` from its shadow."""
    for i in range(len(cells)):
        d = distance(values[cells[i]], shadows[cells[i]])
        out[i] = d * d


@njit(cache=True, nogil=True)
def total_distance(squared, values, shadows):  # type: ignore[no-untyped-def]
    """Power sum over all cells."""
    total = 0.0
    for start in range(0, len(values), SUM_BLOCK):
        block = 0.0
        for i in range(start, min(start + SUM_BLOCK, len(values))):
            d = distance(values[i], shadows[i])
            block += d * d if squared else d
        total += block
    return total


@njit(cache=True, nogil=True)
def largest_distance(values, shadows):  # type: ignore[no-untyped-def]
    """Largest distance over all cells."""
    largest = 0.0
    for i in range(len(values)):
        largest = max(largest, distance(values[i], shadows[i]))
    return largest


@njit(cache=True, nogil=True)
def sum_where(weights, chosen, wanted):  # type: ignore[no-untyped-def]
    """Sum of the weights whose ``chosen`` flag equals ``wanted``."""
    total = 0.0
    for start in range(0, len(weights), SUM_BLOCK):
        block = 0.0
        for i in range(start, min(start + SUM_BLOCK, len(weights))):
            if chosen[i] == wanted:
                block += weights[i]
        total += block
    return total


@njit(cache=True, nogil=True)
def choose_largest(weights, budget, chosen):  # type: ignore[no-untyped-def]
    """Flags the fewest weights such that the sum of the others is at most ``budget`` (>= 0); returns their
    number.

    Weights are non-negative, possibly infinite. Of equal weights the earlier ones stay unflagged. A radix
    selection on the bit patterns, whose order is the order of non-negative floats: four passes whatever the
    number of weights.
    """
    bits = weights.view(np.uint64)
    sums = np.empty(65536, np.float64)
    counts = np.empty(65536, np.int64)
    prefix = np.uint64(0)
    kept = 0.0
    for level in range(4):
        shift = np.uint64(48 - 16 * level)
        sums[:] = 0.0
        counts[:] = 0
        for i in range(len(bits)):
            if level == 0 or (bits[i] >> (shift + np.uint64(16))) == prefix:
                digit = (bits[i] >> shift) & np.uint64(0xFFFF)
                sums[digit] += weights[i]
                counts[digit] += 1
        cut = -1
        for digit in range(65536):
            if counts[digit] > 0:
                if kept + sums[digit] > budget:
                    cut = digit
                    break
                kept += sums[digit]
        if cut < 0:
            if level == 0:
                chosen[:] = False
                return 0
            # Rounding alone made the parent group too heavy: keep it whole up to its largest digit.
            for digit in range(65535, -1, -1):
                if counts[digit] > 0:
                    cut = digit
                    kept -= sums[digit]
                    break
        prefix = (prefix << np.uint64(16)) | np.uint64(cut)
    spare = 0
    weight = np.array([prefix], np.uint64).view(np.float64)[0]
    while spare < len(bits) and kept + weight <= budget:
        kept += weight
        spare += 1
    number = 0
    for i in range(len(bits)):
        if bits[i] > prefix:
            chosen[i] = True
            number += 1
        elif bits[i] == prefix and spare == 0:
            chosen[i] = True
            number += 1
        else:
            if bits[i] == prefix:
                spare -= 1
            chosen[i] = False
    return number
