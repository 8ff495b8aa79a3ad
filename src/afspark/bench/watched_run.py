"""One run of a query from its start to its end, with all of its batches seen."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import afspark as af
from afspark.bench.seen_batches import SeenBatches

#: Spark and the engine remember a hundred batches, so a look now and then sees all of them.
LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class EndedRun:
    """A query that has processed all of its input, and its checkpoint; both are there until the run is left."""

    query: af.Query
    checkpoint: Path


@contextmanager
def watched_run(
    writer: af.StreamWriter, seen: SeenBatches, *, batch_bytes: int, options: Mapping[str, float] | None = None
) -> Iterator[EndedRun]:
    """Runs a query over all input that there is, in a checkpoint of its own, and removes what it has left behind."""
    checkpoint = tempfile.mkdtemp(prefix="afspark-bench-")
    try:
        prepared = writer.option("checkpointLocation", checkpoint).option("batchBytes", batch_bytes)
        for option, value in (options or {}).items():
            prepared = prepared.option(option, value)
        query = prepared.trigger(availableNow=True).start()
        while not query.awaitTermination(LOOK_SECONDS):
            seen.look(query)
        seen.look(query)
        yield EndedRun(query, Path(checkpoint))
        query.release()
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
