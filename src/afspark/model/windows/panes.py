"""Dividing the items of a batch among panes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import Array
from afspark.model.windows.specs import Window
from afspark.model.windows.times import Times, in_reach, panes_of, read_times
from afspark.numbers import PaneNumber


@dataclass(frozen=True)
class Part:
    """Items of one pane, in the order they came."""

    pane: PaneNumber
    items: pa.RecordBatch


@dataclass(frozen=True, kw_only=True)
class Split:
    """A batch divided among panes, in ascending order of panes.

    ``unplaced`` items have no usable time (null, NaN, infinite or absurdly far away) and are in no part.
    ``latest`` is the greatest time among the others, in the unit of the window's length; None without any, and
    for windows by count.
    """

    parts: list[Part]
    items: int
    unplaced: int = 0
    latest: float | None = None


def split(window: Window, items: pa.RecordBatch, *, now: float, seen: int, workers: int) -> Split:
    """Divides ``items`` among panes.

    ``now``: the batch's time as the driver fixed it, in seconds. ``seen``: items that this worker took before,
    over all batches. Rows are copied only if panes are interleaved or items are left out.

    >>> batch = pa.record_batch({"at": [3, 12, 4]})
    >>> from afspark.model.windows import Hopping
    >>> divided = split(Hopping(10, column="at"), batch, now=0, seen=0, workers=1)
    >>> [(part.pane, part.items["at"].to_pylist()) for part in divided.parts], divided.latest
    ([(0, [3, 4]), (1, [12])], 12)
    """
    rows = items.num_rows
    if rows == 0:
        return Split(parts=[], items=0)
    if window.by == "count":
        return Split(parts=_by_count(items, window.quota(workers), seen), items=rows)
    if window.by == "processing":
        return Split(parts=[Part(window.pane(now), items)], items=rows, latest=now)
    return _by_event(window, items)


def _by_count(items: pa.RecordBatch, quota: int, seen: int) -> list[Part]:
    first, last = seen // quota, (seen + items.num_rows - 1) // quota
    if first == last:
        return [Part(PaneNumber(first), items)]
    cuts = np.arange(first, last + 2) * quota - seen
    return _slices(items, np.arange(first, last + 1), np.clip(cuts, 0, items.num_rows))


def _by_event(window: Window, items: pa.RecordBatch) -> Split:
    window.check(items.schema)
    rows = items.num_rows
    column = items.column(_column(window))
    if column.null_count:
        items = items.filter(column.is_valid())
        column = items.column(_column(window))
    times = read_times(column, window.size)
    if times.values.dtype.kind == "f":
        items, times = _placeable(items, times)
    placed = items.num_rows
    if placed == 0:
        return Split(parts=[], items=rows, unplaced=rows)
    extremes = np.array([times.values.min(), times.values.max()])
    first, last = (PaneNumber(int(pane)) for pane in panes_of(extremes, times.size))
    if first == last:
        parts = [Part(first, items)]
    else:
        parts = _grouped(items, panes_of(times.values, times.size))
    latest = _latest(window, times, extremes[1].item(), last)
    return Split(parts=parts, items=rows, unplaced=rows - placed, latest=latest)


def _column(window: Window) -> str:
    if window.column is None:
        raise UsageError("A window by event needs a column.", by=window.by)
    return window.column


def _placeable(items: pa.RecordBatch, times: Times) -> tuple[pa.RecordBatch, Times]:
    """The rows without those whose time has no pane; the extremes tell in most cases that there are none."""
    if len(times.values) == 0:
        return items, times
    extremes = np.array([times.values.min(), times.values.max()])
    if in_reach(extremes, times.size).all():
        return items, times
    mask = in_reach(times.values, times.size)
    return items.filter(pa.array(mask)), Times(times.values[mask], times.size, times.ticks)


def _grouped(items: pa.RecordBatch, panes: Array) -> list[Part]:
    if (panes[1:] < panes[:-1]).any():
        first, last = int(panes.min()), int(panes.max())
        # numpy sorts 16-bit integers by radix, several times faster than wider ones.
        ranks = (panes - first).astype(np.uint16) if last - first < 2**16 else panes
        order = np.argsort(ranks, kind="stable")
        items, panes = items.take(pa.array(order)), panes[order]
    starts = np.flatnonzero(np.concatenate(([True], panes[1:] != panes[:-1])))
    return _slices(items, panes[starts], np.append(starts, len(panes)))


def _slices(items: pa.RecordBatch, panes: Array, cuts: Array) -> list[Part]:
    lengths = np.diff(cuts)
    return [
        Part(pane, items.slice(start, length))
        for pane, start, length in zip(panes.tolist(), cuts.tolist(), lengths.tolist(), strict=False)
    ]


def _latest(window: Window, times: Times, value: float, pane: PaneNumber) -> float:
    """The time in the window's units, kept below the end of its pane whatever was rounded: a time must not
    close the pane it lies in.
    """
    latest = times.in_units(value)
    end = window.edge(pane + 1)
    return latest if latest < end else math.nextafter(end, -math.inf)
