"""On the way to the quarantine: a worker keeps as much as there is room for, the driver looks at the whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from afspark.errors import BadItems
from afspark.runtime.baditems import Bad, without_bad
from afspark.runtime.orders import Mission, Order, Report
from afspark.store.quarantine import LEAST_BYTES, BadBatch, Quarantine, rows_name

if TYPE_CHECKING:
    from afspark.runtime.crew import Crew
    from afspark.runtime.shift import Feed

T = TypeVar("T")

LOG = logging.getLogger("afspark")


def take_items(
    run: Callable[[], T],
    again: Callable[[], None],
    mission: Mission,
    order: Order,
    feed: Feed,
    key: Sequence[str],
    before: Sequence[BadBatch],
) -> tuple[T, list[BadBatch]]:
    """What ``run`` makes of the items that the operator can take; and the others, which are durable by then.

    ``again`` undoes what an attempt has done. ``before``: what the batch has left out in earlier steps.
    """
    if not mission.pristine:
        return run(), []
    made, bad = without_bad(feed, run, again, mission.bad, key)
    bad = feed.bad().and_also(bad)
    return made, [quarantined(bad, mission, order, before)] if bad.items else []


def quarantined(bad: Bad, mission: Mission, order: Order, before: Sequence[BadBatch]) -> BadBatch:
    """Puts items into quarantine, after ``before`` of the same batch; they are durable when this returns."""
    room = order.quarantine_room - sum(one.bytes for one in before)
    kept = bad.within(room if room >= LEAST_BYTES else 0)
    if not kept.rows:
        return BadBatch(counts=bad.counts)
    name = rows_name(
        order.batch, mission.operator_name, order.worker, mission.epoch, order.incarnation, number=len(before)
    )
    return BadBatch(counts=bad.counts, name=name, bytes=Quarantine(mission.store).keep(name, kept.rows))


def note_bad(quarantine: Quarantine, batch: int, crews: Sequence[Crew], *, first: bool) -> None:
    """Makes durable what a batch has left out, before its record. ``first``: it is the first batch of this driver."""
    left_out = [(crew.name, report.worker, bad) for crew in crews for report in crew.reports for bad in report.bad]
    if left_out or first:
        # An earlier driver may have noted something else for the same batch.
        quarantine.note(batch, left_out)
    for crew in crews:
        crew.bad_so_far.add(crew.reports, limit=crew.node.bad_limit, operator=crew.name)


@dataclass
class BadTally:
    """How many items an operator has taken and left out since the query was started."""

    taken: int = 0
    left_out: int = 0

    def add(self, reports: Sequence[Report], *, limit: int, operator: str) -> None:
        """Counts a batch. `BadItems` once more than ``limit`` items were bad, and more than were good."""
        bad = sum(one.items for report in reports for one in report.bad)
        if bad and not self.left_out:
            LOG.warning(
                "Items that %s cannot take are left out: %d in this batch. `afspark inspect --bad` shows them.",
                operator,
                bad,
            )
        self.left_out += bad
        self.taken += sum(report.items for report in reports)
        if bad and self.left_out > max(limit, self.taken):
            raise BadItems(
                f"{self.left_out} items that {operator!r} cannot take have come since the query was started, and only "
                f"{self.taken} others.",
                remedy="See them with `afspark inspect --bad`; mend the operator or its input, or raise bad_limit.",
                limit=limit,
                operator=operator,
                bad=self.left_out,
                taken=self.taken,
            )
