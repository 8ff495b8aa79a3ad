"""How far loads and predictions are from exact ones, and predictions from what came."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.algorithms import LoadPrediction
from afspark.algorithms.load_forecasts import AHEAD, forecasts
from afspark.algorithms.load_slices import CELL, PLUG, PLUG_NAMES, LoadSlices, in_order, indexed, keys_of, unpacked
from afspark.model.kernels.plain_arrays import Array
from afspark.report.recount import merge
from afspark.report.recount_loads import CELL_NAMES, LOAD, READINGS

_ROUNDING = 1e-9
_PREDICTED = ("minutes", *PLUG_NAMES, "start")


@dataclass(frozen=True)
class LoadErrors:
    """The largest difference of a count of readings and of a sum of loads, in their units; how many ``predictions``
    were compared and how many lie ``outside`` what was told about them; and the mean error of exact predictions of
    houses, in watts, beside the mean load.
    """

    readings: float
    load: float
    predictions: int
    outside: int
    mean_error: float
    mean_load: float


def load_errors(sums: pa.Table, predictions: pa.Table, exact: pa.Table, operator: LoadPrediction) -> LoadErrors:
    """Compares the state's ``sums`` by key and all predictions with exact sums (`sum_loads`)."""
    largest = _cell_errors(sums, exact, operator)
    truth = _exact_predictions(exact, operator)
    both = _keyed(predictions).join(
        _keyed(truth).select([*_PREDICTED, "prediction"]), list(_PREDICTED), right_suffix="_x"
    )
    told = [both.column(name).to_numpy() for name in ("low", "high")]
    right = pc.fill_null(both.column("prediction_x"), math.nan).to_numpy()
    slack = _ROUNDING * (1.0 + np.abs(right))
    outside = ~((told[0] <= right + slack) & (right <= told[1] + slack))
    return LoadErrors(largest[READINGS], largest[LOAD], len(both), int(outside.sum()), *_quality(truth))


def _cell_errors(sums: pa.Table, exact: pa.Table, operator: LoadPrediction) -> dict[str, float]:
    cells = unpacked(sums.column("key"), CELL)
    columns = {name: pa.array(cells[name].astype(np.int64)) for name in CELL_NAMES}
    found = {}
    for what in (LOAD, READINGS):
        ours = pa.table({**columns, "total": pc.negate(sums.column(what).cast(pa.float64()))})
        kept = _kept(exact.filter(pc.equal(exact.column("what"), what)), operator)
        # What is older is removed, and a failure may bring it back: nobody looks at it.
        errors = merge([kept, _kept(ours, operator, exact)], CELL_NAMES).column("total").to_numpy()
        found[what] = float(np.abs(errors).max(initial=0.0))
    return found


def _kept(cells: pa.Table, operator: LoadPrediction, stream: pa.Table | None = None) -> pa.Table:
    """The cells that the operator keeps, if those of the ``stream`` (default: these) are all that there was."""
    whole = _cells(cells if stream is None else stream)
    minute = whole["slice"].astype(np.int64) * whole["minutes"]
    houses, place = np.unique(whole["house"], return_inverse=True)
    newest = np.zeros(len(houses), np.int64)
    np.maximum.at(newest, place, minute)
    own = _cells(cells)
    at = np.searchsorted(houses, own["house"])
    return cells.select([*CELL_NAMES, "total"]).filter(pa.array(operator.is_kept(own, newest[at])))


def _cells(table: pa.Table) -> Array:
    return keys_of(CELL, **{name: table.column(name).to_numpy() for name in CELL_NAMES})


def _exact_predictions(exact: pa.Table, operator: LoadPrediction) -> pa.Table:
    """The predictions from every slice of every house, as they would be without failures."""
    parts = {what: exact.filter(pc.equal(exact.column("what"), what)) for what in (READINGS, LOAD)}
    both = parts[READINGS].join(parts[LOAD], list(CELL_NAMES), right_suffix="_load")
    cells = _cells(both)
    known = both.group_by(list(PLUG_NAMES)).aggregate([])
    plugs = keys_of(PLUG, **{name: known.column(name).to_numpy() for name in PLUG_NAMES})
    plugs = plugs[in_order(plugs)]
    load, readings = both.column("total_load").to_numpy(), both.column("total").to_numpy()
    nothing = np.zeros(len(plugs))
    slices = LoadSlices(
        amounts=indexed(cells, load, readings, plugs),
        plugs=plugs,
        since=nothing,
        lost_load=nothing,
        lost_readings=nothing,
        unit=operator.unit,
        largest=operator.largest,
    )
    asked = both.group_by(["minutes", "house", "slice"]).aggregate([])
    columns = (asked.column(name).to_numpy() for name in ("minutes", "house", "slice"))
    return forecasts(slices, *columns, days=operator.days)


def _keyed(predictions: pa.Table) -> pa.Table:
    """Predictions with -1 for the household and plug of a house, because nulls are never equal."""
    columns = {name: pc.fill_null(predictions.column(name), -1).cast(pa.int64()) for name in _PREDICTED}
    others = [name for name in predictions.column_names if name not in columns]
    return pa.table(columns | {name: predictions.column(name) for name in others})


def _quality(truth: pa.Table) -> tuple[float, float]:
    """Mean error of predictions of houses, and the mean of what came; not a number where nothing was predicted."""
    houses = truth.filter(truth.column("plug").is_null())
    length = pc.multiply(houses.column("minutes").cast(pa.int64()), 60 * AHEAD)
    came = pa.table(
        {
            "minutes": houses.column("minutes"),
            "house": houses.column("house"),
            "start": pc.subtract(houses.column("start"), length),
            "came": houses.column("load"),
        }
    )
    both = houses.join(came, ["minutes", "house", "start"], join_type="inner")
    if not len(both):
        return math.nan, math.nan
    loads = both.column("came").to_numpy()
    return float(np.abs(both.column("prediction").to_numpy() - loads).mean()), float(loads.mean())
