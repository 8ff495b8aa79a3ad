"""Plain twin of the digest kernels: the definition, one cell or row after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.twins.hashing_twin import hash_int64, mix

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_SCALE = 2.0**-64


def weight(h: int) -> float:
    return 1.0 + (h >> 11) * 2.0**-53


def digest_integers(cells: Sequence[int], olds: Any, values: Any, places: Sequence[int]) -> tuple[int, int]:
    count, total = 0, 0
    for at, (cell, old) in enumerate(zip(cells, olds, strict=True)):
        new = int(values[cell])
        if old != new:
            place = places[at] if len(places) else hash_int64(int(cell))
            total += mix(((place ^ hash_int64(int(old))) * _GOLDEN + hash_int64(new)) & _MASK)
            count += 1
    return count, total & _MASK


def digest_floats(cells: Sequence[int], olds: Any, values: Any, places: Sequence[int]) -> tuple[float, float, float]:
    new_sum = change = size = 0.0
    for at, (cell, old) in enumerate(zip(cells, olds, strict=True)):
        new = float(values[cell])
        if old != new and math.isfinite(old) and math.isfinite(new):
            factor = _SCALE * weight(places[at] if len(places) else hash_int64(int(cell)))
            new_sum += factor * new
            change += factor * abs(new - old)
            size += _SCALE * (abs(new) + abs(old))
    return new_sum, change, size


def fold_words(words: Sequence[int]) -> int:
    h = _GOLDEN
    for word in words:
        h = (h ^ word) * _GOLDEN & _MASK
        h ^= h >> 32
    return h


def digest_rows(hashes: Sequence[int], label: int) -> int:
    return sum(mix((h * _GOLDEN + label) & _MASK) for h in hashes) & _MASK


def weighted_sum(hashes: Sequence[int], values: Sequence[float]) -> tuple[float, float, int]:
    finite = [(h, value) for h, value in zip(hashes, values, strict=True) if math.isfinite(value)]
    total = sum(_SCALE * weight(h) * value for h, value in finite)
    return total, sum(_SCALE * abs(value) for _, value in finite), len(values) - len(finite)


def digest_bytes(data: bytes) -> tuple[int, int]:
    first, second = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
    lanes = [len(data), first, second, _GOLDEN]
    whole = len(data) // 32 * 32
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, whole, 8)]
    for place, word in [*((at % 4, word) for at, word in enumerate(words)), *((0, byte) for byte in data[whole:])]:
        lane = (lanes[place] + word * first) & _MASK
        lanes[place] = ((lane << 29 | lane >> 35) & _MASK) * _GOLDEN & _MASK
    a, b, c, d = lanes
    return mix(mix(mix(mix(a) ^ b) ^ c) ^ d), mix(mix(mix(mix((d + first) & _MASK) ^ c) ^ b) ^ a)
