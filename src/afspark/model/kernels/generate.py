"""Synthetic input of any size: every block is a pure function of a key, so nothing is stored and all replays.

Random numbers are counter-based: the k-th of a block is ``mix(key + k * GOLDEN)`` (splitmix64). Ranks are
drawn from a Zipf law by the alias method: one random number, one table cell, no search.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from afspark.model.kernels.hashing import GOLDEN, hash_int64, hash_integers, mix
from afspark.model.kernels.plain_arrays import Array, read_only

SLOT = 16
"""Bytes of one spelt word: up to 14 letters, a space, and its length with the space in the last byte."""
_LONGEST = SLOT - 2

_LOW32 = np.uint64(0xFFFFFFFF)
_S2, _S8, _S32, _S56 = np.uint64(2), np.uint64(8), np.uint64(32), np.uint64(56)
_SPACE, _NEWLINE = np.uint8(32), np.uint8(10)
_SOURCE_SALT, _TARGET_SALT = np.uint64(0x5851F42D4C957F2D), np.uint64(0x14057B7EF767814F)

PAYLOADS = np.concatenate(
    [np.full(1638, 40, np.int64), np.full(1638, 1500, np.int64), np.linspace(40, 1500, 820).astype(np.int64)]
)
"""Payload sizes, equally likely: two fifths bare acknowledgements, two fifths full, the rest between."""
_PAYLOAD_MASK = np.uint64(len(PAYLOADS) - 1)

# Relative frequency of letters in English words.
_LETTERS = b"etaoinshrdlcumwfgypbvkjxqz"
_LETTER_WEIGHTS = (
    127,
    91,
    82,
    75,
    70,
    67,
    63,
    61,
    60,
    43,
    40,
    28,
    28,
    24,
    24,
    22,
    20,
    20,
    19,
    15,
    10,
    8,
    2,
    2,
    1,
    1,
)


@intrinsic
def store64(typing_context: Any, data: Any, position: Any, word: Any) -> Any:
    """``data[position:position + 8]`` = ``word``, little-endian. Unchecked: the caller owns the bounds."""
    signature = types.void(data, types.int64, types.uint64)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = cgutils.gep_inbounds(builder, array.data, arguments[1])
        builder.store(arguments[2], builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return signature, codegen


@njit(cache=True, nogil=True)
def mix_pair(left, right):  # type: ignore[no-untyped-def]
    """A hash of two int64 in order."""
    return mix(hash_int64(left) * GOLDEN + hash_int64(right))


def block_key(seed: int, block: int) -> np.uint64:
    """The key of one block of the stream ``seed``; different blocks draw unrelated numbers."""
    return np.uint64(mix_pair(np.int64(seed), np.int64(block)))


@njit(cache=True, nogil=True)
def fill_random(key, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` with the first random numbers of a block, 64 bits each."""
    counter = key
    for i in range(len(out)):
        counter += GOLDEN
        out[i] = mix(counter)


def random_numbers(key: np.uint64, rows: int, columns: int) -> Array:
    """A matrix of random numbers of 64 bits, the same for a key every time."""
    out = np.empty(rows * columns, np.uint64)
    fill_random(key, out)
    return out.reshape(rows, columns)


@njit(cache=True, nogil=True, inline="always")
def draw_rank(random, cells):  # type: ignore[no-untyped-def]
    """A rank from 64 random bits and an alias table."""
    column = ((random >> _S32) * np.uint64(len(cells))) >> _S32
    cell = cells[column]
    # Either way is about as likely: a select, because a branch would be mispredicted.
    own = np.uint64(0) - np.uint64((random & _LOW32) < (cell & _LOW32))
    return (column & own) | ((cell >> _S32) & ~own)


@njit(cache=True, nogil=True)
def fill_alias(weights, cells):  # type: ignore[no-untyped-def]
    """Vose's alias table: in ``cells[i]`` the alias (upper half) and 2**32 times i's own chance (lower half)."""
    n = len(weights)
    scaled = weights * (n / weights.sum())
    small = np.empty(n, np.int64)
    large = np.empty(n, np.int64)
    smalls = larges = 0
    for i in range(n):
        if scaled[i] < 1.0:
            small[smalls] = i
            smalls += 1
        else:
            large[larges] = i
            larges += 1
    while smalls > 0 and larges > 0:
        smalls -= 1
        i = small[smalls]
        j = large[larges - 1]
        cells[i] = (np.uint64(j) << _S32) | np.uint64(min(scaled[i] * 4294967296.0, 4294967295.0))
        scaled[j] -= 1.0 - scaled[i]
        if scaled[j] < 1.0:
            larges -= 1
            small[smalls] = j
            smalls += 1
    # What rounding left over keeps itself: its alias is its own number.
    for k in range(smalls):
        cells[small[k]] = (np.uint64(small[k]) << _S32) | _LOW32
    for k in range(larges):
        cells[large[k]] = (np.uint64(large[k]) << _S32) | _LOW32


