"""The range of chunks a batch covers, and its time, as Spark wrote them down before the batch began."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from afspark.errors import CheckpointError, ObjectMissing
from afspark.numbers import Batch
from afspark.sources import Chunk, Planner
from afspark.store import Store

#: Lines before those of the sources: a version and the metadata.
_HEAD = 2


def chunks_of_batch(checkpoint: Store, planner: Planner, batch: Batch, source: int = 0) -> Sequence[Chunk]:
    """The chunks of the source at that position between the offsets of the batch before and those of ``batch``."""
    end = read_offset(checkpoint, batch, source) or planner.initial()
    start = (read_offset(checkpoint, Batch(batch - 1), source) if batch > 0 else None) or planner.initial()
    return planner.chunks(start, end)


def read_offset(checkpoint: Store, batch: Batch, source: int = 0) -> dict[str, Any] | None:
    """The source's offset; None if it had nothing yet."""
    line = _line(checkpoint, batch, _HEAD + source)
    return dict(line) if line is not None else None


def time_of_batch(checkpoint: Store, batch: Batch) -> float:
    """When Spark planned the batch, in epoch seconds: the same however often it is run."""
    return float((_line(checkpoint, batch, 1) or {}).get("batchTimestampMs", 0)) / 1000


def newest_of(checkpoint: Store, folder: str) -> int | None:
    """The newest batch that Spark has in one of its folders ("offsets": begun, "commits": done); None: none."""
    names = [name.rsplit("/", 1)[-1] for name in checkpoint.list(folder)]
    return max((int(name) for name in names if name.isdigit()), default=None)


def _line(checkpoint: Store, batch: Batch, number: int) -> Any:
    try:
        line = checkpoint.get(f"offsets/{batch}").decode().splitlines()[number]
        return None if line == "-" else json.loads(line)
    except (ObjectMissing, IndexError, ValueError) as error:
        raise CheckpointError(
            f"Spark's checkpoint has no readable offsets for batch {batch}.",
            remedy="Restore the checkpoint folder, or start with a new one.",
            batch=batch,
        ) from error
