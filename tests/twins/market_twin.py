"""Plain Python twin of Bargain Discovery and of its kernels."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.twins.sampling_twin import mix

_MASK, _GOLDEN = 2**64 - 1, 0x9E3779B97F4A7C15
_RECENT, _LEVELS = 5, 20


class Bargain(NamedTuple):
    ticker: str
    average: float
    gain: float


def bargains(events: Iterable[Mapping[str, Any]], known: dict[str, float] | None = None) -> dict[int, Bargain]:
    """The quotes with a gain, by key; in ``known`` the averages after the last event are left."""
    recent: dict[str, deque[tuple[float, int]]] = defaultdict(lambda: deque(maxlen=_RECENT))
    averages = {} if known is None else known
    found = {}
    for event in events:
        ticker = event["ticker"]
        if event["type"] == "trade":
            trades = recent[ticker]
            trades.appendleft((event["price"], event["volume"]))
            averages[ticker] = sum(price * volume for price, volume in trades) / sum(volume for _, volume in trades)
        elif ticker in averages:
            gain = event["ask_size"] * (averages[ticker] - event["ask_price"])
            if gain > 0:
                found[event["key"]] = Bargain(ticker, averages[ticker], gain)
    return found


def sum_recent(trades: Iterable[tuple[int, float, int]]) -> list[tuple[float, int]]:
    """Price times volume and volume, summed over the recent trades of each trade's symbol."""
    recent: dict[int, deque[tuple[float, int]]] = defaultdict(lambda: deque(maxlen=_RECENT))
    sums = []
    for symbol, price, volume in trades:
        recent[symbol].appendleft((price, volume))
        sums.append((sum(one * many for one, many in recent[symbol]), sum(many for _, many in recent[symbol])))
    return sums


def meet_averages(
    averages: Sequence[tuple[int, int, float]], quotes: Sequence[tuple[int, int]], newest: Sequence[float]
) -> tuple[list[float], list[float]]:
    """The average that each quote meets, and those that are the newest in the end."""
    known, met = list(newest), [0.0] * len(quotes)
    # Quotes come before averages of the same key.
    order = [(key, 0, place) for place, (key, _) in enumerate(quotes)]
    order += [(key, 1, place) for place, (key, _, _) in enumerate(averages)]
    for _, kind, place in sorted(order):
        if kind:
            known[averages[place][1]] = averages[place][2]
        else:
            met[place] = known[quotes[place][1]]
    return met, known


def walk_at(key: int, seconds: float) -> float:
    whole = 2.0**_LEVELS
    found = _normal(mix(key)) * math.sqrt(whole) * (seconds / whole)
    for level in range(_LEVELS + 1):
        stretch = whole / 2**level
        number, within = divmod(seconds / stretch, 1.0)
        height = _normal(mix(key + (int(number) * 64 + level + 1) * _GOLDEN & _MASK))
        found += height * math.sqrt(stretch) / 2 * (1.0 - abs(2.0 * within - 1.0))
    return found


def _normal(random: int) -> float:
    parts = [random >> shift & 0xFFFF for shift in (0, 16, 32, 48)]
    return (sum(parts) - 131070.0) / (65536.0 * math.sqrt(1.0 / 3.0))
