"""The range of chunks a batch covers, and its time, as Spark wrote them down before the batch began.

While the checkpoint is away Spark writes to a place of the same name that it makes itself, and of which nothing is left
when the checkpoint is back. So a driver remembers what was planned for its newest batches, and puts it back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from afspark.errors import CheckpointError, ObjectMissing
from afspark.numbers import Batch
from afspark.sources import Chunk, Planner
from afspark.store import Store

LOG = logging.getLogger("afspark")

#: Lines before those of the sources: a version and the metadata.
_HEAD = 2
#: A batch begins where the one before it has ended.
_REMEMBERED = 2


class OffsetLog:
    """What Spark has planned for batches, by its offset log in the checkpoint."""

    def __init__(self, checkpoint: Store) -> None:
        self.checkpoint = checkpoint
        self._known: dict[Batch, bytes] = {}
        self._outages = checkpoint.outages

    def begin(self, batch: Batch) -> None:
        """Reads what was planned for a batch that begins; `CheckpointError` if that is not there."""
        try:
            self._known[batch] = self.checkpoint.get(_name(batch))
        except ObjectMissing as error:
            raise CheckpointError(
                f"Spark has planned batch {batch} while its checkpoint was away, and the plan is gone.",
                remedy="Start the query again: the batch is planned anew, and nothing is lost.",
                batch=batch,
            ) from error
        self._known = {one: plan for one, plan in self._known.items() if one > batch - _REMEMBERED}

    def put_back(self) -> None:
        """Before a batch is handed back to Spark, which would go back to the batch before it after a restart: puts back
        what was planned while the checkpoint was away.
        """
        if self._outages == self.checkpoint.outages:
            return
        self._outages = self.checkpoint.outages
        for batch, plan in self._known.items():
            if not self.checkpoint.has(_name(batch)):
                LOG.warning("Spark has planned batch %d while its checkpoint was away; the plan is put back.", batch)
                self.checkpoint.put(_name(batch), plan)

    def chunks(self, planner: Planner, batch: Batch, source: int = 0) -> Sequence[Chunk]:
        """The chunks of the source at that position between the offsets of the batch before and those of ``batch``."""
        end = self._offset(batch, source) or planner.initial()
        start = (self._offset(Batch(batch - 1), source) if batch > 0 else None) or planner.initial()
        return planner.chunks(start, end)

    def time(self, batch: Batch) -> float:
        """When Spark planned the batch, in epoch seconds: the same however often it is run."""
        return float((self._line(batch, 1) or {}).get("batchTimestampMs", 0)) / 1000

    def _offset(self, batch: Batch, source: int) -> dict[str, Any] | None:
        """The source's offset; None if it had nothing yet."""
        line = self._line(batch, _HEAD + source)
        return dict(line) if line is not None else None

    def _line(self, batch: Batch, number: int) -> Any:
        try:
            plan = self._known[batch] if batch in self._known else self.checkpoint.get(_name(batch))
            line = plan.decode().splitlines()[number]
            return None if line == "-" else json.loads(line)
        except (ObjectMissing, IndexError, ValueError) as error:
            raise CheckpointError(
                f"Spark's checkpoint has no readable offsets for batch {batch}.",
                remedy="Restore the checkpoint folder, or start with a new one.",
                batch=batch,
            ) from error


def newest_of(checkpoint: Store, folder: str) -> int | None:
    """The newest batch that Spark has in one of its folders ("offsets": begun, "commits": done); None: none."""
    names = [name.rsplit("/", 1)[-1] for name in checkpoint.list(folder)]
    return max((int(name) for name in names if name.isdigit()), default=None)


def has_offsets(checkpoint: Store, first: Batch, end: Batch) -> bool:
    """Whether Spark still knows what belonged to every batch from ``first`` to the one before ``end``."""
    if first >= end:
        return True
    known = {name.rsplit("/", 1)[-1] for name in checkpoint.list("offsets")}
    return all(str(batch) in known for batch in range(max(first - 1, 0), end))


def _name(batch: Batch) -> str:
    return f"offsets/{batch}"
