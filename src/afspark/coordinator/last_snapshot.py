"""The end of a query that nobody has killed: what it has processed is covered by a last snapshot, which has all."""

from __future__ import annotations

import logging

from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.ending import is_intended
from afspark.coordinator.flushing import is_flushed
from afspark.coordinator.offsets import newest_of
from afspark.coordinator.unrecorded_batches import unrecorded
from afspark.numbers import Batch
from afspark.store.epochs import read_history

LOG = logging.getLogger("afspark")

_AT_RISK = (
    "The last batches will be replayed at the next start if workers lose their state until then, and what no backup"
    " holds is lost with it"
)


def committed_by_spark(engine: Coordinator) -> bool:
    """Whether Spark has committed the last batch that was applied: otherwise that one will run again."""
    newest = newest_of(engine.checkpoint, "commits")
    return newest is not None and newest >= engine.committed


def take_last_snapshot(engine: Coordinator) -> bool:
    """Makes all durable that workers have, so that a later start on other hosts has nothing to replay and has lost
    nothing: also what an earlier driver has left that was killed, if there was nothing new since.

    In ``flush_seconds``, once the store has the records that were on their way. What goes wrong is told as a warning;
    then what is gone by the next start is recovered as after any other loss. Nothing is done if Spark has not committed
    the last batch: then that one will run again. Says whether it was done, or there was nothing to do.
    """
    if engine.cluster.stopped:
        if engine.runs:
            LOG.warning("%s, because Spark was stopped before the query: call query.stop() first.", _AT_RISK)
        return False
    last = engine.committed
    try:
        if not committed_by_spark(engine):
            return False
        if not engine.runs:
            if not _is_left(engine):
                return True
            engine.ready()
        done = engine.commits.flush(engine.options.flush_seconds)
        engine.retained.release(Batch(last + 1), engine.commits.records.covered.batch)
    except Exception as error:  # noqa: BLE001 (a query that has ended well stays so, whatever Spark or the store does)
        LOG.warning("%s, because no snapshot covers it: %s", _AT_RISK, error)
        return False
    if not done:
        LOG.warning(
            "Not all that workers have was made durable, because one was lost after the last batch: what is gone by "
            "the next start is recovered as after any other loss."
        )
    return done


def _is_left(engine: Coordinator) -> bool:
    """Whether an earlier driver has left something that is not durable."""
    if unrecorded(engine.checkpoint, engine.pipeline):
        return True
    committed = newest_of(engine.checkpoint, "commits")
    if committed is None or not engine.pipeline.keeps_records or is_intended(engine.store):
        return False
    found = read_history(engine.store, committed).records.get(committed)
    operators = [node.name for node in engine.pipeline.nodes if node.tolerance.needs_records]
    return found is not None and not is_flushed(found[1], operators)
