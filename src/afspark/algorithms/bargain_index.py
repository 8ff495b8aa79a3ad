"""Bargain Discovery: which quotes ask less than a stock has lately cost, and what could be gained by taking them.

    source -> TradeQuote -> TradeFilter -> Aggregator -> VWAP -> BargainIndex -> sink
                         -> QuoteFilter ----------------------->

It is the application that the paper on fault injection by Jacques-Silva and others (DEBS 2011, section 6.1) assesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from afspark.algorithms.recent_trades import VWAP, Aggregator, by_key, numbered_symbols
from afspark.algorithms.trade_quotes import QuoteFilter, TradeFilter, TradeQuote
from afspark.model.kernels.market_kernels import meet_averages
from afspark.model.operator import Operator, WorkerContext
from afspark.model.states import HashTable, StateSpec

TRADE_QUOTE, TRADE_FILTER, AGGREGATOR, VWAP_NODE = "TradeQuote", "TradeFilter", "Aggregator", "VWAP"
QUOTE_FILTER, BARGAIN_INDEX = "QuoteFilter", "BargainIndex"
NODES = (TRADE_QUOTE, TRADE_FILTER, AGGREGATOR, VWAP_NODE, QUOTE_FILTER, BARGAIN_INDEX)
"""The operators by the names of the paper."""
AVERAGES = "averages"

#: Of the two operators whose state is approximate; the others keep nothing, or a count that is exact.
_WEIGHT = 0.495
_NO_AVERAGES = pa.record_batch(
    {"key": pa.array([], pa.int64()), "ticker": pa.array([], pa.string()), "average": pa.array([], pa.float64())}
)


class BargainIndex(Operator):
    """Sends the quotes that promise a gain, which is their size times what they ask less than the average: ``key``,
    ``time``, ``ticker``, ``ask_price``, ``ask_size``, ``average``, ``gain``.

    It takes averages (with a column ``average``) and quotes. A quote of a batch meets the newest average of its symbol
    whose key is below its own: among those of the same batch the keys decide, however they have come, and an average of
    a later batch has come too late for it. The state is the newest average of each symbol; divergence: the largest
    difference of one. ``query.results()`` tells them.
    """

    key: ClassVar[tuple[str, ...]] = ("ticker",)

    def states(self) -> Mapping[str, StateSpec]:
        return {AVERAGES: HashTable(key="string", value="float64", divergence="max", operator_key=True)}

    def begin(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        self._averages: list[pa.RecordBatch] = []
        self._quotes: list[pa.RecordBatch] = []

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        # Not by the name of the input: a node in between has another one.
        (self._averages if "average" in items.schema.names else self._quotes).append(items)

    def finish(self, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        averages = by_key(self._averages) if self._averages else _NO_AVERAGES
        quotes = by_key(self._quotes) if self._quotes else None
        asked = [] if quotes is None else [quotes.column("ticker")]
        symbols, tickers = numbered_symbols(pa.concat_arrays([averages.column("ticker"), *asked]))
        newest = states[AVERAGES].get(tickers)
        brought = averages.num_rows
        met = np.empty(len(symbols) - brought)
        meet_averages(
            averages.column("key").to_numpy(),
            symbols[:brought],
            averages.column("average").to_numpy(),
            np.zeros(0, np.int64) if quotes is None else quotes.column("key").to_numpy(),
            symbols[brought:],
            newest,
            met,
        )
        changed = np.unique(symbols[:brought])
        states[AVERAGES].put(tickers.take(pa.array(changed)), newest[changed])
        return None if quotes is None else _bargains(quotes, met)

    def rows(self, cells: pa.RecordBatch) -> pa.RecordBatch:
        tickers = cells.column("key").cast(pa.string())
        return pa.record_batch({"ticker": tickers, "average": cells.column("value")})


def _bargains(quotes: pa.RecordBatch, average: np.ndarray[Any, Any]) -> pa.RecordBatch:
    gain = quotes.column("size").to_numpy() * (average - quotes.column("price").to_numpy())
    found = np.flatnonzero(gain > 0)
    chosen = quotes.take(pa.array(found))
    return pa.record_batch(
        {
            **{name: chosen.column(name) for name in ("key", "time", "ticker")},
            "ask_price": chosen.column("price"),
            "ask_size": chosen.column("size"),
            "average": pa.array(average[found]),
            "gain": pa.array(gain[found]),
        }
    )


def bargain_discovery(
    stream: Any, *, on_bad: str = "skip", workers: int = 2, tolerance: Any = None, name: str = BARGAIN_INDEX
) -> Any:
    """Composes the six operators of Bargain Discovery and gives the stream of the last; the others have the names of
    the paper (`NODES`).

    ``stream`` is any stream or operator's output that has ``apply``, with the columns of `TradeQuote`. A sink in append
    mode gets the bargains of every batch.
    """
    settings = {"workers": workers, "tolerance": tolerance}
    events = stream.apply(TradeQuote(on_bad=on_bad), name=TRADE_QUOTE, **settings)
    trades = events.apply(TradeFilter(), name=TRADE_FILTER, **settings)
    sums = trades.apply(Aggregator(), name=AGGREGATOR, weight=_WEIGHT, **settings)
    averages = sums.apply(VWAP(), name=VWAP_NODE, **settings)
    quotes = events.apply(QuoteFilter(), name=QUOTE_FILTER, **settings)
    return averages.union(quotes).apply(BargainIndex(), name=name, weight=_WEIGHT, **settings)
