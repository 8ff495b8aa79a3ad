"""Trades and quotes: sums over the most recent trades of a symbol, averages that quotes meet, and generated events.

A price walks like a Brownian motion that is known at any time without the times before: the sum of one tent a level
over ever shorter stretches of time, each with a height drawn for it (Lévy's construction).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from afspark.model.kernels.generate import draw_rank
from afspark.model.kernels.hashing import GOLDEN, mix
from afspark.model.kernels.plain_arrays import Array

RECENT = 5
"""How many trades of a symbol count."""
LEVELS = 20
"""Halvings of the longest stretch of time, 2**LEVELS seconds, until a second is left."""

_LOW16 = np.uint64(0xFFFF)
_S16, _S32, _S48 = np.uint64(16), np.uint64(32), np.uint64(48)
#: Standard deviation of the sum of four numbers of 16 bits.
_DEVIATION = 65536.0 * math.sqrt(1.0 / 3.0)
_SHARE16 = 2.0**-16
#: Parts of the two walks of a price; their squares add up to 1.
_SHARED = 0.3
_OWN = math.sqrt(1.0 - _SHARED**2)
_MOST_MULTIPLES = np.uint64(5)
_LARGE = np.uint64(31)

TENTS: Array = np.sqrt(2.0 ** np.arange(LEVELS, -1, -1)) / 2
"""Deviation of the middle of a stretch from the line between its ends, by level, in square roots of seconds."""


@njit(cache=True, nogil=True)
def sum_recent(symbols, prices, volumes, recent_prices, recent_volumes, totals, sums):  # type: ignore[no-untyped-def]
    """``totals[i]``, ``sums[i]`` = price times volume and volume, summed over the recent trades of symbol
    ``symbols[i]`` up to trade i. The recent ones are in rows of symbols, the newest first, and are moved on.
    """
    for i in range(len(symbols)):
        symbol = symbols[i]
        for place in range(RECENT - 1, 0, -1):
            recent_prices[symbol, place] = recent_prices[symbol, place - 1]
            recent_volumes[symbol, place] = recent_volumes[symbol, place - 1]
        recent_prices[symbol, 0] = prices[i]
        recent_volumes[symbol, 0] = volumes[i]
        total = 0.0
        volume = np.int64(0)
        for place in range(RECENT):
            total += recent_prices[symbol, place] * recent_volumes[symbol, place]
            volume += recent_volumes[symbol, place]
        totals[i] = total
        sums[i] = volume


@njit(cache=True, nogil=True)
def meet_averages(  # type: ignore[no-untyped-def]
    average_keys, average_symbols, averages, quote_keys, quote_symbols, newest, met
):
    """``met[i]`` = the newest average of symbol ``quote_symbols[i]`` whose key is below that of quote i, 0 for none.

    Keys ascend on both sides; ``newest`` has the averages by symbol from before, and then those after the last.
    """
    place = 0
    for i in range(len(quote_keys)):
        while place < len(average_keys) and average_keys[place] < quote_keys[i]:
            newest[average_symbols[place]] = averages[place]
            place += 1
        met[i] = newest[quote_symbols[i]]
    while place < len(average_keys):
        newest[average_symbols[place]] = averages[place]
        place += 1


@njit(cache=True, nogil=True)
def walk_at(key, seconds, tents):  # type: ignore[no-untyped-def]
    """Where the walk of a key is after so many seconds, which are below 2**LEVELS; 0 at second 0.

    Its variance grows by 1 a second.
    """
    whole = 2.0**LEVELS
    found = _normal(mix(key)) * 2.0 * tents[0] * (seconds / whole)
    stretch = whole
    for level in range(LEVELS + 1):
        number = math.floor(seconds / stretch)
        within = seconds / stretch - number
        height = _normal(mix(key + (np.uint64(number) * np.uint64(64) + np.uint64(level + 1)) * GOLDEN))
        found += height * tents[level] * (1.0 - abs(2.0 * within - 1.0))
        stretch *= 0.5
    return found


@njit(cache=True, nogil=True, inline="always")
def _normal(random):  # type: ignore[no-untyped-def]
    """A draw that is nearly normal, from 64 random bits: the sum of four parts of them."""
    total = (random & _LOW16) + ((random >> _S16) & _LOW16) + ((random >> _S32) & _LOW16) + (random >> _S48)
    return (np.float64(total) - 131070.0) / _DEVIATION


@njit(cache=True, nogil=True)
def fill_market(  # type: ignore[no-untyped-def]
    key, walks, cells, quotes, seconds, tents, base, volatility, spread, symbols, trades, prices, sizes
):
    """Fill four columns: the number of a symbol, whether it is traded, a price and a number of shares.

    A quote's draw is below ``quotes``. Its price is half a ``spread`` or more above the walk of its symbol, that of a
    trade half a spread above or below. All symbols share a walk besides their own. Prices are in whole cents.
    """
    counter = key
    for i in range(len(symbols)):
        counter += GOLDEN
        rank = np.int64(draw_rank(mix(counter), cells))
        counter += GOLDEN
        trade = mix(counter) >= quotes
        counter += GOLDEN
        random = mix(counter)
        own = walk_at(walks + np.uint64(rank + 1) * np.uint64(0x14057B7EF767814F), seconds[i], tents)
        shared = walk_at(walks, seconds[i], tents)
        middle = base[rank] * max(1.0 + volatility[rank] * (_OWN * own + _SHARED * shared), 0.1)
        above = np.float64(random & _LOW16) * _SHARE16
        half = 0.5 * spread[rank]
        if trade:
            price = middle + half if above < 0.5 else middle - half
        else:
            price = middle + half * (1.0 + 2.0 * above * above)
        shares = 100 * (1 + np.int64((random >> _S16) % _MOST_MULTIPLES))
        if (random >> _S32) & _LARGE == 0:
            shares *= 10
        symbols[i] = rank
        trades[i] = trade
        prices[i] = max(np.rint(price * 100.0), 1.0) / 100.0
        sizes[i] = shares
