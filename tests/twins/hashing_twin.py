"""Plain Python twin of the hash kernels: the definition, word by word."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(h: int) -> int:
    h ^= h >> 30
    h = h * _FIRST & _MASK
    h ^= h >> 27
    h = h * _SECOND & _MASK
    return h ^ (h >> 31)


def hash_bytes(data: bytes) -> int:
    h = _GOLDEN ^ (len(data) * _FIRST & _MASK)
    for start in range(0, len(data), 8):
        h = (h ^ int.from_bytes(data[start : start + 8], "little")) * _GOLDEN & _MASK
        h ^= h >> 32
    return mix(h)


def hash_int64(x: int) -> int:
    return mix(((x & _MASK) + _GOLDEN) & _MASK)


def secret_factor(seed: int) -> int:
    return mix((seed + _GOLDEN) & _MASK) | 1


def secret_bytes(data: bytes, seed: int) -> int:
    h = seed ^ (len(data) * secret_factor(seed) & _MASK)
    for start in range(0, len(data), 8):
        h = mix(h ^ int.from_bytes(data[start : start + 8], "little"))
    return h


def secret_int64(x: int, seed: int) -> int:
    return mix((x & _MASK) ^ seed)


def combine(left: int, right: int) -> int:
    return mix((left * _GOLDEN + right) & _MASK)
