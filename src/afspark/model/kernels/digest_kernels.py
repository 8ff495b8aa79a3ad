"""Digests: sums over what a batch has changed, which do not depend on the order of cells or rows; and of bytes."""

from __future__ import annotations

import numpy as np
from numba import njit

from afspark.model.kernels.hashing import FIRST, GOLDEN, SECOND, hash_int64, mix
from afspark.model.kernels.memory import load64

_UNIT = 2.0**-53
_SCALE = 2.0**-64
"""Keeps sums of the greatest floats from overflowing."""
_S11, _S29, _S32, _S35 = np.uint64(11), np.uint64(29), np.uint64(32), np.uint64(35)


@njit(cache=True, nogil=True, inline="always")
def weight(h):  # type: ignore[no-untyped-def]
    """A number in 1..2 from a hash."""
    return 1.0 + (h >> _S11) * _UNIT


@njit(cache=True, nogil=True)
def digest_integers(journal, olds, values, places):  # type: ignore[no-untyped-def]
    """(cells that differ from their old value, sum of a hash of place and both values over them).

    ``places`` are hashes of what the cells stand for. Without any, cell numbers mean the same in every copy of the
    state, and enter the hash instead.
    """
    count, total, numbered = 0, np.uint64(0), len(places) == 0
    for i in range(len(journal)):
        cell = np.uint64(journal[i])
        old, new = olds[i], values[cell]
        if old != new:
            place = hash_int64(cell) if numbered else places[i]
            total += mix((place ^ hash_int64(old)) * GOLDEN + hash_int64(new))
            count += 1
    return count, total


@njit(cache=True, nogil=True)
def digest_floats(journal, olds, values, places):  # type: ignore[no-untyped-def]
    """(of the finite cells that differ from their old value the sum of new values, that of changes, and the size of
    all that was summed up). As in `digest_integers`; the place of a cell gives its weight.
    """
    sum_new, sum_change, size, numbered = 0.0, 0.0, 0.0, len(places) == 0
    for i in range(len(journal)):
        cell = np.uint64(journal[i])
        old, new = olds[i], values[cell]
        if old != new and np.isfinite(old) and np.isfinite(new):
            factor = _SCALE * weight(hash_int64(cell) if numbered else places[i])
            sum_new += factor * new
            sum_change += abs(factor * new - factor * old)
            size += _SCALE * abs(new) + _SCALE * abs(old)
    return sum_new, sum_change, size


@njit(cache=True, nogil=True, inline="always")
def _with_word(h, word):  # type: ignore[no-untyped-def]
    """A bijection of the hash for every word, and of the word for every hash; cheaper than `mix`."""
    h = (h ^ word) * GOLDEN
    return h ^ (h >> _S32)


@njit(cache=True, nogil=True)
def fold_words(hashes, words):  # type: ignore[no-untyped-def]
    """Folds the words of a further column into the rows' hashes, in place. Order matters."""
    for i in range(len(hashes)):
        hashes[i] = _with_word(hashes[i], words[i])


@njit(cache=True, nogil=True)
def digest_word_rows(columns, label):  # type: ignore[no-untyped-def]
    """`digest_rows` of what `fold_words` makes of a tuple of columns, in one pass without hashes in between."""
    total = np.uint64(0)
    for i in range(len(columns[0])):
        h = GOLDEN
        for words in columns:
            h = _with_word(h, words[i])
        total += mix(h * GOLDEN + label)
    return total


@njit(cache=True, nogil=True)
def digest_rows(hashes, label):  # type: ignore[no-untyped-def]
    """The sum of the rows' hashes, each of which is mixed with the hash of a label that all of them have."""
    total = np.uint64(0)
    for i in range(len(hashes)):
        total += mix(hashes[i] * GOLDEN + label)
    return total


@njit(cache=True, nogil=True)
def weighted_sum(hashes, values):  # type: ignore[no-untyped-def]
    """(sum of the finite values, each with the weight of its hash; sum of their sizes; how many are not finite)."""
    total, size, odd = 0.0, 0.0, 0
    for i in range(len(hashes)):
        if np.isfinite(values[i]):
            total += weight(hashes[i]) * (_SCALE * values[i])
            size += _SCALE * abs(values[i])
        else:
            odd += 1
    return total, size, odd


@njit(cache=True, nogil=True, inline="always")
def _folded(lane, word):  # type: ignore[no-untyped-def]
    """A bijection of the lane for every word, and of the word for every lane."""
    lane += word * FIRST
    return ((lane << _S29) | (lane >> _S35)) * GOLDEN


@njit(cache=True, nogil=True)
def digest_bytes(data):  # type: ignore[no-untyped-def]
    """Two digests of contiguous bytes, which are read as fast as memory allows: four lanes take turns with the words.

    The rest that fills no word of every lane goes byte by byte to the first one.
    """
    size = np.int64(len(data))
    a, b, c, d = np.uint64(size), FIRST, SECOND, GOLDEN
    position = np.int64(0)
    while position + 32 <= size:
        a = _folded(a, load64(data, position))
        b = _folded(b, load64(data, position + 8))
        c = _folded(c, load64(data, position + 16))
        d = _folded(d, load64(data, position + 24))
        position += 32
    while position < size:
        a = _folded(a, np.uint64(data[position]))
        position += 1
    one = mix(mix(mix(mix(a) ^ b) ^ c) ^ d)
    return one, mix(mix(mix(mix(d + FIRST) ^ c) ^ b) ^ a)
