"""The same model with what plain Structured Streaming offers: `foreachBatch`, a model that is broadcast to the tasks of
a batch, trained there by the same kernels, and averaged in the driver. A batch is an iteration.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import afspark as af
from afspark.bench.streams import MEMORY, batch_seconds
from afspark.bench.training_runs import CHUNK, TrainingData
from afspark.model.kernels.plain_arrays import Array
from afspark.model.learner import Learner
from afspark.sources import Source
from afspark.sources.chunks import NumberedChunk

_LEARNED = "cells binary, changes binary, items long, loss double"


@dataclass
class DriverModel:
    """The model in the driver. ``folder``: where it is made durable with every batch; None: nowhere."""

    model: Array
    folder: Path | None
    items: int = 0
    loss: float = 0.0

    def merge(self, learned: pa.Table) -> None:
        """Adds what tasks have learned, each by its part of the items."""
        total = sum(learned["items"].to_pylist())
        for row in learned.to_pylist():
            cells = np.frombuffer(row["cells"], np.uint32)
            self.model[cells] += row["items"] / total * np.frombuffer(row["changes"])
            self.loss += row["loss"]
        self.items += total

    def save(self, batch: int) -> None:
        """The model after a batch, so that whoever starts again neither repeats nor skips one."""
        if self.folder is None:
            return
        place = self.folder / "model.npz"
        with (self.folder / "model.part").open("wb") as file:
            np.savez(file, model=self.model, batch=batch, items=self.items)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.folder / "model.part", place)


def native_training(
    spark: SparkSession, data: TrainingData, *, batches: int, batch: int, durable: bool
) -> dict[str, float]:
    """One run over so many batches of ``batch`` items, a multiple of the items of a chunk. ``durable``: Spark's
    checkpoint is on disk, and the model is saved there with every batch; else nothing outlasts the machine's memory.
    """
    rows = batches * batch
    source, learner = data.make(rows), af.LogisticLearner()
    learner.check(source.schema())
    with tempfile.TemporaryDirectory(prefix="native-bench-") as folder:
        numbers = _numbered(Path(folder, "chunks"), rows // CHUNK)
        kept = Path(folder, "model")
        kept.mkdir()
        found = DriverModel(np.zeros(learner.cells), kept if durable else None)
        in_memory = not durable and MEMORY.is_dir()
        checkpoint = tempfile.mkdtemp(prefix="native-bench-", dir=MEMORY if in_memory else None)
        try:
            query = (
                spark.readStream.option("maxFilesPerTrigger", batch // CHUNK)
                .text(str(numbers))
                .writeStream.foreachBatch(partial(_learn_batch, source, learner, found))
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            taken = batch_seconds(query)
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)
    return {
        "items_per_second": batch * len(taken) / sum(taken),
        "batch": float(np.median(taken)),
        "log_loss": found.loss / found.items,
    }


def _numbered(folder: Path, count: int) -> Path:
    """A file for every chunk with its number, in the order in which Spark reads them: there is nothing to decode."""
    folder.mkdir()
    for number in range(count):
        path = folder / f"{number:06}.txt"
        path.write_text(f"{number}\n")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return folder


def _learn_batch(source: Source, learner: Learner, found: DriverModel, chunks: DataFrame, batch: int) -> None:
    shared = chunks.sparkSession.sparkContext.broadcast(found.model)
    # How many tasks there are is Spark's choice; with two cores two.
    task = partial(_learn_share, source, learner, shared, found.items // 2)
    learned = chunks.mapInArrow(task, _LEARNED).toArrow()
    found.merge(learned)
    found.save(batch)
    shared.destroy()


def _learn_share(
    source: Source, learner: Learner, shared: Any, seen: int, given: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What the chunks of a task teach, one after the other."""
    numbers = [int(text) for chunk in given for text in chunk.column(0).to_pylist()]
    items = [read for number in numbers for read in source.read(NumberedChunk(index=number, units=CHUNK, bytes=0))]
    if not items:
        return
    learned = learner.learn(shared.value, pa.concat_batches(items), seen)
    yield pa.record_batch(
        {
            "cells": pa.array([np.ascontiguousarray(learned.change.index, np.uint32).tobytes()], pa.binary()),
            "changes": pa.array([np.ascontiguousarray(learned.change.values, float).tobytes()], pa.binary()),
            "items": pa.array([learned.facts.items], pa.int64()),
            "loss": pa.array([learned.facts.loss], pa.float64()),
        }
    )
