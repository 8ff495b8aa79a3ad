"""An endless supply of trades and quotes of stocks, whose prices move and whose traffic comes in bursts. Synthetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import Array
from afspark.sources.bursts import bursts
from afspark.sources.chunks import NumberedChunk
from afspark.sources.source import EvenPlanner, LogStore, Planner, Source

EVENTS = pa.schema(
    [
        pa.field("key", pa.int64(), nullable=False),
        pa.field("time", pa.float64(), nullable=False),
        pa.field("ticker", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("price", pa.float64()),
        pa.field("volume", pa.int64()),
        pa.field("ask_price", pa.float64()),
        pa.field("ask_size", pa.int64()),
    ]
)
EVENT_BYTES = 48
"""What an event weighs in a batch."""
RATE, PEAK_RATE = 500, 2200
"""Events a second, on average and at the highest peak."""
QUOTES = 0.8
"""The share of quotes."""
TRADE, QUOTE = "trade", "quote"

_CHUNK_ROWS = 1 << 15
_LONGEST = 2**20
_EXPONENT = 1.0
#: A spread over how far a price moves from one trade of its symbol to the next.
_SPREAD = 1.4
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class MarketEvents(Source, kind="market-events"):
    """``rows`` generated events of a market: ``key`` (0, 1, 2, …), ``time`` in seconds, ``ticker``, ``type`` ("trade"
    or "quote"), ``price`` and ``volume`` of trades, ``ask_price`` and ``ask_size`` of quotes.

    Four fifths are quotes. 500 events come in a second on average and 2,200 at the highest of six peaks. Symbols are
    drawn by Zipf's law, for trades and quotes alike. Prices of $10 to $100 walk by about 2.5 % in 10,000 seconds,
    partly all together; rare symbols have wider spreads. A chunk depends on these settings and its number.
    """

    rows: int
    seed: int = 0
    symbols: int = 8000

    def __post_init__(self) -> None:
        if not 0 <= self.rows <= RATE * (_LONGEST - 1) or not 1 <= self.symbols <= 100_000:
            raise UsageError(
                f"{self} cannot be generated.",
                remedy=f"Needs 0 to {RATE * (_LONGEST - 1):,} rows and 1 to 100,000 symbols.",
            )

    def schema(self) -> pa.Schema:
        return EVENTS

    def planner(self, log: LogStore) -> Planner:
        return EvenPlanner(self.rows, _CHUNK_ROWS, EVENT_BYTES)

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        # Not before: whoever only plans needs no compiled kernels.
        from afspark.model.kernels.generate import block_key, zipf_cells
        from afspark.model.kernels.market_kernels import TENTS, fill_market

        first, count = chunk.index * _CHUNK_ROWS, chunk.units
        day = bursts(self.seed, PEAK_RATE / RATE).times(first, count, self.rows)
        seconds = day * (self.rows / RATE)
        stocks = stocks_of(self.seed, self.symbols)
        symbols, trades = np.empty(count, np.int32), np.empty(count, bool)
        prices, sizes = np.empty(count), np.empty(count, np.int64)
        fill_market(
            block_key(self.seed, chunk.index),
            block_key(self.seed, -1),
            zipf_cells(self.symbols, _EXPONENT),
            np.uint64(int(QUOTES * 2.0**64)),
            seconds,
            TENTS,
            stocks.base,
            stocks.volatility,
            stocks.spread,
            symbols,
            trades,
            prices,
            sizes,
        )
        columns = [
            pa.array(first + np.arange(count)),
            pa.array(seconds),
            stocks.tickers.take(pa.array(symbols)),
            pa.array([QUOTE, TRADE]).take(pa.array(trades.astype(np.int8))),
            pa.array(prices, mask=~trades),
            pa.array(sizes, mask=~trades),
            pa.array(prices, mask=trades),
            pa.array(sizes, mask=trades),
        ]
        yield pa.record_batch(columns, schema=EVENTS)


class Stocks(NamedTuple):
    """All symbols, the busiest first: names, prices at second 0 and spreads in dollars, and how far a price moves in a
    second, as a part of it.
    """

    tickers: pa.Array
    base: Array
    volatility: Array
    spread: Array


@lru_cache(maxsize=8)
def stocks_of(seed: int, symbols: int) -> Stocks:
    draw = Random(seed)
    base = np.array([round(10 * 10 ** draw.random(), 2) for _ in range(symbols)])
    volatility = np.array([round(2.5e-4 * 2 ** draw.uniform(-1, 1), 9) for _ in range(symbols)])
    chances = np.arange(1, symbols + 1) ** -_EXPONENT
    between = chances.sum() / chances / (RATE * (1 - QUOTES))
    # Whole hundredths of a cent, because the last bit of a root or power may differ between processors.
    spread = np.maximum(np.rint(_SPREAD * base * volatility * np.sqrt(between) * 1e4) / 1e4, 0.01)
    return Stocks(pa.array([ticker_of(rank) for rank in range(symbols)]), base, volatility, spread)


def ticker_of(rank: int) -> str:
    """A name of letters for each rank.

    >>> [ticker_of(rank) for rank in (0, 25, 26, 702)]
    ['A', 'Z', 'AA', 'AAA']
    """
    name = ""
    rank += 1
    while rank:
        rank, letter = divmod(rank - 1, len(_LETTERS))
        name = _LETTERS[letter] + name
    return name
