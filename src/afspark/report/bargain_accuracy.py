"""How far bargains and averages are from exact ones, by the measure that the thresholds are given in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from afspark.model.kernels.plain_arrays import Array
from afspark.report.recount_bargains import ExactBargains

_ROUNDING = 1e-9


@dataclass(frozen=True)
class BargainErrors:
    """The largest difference of an ``average`` in the end; how many ``rows`` (quotes with a gain here or there) were
    compared, and how many of them are farther ``outside`` than the bound says; the sum of all gains, and what it is
    exactly.
    """

    average: float
    rows: int
    outside: int
    gain: float
    exact_gain: float


def bargain_errors(rows: pa.Table, averages: pa.Table, exact: ExactBargains, *, bound: float) -> BargainErrors:
    """Compares all bargains, and the ``averages`` that are left, with exact ones. ``bound``: how far an average can
    have been off at most, so that a gain is off by that much for each share.
    """
    keys = np.union1d(_keys(rows), _keys(exact.bargains))
    gains = [_spread(table, "gain", keys) for table in (rows, exact.bargains)]
    shares = np.maximum(*(_spread(table, "ask_size", keys) for table in (rows, exact.bargains)))
    errors = np.abs(gains[0] - gains[1])
    outside = errors > shares * bound + _ROUNDING * (1.0 + np.abs(gains[1]))
    return BargainErrors(
        average=_largest(averages, exact.averages),
        rows=len(keys),
        outside=int(outside.sum()),
        gain=float(gains[0].sum()),
        exact_gain=float(gains[1].sum()),
    )


def _largest(found: pa.Table, exact: pa.Table) -> float:
    """The largest difference of an average; one that is not there is 0."""
    both = [
        dict(zip(*(one.column(name).to_pylist() for name in ("ticker", "average")), strict=True))
        for one in (found, exact)
    ]
    names = both[0].keys() | both[1].keys()
    return max((abs(both[0].get(name, 0.0) - both[1].get(name, 0.0)) for name in names), default=0.0)


def _keys(rows: pa.Table) -> Array:
    return rows.column("key").to_numpy()


def _spread(rows: pa.Table, column: str, keys: Array) -> Array:
    """The values by key; 0 where there is none."""
    values = np.zeros(len(keys))
    values[np.searchsorted(keys, _keys(rows))] = rows.column(column).to_numpy()
    return values
