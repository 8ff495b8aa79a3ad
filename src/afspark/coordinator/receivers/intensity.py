"""How busy the receivers of a query are from batch to batch, and a warning where L backs up every item."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

LOG = logging.getLogger("afspark")

COUNTERS = ("accepted", "acknowledged", "logged", "duplicates", "blocked_seconds")

#: So many batches in a row, with so many items in each at least, before anybody is warned.
BATCHES = 5
ITEMS = 1_000
SHARE = 0.9


class Intensity:
    """Differences of the receivers' counters, one set per batch."""

    def __init__(self) -> None:
        self._before = dict.fromkeys(COUNTERS, 0.0)
        self._saved = 0
        self._warned = False

    def of_batch(self, stats: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
        """What came since the last batch, and what waits now."""
        if not stats:
            return {}
        sums = {name: float(sum(one[name] for one in stats.values())) for name in COUNTERS}
        # Counters of a receiver that was started anew begin again.
        since = {name: max(0.0, sums[name] - self._before[name]) for name in COUNTERS}
        self._before = sums
        return since | {"pending": float(sum(one["pending_items"] for one in stats.values()))}

    def warn(self, since: Mapping[str, float], seconds: float, allowed: float, workers: int) -> bool:
        """Says once if nearly everything is backed up although some of it might wait; whether it said so."""
        heavy = since.get("accepted", 0) >= ITEMS and since["logged"] >= SHARE * since["accepted"]
        self._saved = self._saved + 1 if heavy and allowed > 0 else 0
        if self._saved < BATCHES or self._warned:
            return False
        self._warned = True
        rate = since["accepted"] / max(seconds, 1e-9)
        LOG.warning(
            "Nearly every item is backed up (%.0f of %.0f in the last batch): %.0f items arrive per second and a batch "
            "takes %.2f s, but only %g may wait without a backup at each of %d workers. Raise `items`, give "
            "`items_seconds` instead, or use more workers.",
            since["logged"],
            since["accepted"],
            rate,
            seconds,
            allowed,
            workers,
        )
        return True
