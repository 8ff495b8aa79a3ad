"""Bernoulli samples that come out the same whenever the same items are read again.

A draw is ``mix`` of a key and the number of the item, so it needs no generator that remembers anything.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from afspark.model.kernels.hashing import GOLDEN, mix
from afspark.model.kernels.plain_arrays import Array


@njit(cache=True, nogil=True)
def draw_in_order(key, limit, out):  # type: ignore[no-untyped-def]
    """``out[i]`` = whether the i-th draw of the sequence ``key`` is below ``limit``."""
    counter = key
    for i in range(len(out)):
        counter += GOLDEN
        out[i] = mix(counter) < limit


@njit(cache=True, nogil=True)
def draw_by_hash(key, hashes, limit, out):  # type: ignore[no-untyped-def]
    """``out[i]`` = whether the draw of the item with ``hashes[i]`` is below ``limit``."""
    for i in range(len(out)):
        out[i] = mix(hashes[i] ^ key) < limit


def bernoulli(key: int, rate: float, *, count: int | None = None, hashes: Array | None = None) -> Array:
    """Which items are in a sample of ``rate`` in (0, 1]: of ``count`` items in order, or of those with ``hashes``."""
    size = len(hashes) if hashes is not None else count or 0
    if rate >= 1:
        return np.ones(size, bool)
    out, limit = np.empty(size, bool), np.uint64(int(rate * 2.0**64))
    if hashes is None:
        draw_in_order(np.uint64(key), limit, out)
    else:
        draw_by_hash(np.uint64(key), hashes, limit, out)
    return out


def sequence_key(*parts: int) -> int:
    """One key of 64 bits from several whole numbers, in order.

    >>> sequence_key(1, 2) == sequence_key(1, 2) != sequence_key(2, 1)
    True
    """
    key = int(GOLDEN)
    for part in parts:
        key = int(mix(np.uint64(key) ^ np.uint64(part % 2**64)))
    return key
