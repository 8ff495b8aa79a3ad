"""Batches between the newest record that a starting driver finds and the one that it begins with."""

from __future__ import annotations

import logging
from collections.abc import Callable

from afspark.coordinator.changed_pipeline import PipelineChange
from afspark.coordinator.ending import is_intended
from afspark.coordinator.offsets import has_offsets, newest_of
from afspark.coordinator.operator_inputs import OperatorInputs
from afspark.coordinator.operator_run import OperatorRun
from afspark.errors import CheckpointError, UsageError
from afspark.graph.node import Node
from afspark.graph.pipeline import Pipeline
from afspark.numbers import Batch
from afspark.store import CommitRecord, RecordLog, Store
from afspark.store.epochs import read_history
from afspark.store.naming import FOLDER

LOG = logging.getLogger("afspark")

END_IN_ORDER = "Start the query once more as it was, and let it end in an orderly way: that writes the record."


def unrecorded(checkpoint: Store, pipeline: Pipeline) -> range:
    """The batches that Spark has committed and that no sound record covers, if all of them can be replayed; for whoever
    has not opened the query.
    """
    committed = newest_of(checkpoint, "commits")
    if committed is None or not pipeline.replayable or is_intended(checkpoint.below(FOLDER)):
        return range(0)
    first = Batch(max(read_history(checkpoint.below(FOLDER), committed).records, default=-1) + 1)
    batch = Batch(committed + 1)
    return range(first, batch) if has_offsets(checkpoint, first, batch) else range(0)


def refuse_if_forgotten(checkpoint: Store, pipeline: Pipeline, offsets_kept: int) -> None:
    """`UsageError` if Spark, which remembers no more than so many batches, would forget with its next one what belonged
    to some that have to be replayed. Nothing is gone before that.
    """
    behind = unrecorded(checkpoint, pipeline)
    if not behind:
        return
    # The first one begins where the one before it has ended.
    needed = behind.stop - max(behind.start - 1, 0)
    if (newest_of(checkpoint, "offsets") or 0) >= behind.stop:
        # Workers may have applied the next one for the driver before, as no barrier: then it has no record either.
        needed += 1
    if offsets_kept < needed:
        raise UsageError(
            f"Batches {behind.start} to {behind.stop - 1} are in no commit record yet, and Spark would forget what "
            f"belonged to them: spark.sql.streaming.minBatchesToRetain is {offsets_kept}.",
            remedy=f"Start with {needed} or more; it may be less again once the query has ended in an orderly way.",
            batch=behind.start,
            kept=offsets_kept,
            needed=needed,
        )


def refuse_if_left_behind(checkpoint: Store, pipeline: Pipeline) -> None:
    """`UsageError` if batches have to be replayed that an earlier start could replay, and this one cannot: windows that
    have ended in them would end once more, and those begun in them never.
    """
    store = checkpoint.below(FOLDER)
    committed = newest_of(checkpoint, "commits")
    if committed is None or pipeline.replayable or not pipeline.keeps_records or is_intended(store):
        return
    history = read_history(store, committed)
    recorded = max(history.records, default=-1)
    if recorded in (-1, committed) or history.damaged or not history.records[recorded][1].replays:
        return
    bare = [node.name for node in pipeline.nodes if not node.tolerance.needs_records]
    why = f"{bare[0]!r} under Nothing() has no state to be replayed upon" if bare else "its input cannot be read again"
    raise UsageError(
        f"{left_to_replay_text(range(recorded + 1, committed + 1))} and {why}.",
        remedy=END_IN_ORDER,
        batch=recorded + 1,
    )


def refuse_change_of_the_past(checkpoint: Store, change: PipelineChange) -> None:
    """`CheckpointError` if batches would be replayed through another graph of operators than the one that they took."""
    behind = left_to_replay(checkpoint) if change.is_structural else range(0)
    if behind:
        raise CheckpointError(
            f"{left_to_replay_text(behind)} and the pipeline has changed: {change.structural_text}.",
            remedy=END_IN_ORDER,
            batch=behind.start,
        )


def left_to_replay(checkpoint: Store) -> range:
    """The batches that Spark has committed and that the next start has to replay, whatever its pipeline is."""
    store = checkpoint.below(FOLDER)
    committed = newest_of(checkpoint, "commits")
    if committed is None or is_intended(store):
        return range(0)
    records = read_history(store, committed).records
    newest = max(records, default=-1)
    return range(newest + 1, committed + 1) if records and records[newest][1].replays else range(0)


def left_to_replay_text(behind: range) -> str:
    """The beginning of a sentence about batches that have to be replayed."""
    return f"Batches {behind.start} to {behind.stop - 1} are in no commit record yet and have to be replayed,"


def first_to_replay(
    inputs: OperatorInputs,
    log: RecordLog,
    batch: Batch,
    record: CommitRecord | None,
    make_run: Callable[[Node], OperatorRun],
) -> Batch:
    """The first batch that the records found do not cover, if all since then can be applied once more.

    ``batch`` itself if the input for that is gone while all states are there, which were not backed up so far: where no
    progress depends on records, they go on as they are.
    """
    pipeline = inputs.pipeline
    first = Batch(0 if record is None else record.batch + 1)
    if first >= batch or not pipeline.replayable or not has_offsets(inputs.planned.checkpoint, first, batch):
        return batch
    if log.damaged:
        unread = ", ".join(damage.name for damage in log.damaged)
        LOG.warning("%s cannot be read: batches from %d on are replayed.", unread, first)
    elif not pipeline.records_progress and any(inputs.is_gone(Batch(past)) for past in range(first, batch)):
        runs = [make_run(node) for node in pipeline.nodes]
        if all(run.group.outlives_records(first, batch, record) for run in runs):
            return batch
    return first


def passed_over(pipeline: Pipeline, log: RecordLog, batch: Batch, record: CommitRecord | None) -> list[str]:
    """What is missing between the record found and the batch before ``batch``."""
    if not pipeline.keeps_records or (record.batch if record else -1) >= batch - 1:
        return []
    return [damage.name for damage in log.damaged] or [f"record of batch {batch - 1}"]
