"""What a receiver may hold of pushed items without a backup: what all operators that read them allow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from afspark.bounds.thresholds import Place
from afspark.policies.tolerance import Tolerance


@dataclass(frozen=True, kw_only=True)
class ItemLimits:
    """l of one lane, as a number and as a time, and γ, before any failure; and where items are until they count."""

    items: float
    seconds: float | None
    unacked: float
    keeps_upstream: bool
    logs_first: bool


def item_limits(readers: Iterable[tuple[Tolerance, Place]]) -> ItemLimits:
    """The strictest of what the readers' tolerances allow: an item that is lost is lost to each of them.

    The ``workers`` of a reader's place are the lanes that its pushed items come through, over all of its sources:
    that many can each lose l. An item that one reader wants in the log and another at its sender is logged, which
    is as good.

    >>> from afspark.policies.tolerance import Approximate, MiniBatch
    >>> loose, place = Approximate(10, items=100, unacked=40), Place(workers=2)
    >>> item_limits([(loose, place)]).items, item_limits([(loose, place), (MiniBatch(unacked=2), place)]).items
    (25.0, 0.0)
    """
    found = list(readers)
    seconds = [tolerance.seconds_allowance(failures=0) for tolerance, _ in found]
    logs_first = any(tolerance.logs_first for tolerance, _ in found)
    return ItemLimits(
        items=min(tolerance.items_allowance(failures=0, place=place) for tolerance, place in found),
        seconds=min((limit for limit in seconds if limit is not None), default=None),
        unacked=min(tolerance.unacked_allowance(failures=0, place=place) for tolerance, place in found),
        keeps_upstream=not logs_first and any(tolerance.keeps_upstream for tolerance, _ in found),
        logs_first=logs_first,
    )
