"""Count-Min sketch: r rows of c counters, every key counted once in each row.

A key is its 64-bit hash. The column of row i is the upper half of hash * ROW_FACTORS[i], scaled down to c
columns: one multiplication, a shift and another multiplication, no division. These columns are part of what a
stored sketch means; golden tests fix them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from afspark.errors import UsageError
from afspark.model.kernels.hashing import Secret, new_secret
from afspark.model.kernels.plain_arrays import Array

MAX_ROWS = 16
ROW_FACTORS = np.array(
    [
        0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB,
        0x8EBC6AF09C88C6E3, 0x589965CC75374CC3, 0x1D8E4E27C47D124F, 0xEB44ACCAB455D165,
        0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5, 0x85EBCA77C2B2AE63,
        0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 0x94D049BB133111EB, 0xBF58476D1CE4E5B9,
    ],
    np.uint64,
)  # fmt: skip
"""Odd factors, one per row."""

_NONE, _ONE, _S32 = np.uint64(0), np.uint64(1), np.uint64(32)
# Where a search stands, so that it can go on after the set of seen keys has grown.
_NEXT, _FOUND, _HELD, _ZERO = range(4)


@njit(cache=True, nogil=True, inline="always")
def column_of(h, row, columns):  # type: ignore[no-untyped-def]
    """Column of a key's hash in one row of a sketch with ``columns`` (uint64, < 2**32) columns."""
    return (((h * ROW_FACTORS[row]) >> _S32) * columns) >> _S32


@njit(cache=True, nogil=True)
def add_weights(delta, hashes, weights):  # type: ignore[no-untyped-def]
    """Add every key's weight to its counter in each row."""
    columns = np.uint64(delta.shape[1])
    for i in range(len(hashes)):
        h, weight = hashes[i], weights[i]
        for row in range(delta.shape[0]):
            delta[row, column_of(h, row, columns)] += weight


@njit(cache=True, nogil=True)
def take_minima(matrix, hashes, out):  # type: ignore[no-untyped-def]
    """``out[i]`` = least counter of key i over the rows."""
    columns = np.uint64(matrix.shape[1])
    for i in range(len(hashes)):
        h = hashes[i]
        least = matrix[0, column_of(h, 0, columns)]
        for row in range(1, matrix.shape[0]):
            least = min(least, matrix[row, column_of(h, row, columns)])
        out[i] = least


@njit(cache=True, nogil=True)
def add_and_reach(matrix, hashes, weights, hint, reached):  # type: ignore[no-untyped-def]
    """``add_weights`` that collects in ``reached`` the rows whose key is at ``hint`` or above; how many."""
    columns = np.uint64(matrix.shape[1])
    count = np.int64(0)
    for i in range(len(hashes)):
        h, weight = hashes[i], weights[i]
        column = column_of(h, 0, columns)
        least = matrix[0, column] + weight
        matrix[0, column] = least
        for row in range(1, matrix.shape[0]):
            column = column_of(h, row, columns)
            new = matrix[row, column] + weight
            matrix[row, column] = new
            least = min(least, new)
        # Written in any case and kept only if it counts: nobody can predict a branch on it.
        reached[count] = i
        count += np.int64(least >= hint)
    return count


@njit(cache=True, nogil=True)
def shift_for(slots):  # type: ignore[no-untyped-def]
    """How far a product is shifted to give one of ``slots`` (a power of two)."""
    shift = np.uint64(64)
    while slots > 1:
        slots >>= 1
        shift -= _ONE
    return shift


@njit(cache=True, nogil=True)
def find_new(hashes, reached, count, table, factor, state, found):  # type: ignore[no-untyped-def]
    """Collects in ``found`` those of the first ``count`` rows of ``reached`` whose key is new to ``table``.

    Returns False, with ``state`` telling where to go on, if ``table`` is more than half full.
    """
    mask, shift = np.uint64(len(table) - 1), shift_for(len(table))
    room = len(table) >> 1
    for k in range(state[_NEXT], count):
        if state[_HELD] >= room:
            state[_NEXT] = k
            return False
        i = reached[k]
        h = hashes[i]
        if h == _NONE:
            # 0 marks a free slot, so the key with hash 0 is remembered apart.
            if state[_ZERO] == 0:
                state[_ZERO] = 1
                found[state[_FOUND]] = i
                state[_FOUND] += 1
            continue
        slot = (h * factor) >> shift
        while table[slot] != _NONE and table[slot] != h:
            slot = (slot + _ONE) & mask
        if table[slot] == _NONE:
            table[slot] = h
            state[_HELD] += 1
            found[state[_FOUND]] = i
            state[_FOUND] += 1
    return True


