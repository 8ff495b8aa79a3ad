"""Bad items of all workers of a batch: counted, noted in the quarantine, and a query stopped that has too many."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from afspark.errors import BadItems
from afspark.numbers import Batch
from afspark.protocol.reports import TaskReport
from afspark.store.quarantine import Quarantine

if TYPE_CHECKING:
    from afspark.coordinator.operator_run import OperatorRun

LOG = logging.getLogger("afspark")


def note_bad(quarantine: Quarantine, batch: Batch, runs: Sequence[OperatorRun], *, first: bool) -> None:
    """Makes durable what a batch has left out, before its record. ``first``: it is the first batch of this driver."""
    left_out = [(run.name, report.worker, bad) for run in runs for report in run.reports for bad in report.bad]
    if left_out or first:
        # An earlier driver may have noted something else for the same batch.
        quarantine.note(batch, left_out)
    for run in runs:
        run.bad_so_far.add(run.reports, limit=run.node.bad_limit, operator=run.name)


@dataclass
class BadTally:
    """How many items an operator has taken and left out since the query was started."""

    taken: int = 0
    left_out: int = 0

    def add(self, reports: Sequence[TaskReport], *, limit: int, operator: str) -> None:
        """Counts a batch. `BadItems` once more than ``limit`` items were bad, and more than were good."""
        bad = sum(one.items for report in reports for one in report.bad)
        if bad and not self.left_out:
            LOG.warning(
                "Items that %s cannot take are left out: %d in this batch."
                " `afspark inspect CHECKPOINT --bad` shows them.",
                operator,
                bad,
            )
        self.left_out += bad
        self.taken += sum(report.items for report in reports)
        if bad and self.left_out > max(limit, self.taken):
            raise BadItems(
                f"{self.left_out} items that {operator!r} cannot take have come since the query was started, and only "
                f"{self.taken} others.",
                remedy="See them with `afspark inspect CHECKPOINT --bad`; mend the operator or its input, or raise"
                " bad_limit.",
                limit=limit,
                operator=operator,
                bad=self.left_out,
                taken=self.taken,
            )
