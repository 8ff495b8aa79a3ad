"""Batches between the newest record that a starting driver finds and the one that it begins with."""

from __future__ import annotations

import logging

from afspark.coordinator.offsets import has_offsets
from afspark.graph.pipeline import Pipeline
from afspark.numbers import Batch
from afspark.store import CommitRecord, RecordLog, Store

LOG = logging.getLogger("afspark")


def first_to_replay(
    checkpoint: Store, pipeline: Pipeline, log: RecordLog, batch: Batch, record: CommitRecord | None
) -> Batch:
    """The first batch that the records found do not cover, if all since then can be applied once more."""
    first = Batch(0 if record is None else record.batch + 1)
    if first >= batch or not pipeline.replayable or not has_offsets(checkpoint, first, batch):
        return batch
    if log.damaged:
        unread = ", ".join(damage.name for damage in log.damaged)
        LOG.warning("%s cannot be read: batches from %d on are replayed.", unread, first)
    return first


def passed_over(pipeline: Pipeline, log: RecordLog, batch: Batch, record: CommitRecord | None) -> list[str]:
    """What is missing between the record found and the batch before ``batch``."""
    if not pipeline.keeps_records or (record.batch if record else -1) >= batch - 1:
        return []
    return [damage.name for damage in log.damaged] or [f"record of batch {batch - 1}"]
