"""Which slices of houses are over, and for which houses another day has begun.

A table keeps the newest slice of each house for each length of slices, as one more than its number, because 0 is
absence. Its key is the length, in the upper half, and the house.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from afspark.model.kernels.plain_arrays import Array

DAY_MINUTES = 1440

_LOW31 = 2**31 - 1
_LOW32 = 2**32 - 1


class SlicesOver(NamedTuple):
    """Slices as lengths in minutes, houses and numbers; and the ``turned`` houses, for which another day has begun."""

    minutes: Array
    houses: Array
    slices: Array
    turned: Array


def newest_key(minutes: int, houses: Array) -> Array:
    """Keys of the table."""
    return (np.int64(minutes) << 32) | houses.astype(np.int64)


def opened(keys: Array, values: Array) -> tuple[Array, Array, Array]:
    """Lengths, houses and newest slices from keys and values of the table."""
    return keys >> 32, keys & _LOW32, values - 1


def move_on(newest: Any, lengths: Sequence[int], houses: Array, minutes: Array) -> SlicesOver:
    """Readings of houses have come, of these minutes: moves the table on, and gives the slices that are over now."""
    parts, turned = [], np.zeros(0, np.int64)
    for length in lengths:
        pairs = np.unique(_pair(houses, minutes // length))
        house, slices = pairs >> 31, pairs & _LOW31
        ends = np.flatnonzero(np.append(house[1:] != house[:-1], True))
        present, keys = house[ends], newest_key(length, house[ends])
        known = newest.get(keys) - 1
        latest = np.maximum(slices[ends], known)
        newest.put(keys, latest + 1)
        at = np.searchsorted(present, house)
        over = (slices >= known[at]) & (slices < latest[at])
        # The slice that was the newest is over too, whether or not more readings of it have come.
        left = (known >= 0) & (known < latest) & ~np.isin(_pair(present, known), pairs)
        named = np.append(house[over], present[left])
        parts.append((np.full(len(named), length), named, np.append(slices[over], known[left])))
        new_day = (known >= 0) & (latest * length // DAY_MINUTES > known * length // DAY_MINUTES)
        turned = np.union1d(turned, present[new_day])
    over = [np.concatenate(one) for one in zip(*parts, strict=True)]
    return SlicesOver(over[0], over[1], over[2], turned)


def _pair(houses: Array, slices: Array) -> Array:
    return (houses.astype(np.int64) << 31) | slices.astype(np.int64)
