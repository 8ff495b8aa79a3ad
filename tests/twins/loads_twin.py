"""Plain Python twin of the predictions of loads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple


class Reading(NamedTuple):
    time: float
    house: int
    household: int
    plug: int
    load: float


class Place(NamedTuple):
    """What a prediction is for: a house, or a plug of it, and the second at which the predicted slice begins."""

    minutes: int
    house: int
    household: int | None
    plug: int | None
    start: int


class Forecast(NamedTuple):
    load: float
    past: float | None
    days: int
    prediction: float


def forecasts(readings: Iterable[Reading], minutes: Sequence[int], days: int) -> dict[Place, Forecast]:
    """The predictions from every slice that has readings."""
    plugs: dict[tuple[int, tuple[int, ...], int], list[float]] = defaultdict(list)
    for one in readings:
        for length in minutes:
            plugs[length, (one.house, one.household, one.plug), int(one.time // (60 * length))].append(one.load)
    means = {key: sum(loads) / len(loads) for key, loads in plugs.items()}
    houses: dict[tuple[int, tuple[int, ...], int], float] = defaultdict(float)
    for (length, plug, number), mean in means.items():
        houses[length, plug[:1], number] += mean
    loads = {**means, **houses}
    found = {}
    for (length, who, number), load in loads.items():
        past = [
            loads[length, who, number + 2 - day * 1440 // length]
            for day in range(1, days + 1)
            if (length, who, number + 2 - day * 1440 // length) in loads
        ]
        house, household, plug = (*who, None, None)[:3]
        place = Place(length, house or 0, household, plug, (number + 2) * length * 60)
        middle = median(past) if past else None
        found[place] = Forecast(load, middle, len(past), load if middle is None else (load + middle) / 2)
    return found
