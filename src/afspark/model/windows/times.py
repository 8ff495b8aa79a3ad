"""Event times: from an Arrow column to whole numbers or floats, and from those to panes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import Array
from afspark.model.windows.amounts import exact
from afspark.numbers import PaneNumber

FARTHEST = 2.0**51
"""Pane numbers of real times stay below this: beyond, floats cannot tell neighbouring panes apart."""

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400


@dataclass(frozen=True)
class Times:
    """Times of a column without nulls: ``values`` (int64 or float64) in units of 1/``ticks``, and the size of
    a pane in the same units, a whole number wherever the values are.
    """

    values: Array
    size: float
    ticks: int

    def in_units(self, value: float) -> float:
        """One of the values in units of the window's length."""
        return value if self.ticks == 1 else value / self.ticks


def check_type(column: str, kind: pa.DataType) -> None:
    """``UsageError`` unless times can be read from a column of this type."""
    whole = pat.is_integer(kind) and kind != pa.uint64()
    if not (whole or pat.is_floating(kind) or pat.is_timestamp(kind) or pat.is_date(kind)):
        raise UsageError(
            f"Column {column!r} is {kind}, which is no time.",
            remedy="Use numbers in the unit of the window's length, a timestamp or a date.",
            column=column,
            got=str(kind),
        )


def read_times(column: pa.Array, size: float) -> Times:
    """The times of a column (checked, no nulls) for panes of ``size`` (seconds if the column is temporal)."""
    kind = column.type
    if pat.is_timestamp(kind) or pat.is_date(kind):
        values, ticks = _ticks(column)
        pane = exact(size) * ticks
        if pane.denominator == 1 and pane < 2**63:
            return Times(values, int(pane), ticks)
        return Times(values / ticks, size, 1)
    numbers = column.to_numpy(zero_copy_only=False)
    whole = pat.is_integer(kind) and isinstance(size, int)
    return Times(numbers.astype(np.int64 if whole else np.float64, copy=False), size, 1)


def _ticks(column: pa.Array) -> tuple[Array, int]:
    kind = column.type
    if pat.is_date32(kind):
        return column.view(pa.int32()).to_numpy(zero_copy_only=False).astype(np.int64) * _DAY, 1
    unit = _TICKS["ms"] if pat.is_date64(kind) else _TICKS[kind.unit]
    return column.view(pa.int64()).to_numpy(zero_copy_only=False), unit


def panes_of(values: Array, size: float) -> Array:
    """Pane numbers p with p * size <= value < (p + 1) * size, the products rounded as floats are.

    Real values must be finite and in reach (see :func:`in_reach`).

    >>> panes_of(np.array([-1, 0, 9, 10]), 10).tolist()
    [-1, 0, 0, 1]
    >>> panes_of(np.array([0.3, 0.7]), 0.1).tolist()
    [2, 6]
    """
    if values.dtype.kind == "i":
        return values // size
    panes = np.floor(values / size)
    panes -= panes * size > values
    panes += (panes + 1) * size <= values
    return panes.astype(np.int64)


def in_reach(values: Array, size: float) -> Array:
    """Which real values have a pane: not NaN, not infinite, less than :data:`FARTHEST` panes from 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        reach: Array = np.abs(values / size) < FARTHEST
    return reach


def pane_of(time: float, size: float) -> PaneNumber:
    """The pane of one time; times out of reach count as the farthest pane that is not."""
    if isinstance(time, int) and isinstance(size, int):
        return PaneNumber(time // size)
    limit = (FARTHEST - 1) * size
    if not math.isfinite(limit):
        limit = math.inf
    return PaneNumber(int(panes_of(np.array([min(max(float(time), -limit), limit)]), size)[0]))