@njit(cache=True, nogil=True)
def fill_words(out, key, cells, spelling):  # type: ignore[no-untyped-def]
    """Fill ``out`` with lines of 8 to 11 words; the last byte is a newline, spare bytes are spaces."""
    position = np.int64(0)
    counter = key
    left = np.int64(10)
    while position + SLOT < len(out):
        counter += GOLDEN
        random = mix(counter)
        rank = draw_rank(random, cells)
        first = spelling[2 * rank]
        second = spelling[2 * rank + np.uint64(1)]
        store64(out, position, first)
        store64(out, position + 8, second)
        position += np.int64(second >> _S56)
        left -= 1
        if left == 0:
            out[position - 1] = _NEWLINE
            left = 8 + np.int64((random >> _S8) & np.uint64(3))
    for i in range(position, len(out)):
        out[i] = _SPACE
    if len(out) > 0:
        out[len(out) - 1] = _NEWLINE


@njit(cache=True, nogil=True)
def fill_packets(key, network, cells, source, target, size):  # type: ignore[no-untyped-def]
    """Fill three int64 columns: 32-bit source and target addresses and payload bytes (40..1500).

    A drawn rank stands for a pair of addresses, which depend on ``network`` and the rank alone; four
    neighbouring ranks share a source.
    """
    counter = key
    for i in range(len(size)):
        counter += GOLDEN
        pair = draw_rank(mix(counter), cells)
        counter += GOLDEN
        random = mix(counter)
        source[i] = np.int64(mix(network + (pair >> _S2) * GOLDEN + _SOURCE_SALT) >> _S32)
        target[i] = np.int64(mix(network + pair * GOLDEN + _TARGET_SALT) >> _S32)
        size[i] = PAYLOADS[random & _PAYLOAD_MASK]


@njit(cache=True, nogil=True)
def fill_visits(  # type: ignore[no-untyped-def]
    key, network, cells, shared, stream, first, per_second, host, second, size
):
    """Fill three int64 columns: address visited, second, and bytes of payload; item ``first`` is the first.

    A drawn rank stands for a host. Its address is the same in every stream if its draw is below ``shared``, else
    it has one of its own in each ``stream``.
    """
    counter = key
    for i in range(len(size)):
        counter += GOLDEN
        rank = draw_rank(mix(counter), cells)
        counter += GOLDEN
        random = mix(counter)
        address = mix(network + rank * GOLDEN + _TARGET_SALT)
        if address >= shared:
            address = mix(address + np.uint64(stream + 1) * _SOURCE_SALT)
        host[i] = np.int64(mix(address) >> _S32)
        second[i] = (first + i) // per_second
        size[i] = PAYLOADS[random & _PAYLOAD_MASK]


@lru_cache(maxsize=8)
def zipf_cells(count: int, exponent: float) -> Array:
    """Alias table of a Zipf law: rank r (from 0) has weight (r + 1) ** -exponent."""
    cells = np.empty(count, np.uint64)
    # Rounded, because the last bit of a power may differ between processors and all workers must draw alike.
    fill_alias(np.rint(np.arange(1, count + 1, dtype=np.float64) ** -exponent * 2.0**40), cells)
    return cells


@lru_cache(maxsize=4)
def spell_words(count: int) -> Array:
    """``count`` different words as uint64 pairs (see ``SLOT``), frequent ones short, the same every time."""
    weights = np.cumsum(_LETTER_WEIGHTS)
    alphabet = np.frombuffer(_LETTERS, np.uint8)[
        np.searchsorted(weights, np.arange(4096) * weights[-1] // 4096, side="right")
    ]
    # The sum of four draws of 0..3 is near enough to a normal distribution around 6.
    noise = (_noise(0, 4 * count) & np.uint64(3)).reshape(count, 4).sum(axis=1).astype(np.float64) - 6
    lengths = np.rint(1.4 + 0.5 * np.log2(np.arange(1, count + 1)) + 0.5 * noise).astype(np.int64)
    lengths = np.clip(lengths, 1, _LONGEST)
    spelt = np.zeros((count, SLOT), np.uint8)
    todo, drawn = np.arange(count), 4 * count
    while len(todo):
        random = _noise(drawn, len(todo) * SLOT).reshape(len(todo), SLOT)
        drawn += random.size
        text = alphabet[(random & np.uint64(4095)).astype(np.int64)]
        text[np.arange(SLOT) >= lengths[todo, None]] = 0
        spelt[todo] = text
        _, firsts = np.unique(spelt.view(f"V{SLOT}").ravel(), return_index=True)
        twice = np.ones(count, bool)
        twice[firsts] = False
        todo = np.flatnonzero(twice)
        lengths[todo] = np.minimum(lengths[todo] + 1, _LONGEST)
    spelt[np.arange(count), lengths] = 32
    spelt[:, -1] = lengths + 1
    return spelt.view(np.uint64).ravel()


def _noise(start: int, count: int) -> Array:
    out = np.empty(count, np.uint64)
    hash_integers(read_only(np.arange(start, start + count)), out)
    return out