@njit(cache=True, nogil=True)
def move_keys(old, new, factor):  # type: ignore[no-untyped-def]
    """Enter the keys of one open-addressing set into an empty larger one."""
    mask, shift = np.uint64(len(new) - 1), shift_for(len(new))
    for i in range(len(old)):
        h = old[i]
        if h != _NONE:
            slot = (h * factor) >> shift
            while new[slot] != _NONE:
                slot = (slot + _ONE) & mask
            new[slot] = h


class SeenKeys:
    """The hashes already reported in a batch; make a new one for each batch. Its slots are secret, as in all tables."""

    def __init__(self) -> None:
        self.factor = Secret.of(new_secret()).factor
        self.table: Array = np.zeros(1024, np.uint64)
        self.state: Array = np.zeros(4, np.int64)

    def __len__(self) -> int:
        return int(self.state[_HELD] + self.state[_ZERO])

    def grow(self) -> None:
        larger = np.zeros(4 * len(self.table), np.uint64)
        move_keys(self.table, larger, self.factor)
        self.table = larger


def update(delta: Array, hashes: Array, weights: Any) -> None:
    """Add ``weights`` (array or one number for all) of the keys with ``hashes`` to ``delta``, in place.

    ``delta`` is int64 or float64 with shape (r, c); weights are taken as its type.
    """
    _check(delta)
    add_weights(delta, _frozen(hashes, np.uint64), _weights(weights, hashes, delta))


def estimate(matrix: Array, hashes: Array) -> Array:
    """For each key an estimate of its total weight, never too low if weights are not negative."""
    _check(matrix)
    out = np.empty(len(hashes), matrix.dtype)
    take_minima(_frozen(matrix, matrix.dtype), _frozen(hashes, np.uint64), out)
    return out


def update_and_find(matrix: Array, hashes: Array, weights: Any, hint: float, seen: SeenKeys) -> Array:
    """Like ``update``, and finds keys that may be heavy: ascending positions into ``hashes`` (int64).

    One position for each key not in ``seen`` whose estimate in ``matrix``, right after one of its updates in this
    call, is at least ``hint``. Found keys enter ``seen``.
    """
    _check(matrix)
    hashes = _frozen(hashes, np.uint64)
    reached, found = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
    count = add_and_reach(matrix, hashes, _weights(weights, hashes, matrix), float(hint), reached)
    state = seen.state
    state[_NEXT] = state[_FOUND] = 0
    while not find_new(hashes, reached, count, seen.table, seen.factor, state, found):
        seen.grow()
    return found[: int(state[_FOUND])].copy()


def _weights(weights: Any, hashes: Array, delta: Array) -> Array:
    if np.ndim(weights) == 0:
        weights = np.full(len(hashes), weights)
    if len(weights) != len(hashes):
        raise UsageError(f"{len(hashes)} keys came with {len(weights)} weights.")
    return _frozen(weights, delta.dtype)


def _check(matrix: Array) -> None:
    if matrix.ndim != 2 or not 1 <= matrix.shape[0] <= MAX_ROWS or not 1 <= matrix.shape[1] < 2**32:
        raise UsageError(
            f"A sketch cannot have shape {matrix.shape}.",
            remedy=f"Use 1 to {MAX_ROWS} rows and at least one column.",
            shape=matrix.shape,
        )


def _frozen(data: Any, kind: Any) -> Array:
    """A contiguous read-only view, so that kernels are compiled once whoever owns the memory."""
    view = np.ascontiguousarray(data, kind).view()
    view.flags.writeable = False
    return view
