"""Bargains by a second way: sorted arrays of the whole stream and a search in them, none of the engine's kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.algorithms.event_times import seconds_of
from afspark.model.kernels.plain_arrays import Array

_RECENT = 5


@dataclass(frozen=True)
class ExactBargains:
    """The quotes with a gain (``key``, ``ask_size``, ``gain``), and the averages after the last event (``ticker``,
    ``average``).
    """

    bargains: pa.Table
    averages: pa.Table


def exact_bargains(events: Iterable[pa.RecordBatch]) -> ExactBargains:
    """What Bargain Discovery makes of a whole stream without failures; needs memory for all usable events."""
    parts = [_usable(pa.table(batch)) for batch in events]
    rows = pa.concat_tables(parts) if parts else _usable(_NOTHING)
    encoded = rows.column("ticker").combine_chunks().dictionary_encode()
    names, symbol = encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)
    key, price, size = (rows.column(name).to_numpy() for name in ("key", "price", "size"))
    trade = rows.column("trade").to_numpy()
    # A quote comes before a trade of the same key.
    place = np.empty(len(key), np.int64)
    place[np.lexsort((trade, key))] = np.arange(len(key))
    where = symbol * len(key) + place
    trades = np.flatnonzero(trade)[np.argsort(where[trade])]
    average = _averages(symbol[trades], price[trades], size[trades])
    quotes = np.flatnonzero(~trade)
    before = np.searchsorted(where[trades], where[quotes]) - 1
    known = (before >= 0) & (symbol[trades][before] == symbol[quotes]) if len(trades) else np.zeros(len(quotes), bool)
    met = average[before[known]]
    quotes = quotes[known]
    gain = size[quotes] * (met - price[quotes])
    found = gain > 0
    bargains = pa.table({"key": key[quotes][found], "ask_size": size[quotes][found], "gain": gain[found]})
    last = np.flatnonzero(np.diff(symbol[trades], append=-1))
    averages = pa.table({"ticker": names.take(pa.array(symbol[trades][last])), "average": average[last]})
    return ExactBargains(bargains, averages)


def _averages(symbol: Array, price: Array, size: Array) -> Array:
    """The average price by volume of each trade and the four before it; trades of a symbol stand together."""
    total, volume = np.zeros(len(symbol)), np.zeros(len(symbol), np.int64)
    for back in range(_RECENT):
        same = symbol[back:] == symbol[: len(symbol) - back]
        total[back:] += np.where(same, (price * size)[: len(symbol) - back], 0.0)
        volume[back:] += np.where(same, size[: len(symbol) - back], 0)
    return total / volume


def _usable(rows: pa.Table) -> pa.Table:
    """``key``, ``ticker``, ``trade``, ``price`` and ``size`` of the events that count."""
    trade = pc.equal(rows.column("type").cast(pa.string()), "trade")
    numbers = {
        name: rows.column(name).cast(pa.float64()) for name in ("key", "price", "volume", "ask_price", "ask_size")
    }
    price = pc.if_else(trade, numbers["price"], numbers["ask_price"])
    size = pc.if_else(trade, numbers["volume"], numbers["ask_size"])
    sound = pc.and_(pc.or_(trade, pc.equal(rows.column("type").cast(pa.string()), "quote")), pc.greater(price, 0.0))
    for one in (
        pc.is_finite(price),
        pc.greater_equal(size, 1.0),
        pc.equal(pc.floor(size), size),
        pc.equal(pc.floor(numbers["key"]), numbers["key"]),
        pc.is_valid(rows.column("ticker")),
        pa.chunked_array([seconds_of(rows.column("time")).is_valid()]),
    ):
        sound = pc.and_(sound, one)
    made = {"key": numbers["key"], "ticker": rows.column("ticker").cast(pa.string()), "trade": trade}
    kept = pa.table({**made, "price": price, "size": size}).filter(pc.fill_null(sound, False))
    whole = {name: kept.column(name).cast(pa.int64()) for name in ("key", "size")}
    return pa.table({name: whole.get(name, kept.column(name)) for name in kept.column_names})


_NOTHING = pa.table(
    {
        **{name: pa.array([], pa.float64()) for name in ("key", "time", "price", "volume", "ask_price", "ask_size")},
        **{name: pa.array([], pa.string()) for name in ("ticker", "type")},
    }
)
