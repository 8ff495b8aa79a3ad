"""Sums over the most recent trades of each symbol, and the average price that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.algorithms.sums import sums_by_key
from afspark.errors import UsageError
from afspark.model.kernels.market_kernels import RECENT, sum_recent
from afspark.model.kernels.plain_arrays import Array, as_array
from afspark.model.operator import Operator, Share, WorkerContext
from afspark.model.states import HashTable, StateSpec

_PLACES = pa.array([str(place) for place in range(RECENT)])


class Aggregator(Operator):
    """Sends, for every trade, the sums over the five most recent trades of its symbol: ``total`` (price times volume)
    and ``volume``, with the ``key``, ``time`` and ``ticker`` of the trade.

    The trades of a batch count in the order of their keys, however they have come. The state is the trades themselves,
    by place (0: the newest) and symbol, so that it is the same again five trades after a gap. Volumes are exact;
    divergence: the largest difference of a price. As volumes agree, no average is off by more than that.
    """

    key: ClassVar[tuple[str, ...]] = ("ticker",)

    def states(self) -> Mapping[str, StateSpec]:
        return {
            "price": HashTable(key="string", value="float64", divergence="max"),
            "volume": HashTable(key="string", value="int64", divergence="max", exact=True),
        }

    def begin(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        self._taken: list[pa.RecordBatch] = []

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        self._taken.append(items)

    def finish(self, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        trades = by_key(self._taken)
        if not trades.num_rows:
            return None
        symbols, tickers = numbered_symbols(trades.column("ticker"))
        cells = _cells(tickers)
        prices = states["price"].get(cells).reshape(len(tickers), RECENT)
        volumes = states["volume"].get(cells).reshape(len(tickers), RECENT)
        total, volume = np.empty(len(symbols)), np.empty(len(symbols), np.int64)
        given = (trades.column(name).to_numpy() for name in ("price", "size"))
        sum_recent(symbols, *given, prices, volumes, total, volume)
        there = volumes.reshape(-1) != 0
        held = cells.filter(pa.array(there))
        states["price"].put(held, prices.reshape(-1)[there])
        states["volume"].put(held, volumes.reshape(-1)[there])
        sent = {name: trades.column(name) for name in ("key", "time", "ticker")}
        return pa.record_batch({**sent, "total": pa.array(total), "volume": pa.array(volume)})

    def keys_of(self, state: str, cells: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"ticker": pc.utf8_slice_codeunits(cells.column("key").cast(pa.string()), 1)})

    def results(self, shares: Sequence[Share]) -> pa.Table:
        """The recent trades: ``ticker``, ``place`` (0: the newest), ``price``, ``volume``."""
        cells = sums_by_key(shares, "price", "volume")
        texts = cells.column("key").cast(pa.string())
        places = pc.utf8_slice_codeunits(texts, 0, 1).cast(pa.int64())
        tickers = pc.utf8_slice_codeunits(texts, 1)
        columns = {"ticker": tickers, "place": places, "price": cells.column("price"), "volume": cells.column("volume")}
        return pa.table(columns).sort_by([("ticker", "ascending"), ("place", "ascending")])


class VWAP(Operator):
    """Sends the ``average`` price by volume that follows from sums: ``key``, ``time``, ``ticker``, ``average``."""

    sends_by_state = False

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        average = items.column("total").to_numpy() / items.column("volume").to_numpy()
        sent = {name: items.column(name) for name in ("key", "time", "ticker")}
        return pa.record_batch({**sent, "average": pa.array(average)})

    def results(self, shares: Sequence[Share]) -> pa.Table:
        raise UsageError("VWAP sends averages and keeps nothing.", remedy="Use outputMode('append').")


def by_key(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows in the order of their keys."""
    if not batches:
        return pa.record_batch({})
    rows = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
    keys = rows.column("key").to_numpy()
    if (keys[1:] > keys[:-1]).all():
        return rows
    return rows.take(pa.array(np.argsort(keys, kind="stable")))


def numbered_symbols(tickers: pa.Array) -> tuple[Array, pa.Array]:
    """A number for each row's symbol, and the symbols by number."""
    encoded = as_array(tickers).dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary


def _cells(tickers: pa.Array) -> pa.Array:
    """The keys of the cells of these symbols: all places of one symbol, then those of the next."""
    places = pc.take(_PLACES, pa.array(np.tile(np.arange(RECENT), len(tickers))))
    return pc.binary_join_element_wise(places, tickers.take(pa.array(np.repeat(np.arange(len(tickers)), RECENT))), "")
