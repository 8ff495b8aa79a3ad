"""The end of a query that nobody has killed: what it has processed is covered by a last snapshot."""

from __future__ import annotations

import logging

from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.offsets import newest_of
from afspark.coordinator.unrecorded_batches import unrecorded
from afspark.numbers import Batch

LOG = logging.getLogger("afspark")


def committed_by_spark(engine: Coordinator) -> bool:
    """Whether Spark has committed the last batch that was applied: otherwise that one will run again."""
    newest = newest_of(engine.checkpoint, "commits")
    return newest is not None and newest >= engine.committed


def take_last_snapshot(engine: Coordinator) -> None:
    """Covers the last batches by a snapshot, so that a later start on other hosts has nothing to replay: also those of
    an earlier driver that was killed, if there was nothing new since.

    Waits for the store no longer than other requests do. What goes wrong is told as a warning, and costs nothing but
    the replay. Nothing is done if Spark has not committed the last batch: then that one will run again.
    """
    if engine.cluster.stopped:
        return
    last = engine.committed
    try:
        if not committed_by_spark(engine):
            return
        if not engine.runs:
            if not unrecorded(engine.checkpoint, engine.pipeline):
                return
            engine.ready()
        engine.commits.cover_at_rest(engine.options.store_wait_seconds)
        engine.retained.release(Batch(last + 1), engine.commits.records.covered.batch)
    except Exception as error:  # noqa: BLE001 (a query that has ended well stays so, whatever Spark or the store does)
        LOG.warning("The last batches will be replayed at the next start, because no snapshot covers them: %s", error)
