"""Loads of plugs and houses in slices of time, and what failures leave open about them.

The load of a plug in a slice is the mean of its readings there, that of a house the sum over its plugs. After failures
sums and counts of a slice may be too low by known amounts, so that a load lies in an interval. A slice that is not
there may have been lost: then its load may be anything from 0 to the largest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import Array, as_array

PLUG_NAMES = ("house", "household", "plug")
PLUG = np.dtype([(name, "<i4") for name in PLUG_NAMES])
CELL = np.dtype([(name, "<i4") for name in ("minutes", *PLUG_NAMES, "slice")])
"""Keys of tables: a plug, and a plug in a slice of so many minutes."""

_MOST_PLUGS = 1 << 21


def packed(keys: Array) -> pa.Array:
    """Keys (of `PLUG` or `CELL`) as bytes."""
    offsets = np.arange(len(keys) + 1, dtype=np.int32) * keys.dtype.itemsize
    data = pa.py_buffer(np.ascontiguousarray(keys).view(np.uint8))
    return pa.Array.from_buffers(pa.binary(), len(keys), [None, pa.py_buffer(offsets), data])


def unpacked(keys: pa.Array | pa.ChunkedArray, kind: np.dtype[np.void]) -> Array:
    """Inverse of `packed`."""
    flat = as_array(keys).cast(pa.binary(kind.itemsize))
    data = flat.buffers()[1] or b""
    return np.frombuffer(data, kind)[flat.offset : flat.offset + len(flat)]


def keys_of(kind: np.dtype[np.void], **columns: Array | int) -> Array:
    """Keys made of their columns."""
    size = max(np.size(column) for column in columns.values())
    keys = np.empty(size, kind)
    for name, column in columns.items():
        keys[name] = column
    return keys


@dataclass(frozen=True)
class Loads:
    """Loads in watts, and the least and the most that they can be. ``sure``: there are readings; ``open``: there may
    have been.
    """

    mean: Array
    low: Array
    high: Array
    sure: Array
    open: Array

    def only(self, chosen: Array) -> Loads:
        return Loads(self.mean[chosen], self.low[chosen], self.high[chosen], self.sure[chosen], self.open[chosen])

    def added(self, groups: Array, count: int) -> Loads:
        """The sums over groups: readings of one are readings of its group."""

        def total(part: Array) -> Array:
            return np.bincount(groups, part, count)

        sure = total(self.sure) > 0
        return Loads(total(self.mean), total(self.low), total(self.high), sure, ~sure & (total(self.open) > 0))


Amounts = Callable[[Array, Array, Array], tuple[Array, Array]]
"""Sums and counts of readings of plugs, by their numbers, in slices of so many minutes; 0 where there are none."""


@dataclass(frozen=True, kw_only=True)
class LoadSlices:
    """Loads of plugs by slice. ``amounts`` looks sums up, in units of ``unit`` watts, and counts.

    ``plugs`` are all that have ever reported, in order; ``since`` has the minute of each one's first reading,
    ``lost_load`` and ``lost_readings`` the most that failures have taken from any of its slices.
    """

    amounts: Amounts
    plugs: Array
    since: Array
    lost_load: Array
    lost_readings: Array
    unit: float
    largest: float

    def plugs_of(self, houses: Array) -> tuple[Array, Array]:
        """The numbers of the houses' plugs, one house after the other, and for each the position of its house."""
        first, last = (np.searchsorted(self.plugs["house"], houses, side) for side in ("left", "right"))
        counts = last - first
        house = np.repeat(np.arange(len(houses)), counts)
        starts = np.cumsum(counts) - counts
        return np.arange(len(house)) + np.repeat(first - starts, counts), house

    def loads(self, plugs: Array, minutes: Array, slices: Array) -> Loads:
        """The loads of plugs, by their numbers, in slices of so many minutes."""
        load, readings = self.amounts(plugs, minutes, slices)
        sure, count = readings > 0, np.maximum(readings, 1)
        load, lost_load, lost = np.where(sure, load, 0.0), self.lost_load[plugs], self.lost_readings[plugs]
        # A plug has no readings before its first one, and without losses what is not there never was.
        open_ = ~sure & ((lost_load > 0) | (lost > 0)) & ((slices + 1) * minutes > self.since[plugs])
        most = np.where(sure, np.minimum((load + lost_load) * self.unit / count, self.largest), 0.0)
        return Loads(
            mean=load * self.unit / count,
            low=load * self.unit / (count + lost),
            high=np.where(open_, self.largest, most),
            sure=sure,
            open=open_,
        )


def indexed(cells: Array, load: Array, readings: Array, plugs: Array) -> Amounts:
    """Amounts of cells that are at hand; ``plugs``: all that they are of, in order."""
    if len(plugs) >= _MOST_PLUGS:
        raise UsageError(f"{len(plugs)} plugs are too many for one prediction.", remedy="Divide the houses.")
    homes = np.unique(_pair(plugs["house"], plugs["household"]))

    def numbers(keys: Array) -> Array:
        return _pair(np.searchsorted(homes, _pair(keys["house"], keys["household"])), keys["plug"])

    ranks = _rank(np.searchsorted(numbers(plugs), numbers(cells)), cells["minutes"], cells["slice"])
    order = np.argsort(ranks, kind="stable")
    ranks = ranks[order]

    def amounts(plugs: Array, minutes: Array, slices: Array) -> tuple[Array, Array]:
        if not len(ranks):
            return np.zeros(len(plugs)), np.zeros(len(plugs), np.int64)
        wanted = _rank(plugs, minutes, slices)
        at = np.minimum(np.searchsorted(ranks, wanted), len(ranks) - 1)
        there = (ranks[at] == wanted) & (slices >= 0)
        return np.where(there, load[order[at]], 0.0), np.where(there, readings[order[at]], 0)

    return amounts


def in_order(plugs: Array) -> Array:
    """The positions of plugs in their order: by house, household and number."""
    return np.lexsort((plugs["plug"], plugs["household"], plugs["house"]))


def _pair(left: Array, right: Array) -> Array:
    return (left.astype(np.int64) << 31) | right.astype(np.int64)


def _rank(plugs: Array, minutes: Array, slices: Array) -> Array:
    """One number for a plug's number (21 bits), a length (11) and a slice (31)."""
    return (plugs.astype(np.int64) << 42) | (minutes.astype(np.int64) << 31) | np.maximum(slices.astype(np.int64), 0)
