"""Short-term predictions of loads, of plugs and of houses (DEBS 2014 Grand Challenge, query 1).

With k slices a day, and i the present one, the load in slice i + 2 is predicted as the mean of that in i and the median
of those in i + 2 - k, i + 2 - 2k, …: the same time on the days before. Without any of those it is that in i.

A sum and a median grow with each of their numbers, and a number below all others never raises a median. So the least
and the most that failures leave open about each slice (`Loads`) give the least and the most that a prediction can be.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from afspark.algorithms.load_slices import Loads, LoadSlices
from afspark.algorithms.newest_slices import DAY_MINUTES
from afspark.model.kernels.plain_arrays import Array

AHEAD = 2
FORECASTS = pa.schema(
    [
        ("minutes", pa.int32()),
        ("house", pa.int32()),
        ("household", pa.int32()),
        ("plug", pa.int32()),
        ("start", pa.int64()),
        ("load", pa.float64()),
        ("past", pa.float64()),
        ("days", pa.int32()),
        ("prediction", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)


def forecasts(found: LoadSlices, minutes: Array, houses: Array, slices: Array, *, days: int) -> pa.Table:
    """Predictions from these slices of these houses, and up to ``days`` days before: a row for each house (without
    household and plug), and one for each of its plugs, as far as they have readings in the slice.

    ``start`` is the second at which the predicted slice begins; ``load`` the one of the present slice, ``past`` the
    median of ``days`` past ones (null if there are none). ``low`` and ``high``: what failures leave open.
    """
    plugs, place = found.plugs_of(houses)
    length, present = minutes[place], slices[place]
    now = found.loads(plugs, length, present)
    daily = DAY_MINUTES // length
    past = [found.loads(plugs, length, present + AHEAD - day * daily) for day in range(1, days + 1)]
    of_house, past_of_house = now.added(place, len(houses)), [one.added(place, len(houses)) for one in past]
    known, reporting = np.flatnonzero(of_house.sure), np.flatnonzero(now.sure)
    nobody = pa.nulls(len(known), pa.int32())
    names = found.plugs[plugs[reporting]]
    parts = (
        (known, nobody, nobody, _predicted(of_house.only(known), [one.only(known) for one in past_of_house])),
        (
            place[reporting],
            pa.array(names["household"].copy()),
            pa.array(names["plug"].copy()),
            _predicted(now.only(reporting), [one.only(reporting) for one in past]),
        ),
    )
    tables = []
    for rows, household, plug, numbers in parts:
        start = (slices[rows].astype(np.int64) + AHEAD) * minutes[rows] * 60
        columns = [pa.array(minutes[rows]), pa.array(houses[rows]), household, plug, pa.array(start), *numbers]
        typed = [column.cast(field.type) for column, field in zip(columns, FORECASTS, strict=True)]
        tables.append(pa.table(typed, schema=FORECASTS))
    return pa.concat_tables(tables)


def _predicted(now: Loads, past: list[Loads]) -> list[pa.Array]:
    """``load``, ``past``, ``days``, ``prediction``, ``low`` and ``high``."""
    sure = np.array([one.sure for one in past])
    known = sure | np.array([one.open for one in past])
    found, middles = [], []
    for name, counted in (("mean", sure), ("low", known), ("high", known)):
        present, middle = getattr(now, name), medians(np.array([getattr(one, name) for one in past]), counted)
        middles.append(middle)
        found.append(pa.array(np.where(counted.any(axis=0), (present + middle) / 2, present)))
    days = sure.sum(axis=0)
    return [pa.array(now.mean), pa.array(middles[0], mask=days == 0), pa.array(days), *found]


def medians(values: Array, counted: Array) -> Array:
    """The median of each column over the values that count; 0 where none does."""
    counts, columns = counted.sum(axis=0), np.arange(values.shape[1])
    ordered = np.sort(np.where(counted, values, np.inf), axis=0)
    lower, upper = np.maximum(counts - 1, 0) // 2, np.minimum(counts // 2, len(values) - 1)
    middle = (ordered[lower, columns] + ordered[upper, columns]) / 2
    return np.where(counts > 0, middle, 0.0)
