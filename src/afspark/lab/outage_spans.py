"""Which items a fault takes from each worker of each injector, and how many seconds of an outage are how many items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from afspark.errors import UsageError
from afspark.graph.injector import Inlet, Span
from afspark.lab.interleaving import Counts
from afspark.lab.observations import Outage, Rate


@dataclass(frozen=True)
class InputRate:
    """Items a second that all inputs together bring, on average and at the peak."""

    average: float
    peak: float

    def __post_init__(self) -> None:
        if not 0 < self.average <= self.peak < float("inf"):
            raise UsageError(
                f"A rate of {self.average:g} items a second with a peak of {self.peak:g} cannot be.",
                remedy="Both are above 0, and the peak is the higher one.",
            )


def measured_rate(times: Sequence[npt.NDArray[np.float64]]) -> InputRate:
    """The rate of inputs whose items have these times in seconds; the peak is that of the busiest second."""
    every = np.concatenate(list(times))
    first, last = float(every.min()), float(every.max())
    if not last > first:
        raise UsageError(
            "All items have the same time, so they have no rate.",
            remedy="Name another column of times, or give the rate.",
        )
    busiest = int(np.bincount((every - first).astype(np.int64)).max())
    average = len(every) / (last - first)
    return InputRate(average, max(float(busiest), average))


def outage_items(given: float, came: int) -> int:
    """The items of an outage that is given in items, or below 1 as a part of those that come to the target.

    >>> outage_items(40, 5_000), outage_items(0.02, 5_000), outage_items(0.001, 20)
    (40, 100, 1)
    """
    return int(given) if given >= 1 else max(1, round(given * came))


def outages_at(
    share: float, *, items: Sequence[int], seconds: Sequence[float], rate: InputRate | None
) -> tuple[Outage, ...]:
    """The outages of a target that sees ``share`` items for each one of the inputs.

    >>> [outage.items for outage in outages_at(0.2, items=[7], seconds=[2], rate=InputRate(500, 2200))]
    [7, 200, 880]
    """
    found = [Outage(int(count)) for count in items]
    if seconds and rate is None:
        raise UsageError(
            "Seconds of an outage are so many items only at a known rate.",
            remedy="Name the column of event times, or give the rate, or outages in items.",
        )
    if rate is not None:
        for kind, per_second in ((Rate.AVERAGE, rate.average), (Rate.PEAK, rate.peak)):
            found += [Outage(max(1, round(one * per_second * share)), float(one), kind) for one in seconds]
    return tuple(found)


def spans_after(passed: Mapping[Inlet, Counts], batch: int, items: int) -> dict[Inlet, tuple[Span, ...]]:
    """The span that each worker of each of these inputs loses, ``items`` in all, from the beginning of a batch on.

    ``passed``: how many items each worker had seen after each batch of the golden run. Within a batch, workers and
    inputs are taken to advance evenly.
    """
    base = {inlet: counts[batch - 1] if batch else np.zeros_like(counts[0]) for inlet, counts in passed.items()}
    gained = _gained(passed, batch)
    at, part = _place(gained.sum(axis=1), items)
    if at == len(gained):
        lost = gained[-1]
    else:
        before = gained[at - 1] if at else np.zeros_like(gained[0])
        lost = _rounded(before + part * (gained[at] - before))
    spans: dict[Inlet, tuple[Span, ...]] = {}
    first = 0
    for inlet, counts in passed.items():
        workers = counts.shape[1]
        spans[inlet] = tuple(
            Span(int(offset), int(count))
            for offset, count in zip(base[inlet], lost[first : first + workers], strict=True)
        )
        first += workers
    return spans


def outage_end(passed: Mapping[Inlet, Counts], batch: int, items: int) -> float:
    """When an outage of so many items that begins with a batch is over: batches, and the part of the last one."""
    at, part = _place(_gained(passed, batch).sum(axis=1), items)
    return batch + at + part


def items_left(passed: Mapping[Inlet, Counts], batch: int) -> int:
    """How many items come from the beginning of a batch to the end of the input: no outage takes more."""
    return int(_gained(passed, batch)[-1].sum())


def _gained(passed: Mapping[Inlet, Counts], batch: int) -> Counts:
    """The items that came since the beginning of a batch: batches x workers of all inputs."""
    whole = np.concatenate(list(passed.values()), axis=1)
    return whole[batch:] - (whole[batch - 1] if batch else 0)


def _place(totals: Counts, items: int) -> tuple[int, float]:
    """In which batch so many items have come, and in which part of it; after the last one, if never."""
    at = int(np.searchsorted(totals, items))
    if at == len(totals):
        return at, 0.0
    before = int(totals[at - 1]) if at else 0
    return at, (items - before) / (int(totals[at]) - before)


def _rounded(shares: npt.NDArray[np.float64]) -> Counts:
    """Whole numbers with the same sum: the largest fractions are rounded up."""
    whole = np.floor(shares).astype(np.int64)
    missing = round(float(shares.sum())) - int(whole.sum())
    if missing > 0:
        whole[np.argsort(whole - shares, kind="stable")[:missing]] += 1
    return whole
