"""Plain twin of the sampling kernels."""

from __future__ import annotations

from collections.abc import Sequence

_MASK, _GOLDEN = 2**64 - 1, 0x9E3779B97F4A7C15


def mix(h: int) -> int:
    h ^= h >> 30
    h = h * 0xBF58476D1CE4E5B9 & _MASK
    h ^= h >> 27
    h = h * 0x94D049BB133111EB & _MASK
    return h ^ (h >> 31)


def draw_in_order(key: int, rate: float, count: int) -> list[bool]:
    return [mix(key + (i + 1) * _GOLDEN & _MASK) < int(rate * 2**64) for i in range(count)]


def draw_by_hash(key: int, rate: float, hashes: Sequence[int]) -> list[bool]:
    return [mix(h ^ key) < int(rate * 2**64) for h in hashes]
