"""Kernels of the matrix: whole ranges of cells at memory speed."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def journal_span(deltas, start, values, stamps, attempt, journal, olds, count):  # type: ignore[no-untyped-def]
    """Journals the cells ``start + i`` with a non-zero delta that ``attempt`` has not touched; returns the
    new count.
    """
    new = np.int64(0)
    for i in range(len(deltas)):
        new += np.int64((deltas[i] != 0) & (stamps[start + i] != attempt))
    if new == len(deltas):
        # The usual first touch of a dense delta, without branches.
        for i in range(new):
            stamps[start + i] = attempt
            journal[count + i] = start + i
            olds[count + i] = values[start + i]
    elif new > 0:
        at = count
        for i in range(len(deltas)):
            cell = start + i
            if deltas[i] != 0 and stamps[cell] != attempt:
                stamps[cell] = attempt
                journal[at] = cell
                olds[at] = values[cell]
                at += 1
    return count + new


@njit(cache=True, nogil=True)
def add_span_integers(deltas, start, values):  # type: ignore[no-untyped-def]
    """``values[start + i] += deltas[i]``. Returns whether a sum left the range of int64."""
    wrapped = np.int64(0)
    for i in range(len(deltas)):
        old = values[start + i]
        new = old + deltas[i]
        wrapped |= (old ^ new) & (deltas[i] ^ new)
        values[start + i] = new
    return wrapped < 0


@njit(cache=True, nogil=True)
def add_span_floats(deltas, start, values):  # type: ignore[no-untyped-def]
    """``values[start + i] += deltas[i]``."""
    for i in range(len(deltas)):
        values[start + i] += deltas[i]
    return False
