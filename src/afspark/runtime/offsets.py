"""The range of chunks a batch covers, as Spark wrote it down before the batch began."""

from __future__ import annotations

import json
from typing import Any

from afspark.errors import CheckpointError, ObjectMissing
from afspark.runtime.sources import Chunk, Planner
from afspark.store import Store


def chunks_of_batch(checkpoint: Store, planner: Planner, batch: int) -> list[Chunk]:
    """The chunks between the offsets of the batch before and those of ``batch``."""
    end = read_offset(checkpoint, batch)
    start = read_offset(checkpoint, batch - 1) if batch > 0 else planner.initial()
    return planner.chunks(start, end)


def read_offset(checkpoint: Store, batch: int) -> dict[str, Any]:
    """The source's offset in Spark's log: a version line, a line of metadata, a line per source."""
    try:
        lines = checkpoint.get(f"offsets/{batch}").decode().splitlines()
        return dict(json.loads(lines[2]))
    except (ObjectMissing, IndexError, ValueError) as error:
        raise CheckpointError(
            f"Spark's checkpoint has no readable offsets for batch {batch}.",
            remedy="Restore the checkpoint folder, or start with a new one.",
            batch=batch,
        ) from error
