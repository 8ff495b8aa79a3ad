"""Endless supplies of items with labels: synthetic, of the shape of the data sets that the papers learn from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import Array
from afspark.sources.chunks import NumberedChunk
from afspark.sources.source import EvenPlanner, LogStore, Planner, Source

CLICK_FEATURES, HIGGS_FEATURES = 11, 28
CLICKS = pa.schema(
    [
        pa.field("label", pa.int8(), nullable=False),
        pa.field("features", pa.list_(pa.int32(), CLICK_FEATURES), nullable=False),
    ]
)
HIGGS = pa.schema(
    [
        pa.field("label", pa.int8(), nullable=False),
        pa.field("features", pa.list_(pa.float32(), HIGGS_FEATURES), nullable=False),
    ]
)
CLICK_BYTES, HIGGS_BYTES = 1 + 4 * CLICK_FEATURES, 1 + 4 * HIGGS_FEATURES
"""What an item weighs in a batch."""

_CHUNK_ROWS = 1 << 15
_NATURE = -2


@dataclass(frozen=True)
class Clicks(Source, kind="clicks"):
    """``rows`` generated clicks on advertisements: ``label`` (by seed, a third to a half are 1) and ``features``, a
    list of eleven categorical values with skew, the largest of ``values`` different ones. Shaped like KDD Cup 2012,
    track 2, but synthetic: labels follow a hidden linear model, and a share ``noise`` of them is turned round, so that
    no predictor is right more often than 1 - noise. A chunk depends only on ``seed`` and its number.
    """

    rows: int
    seed: int = 0
    values: int = 1_000_000
    noise: float = 0.05

    def __post_init__(self) -> None:
        if self.rows < 0 or not 1 <= self.values <= 1_000_000 or not 0 <= self.noise <= 0.5:
            raise UsageError(
                f"{self} cannot be generated.", remedy="Needs rows >= 0, 1 to 1 million values, noise of 0 to 0.5."
            )

    def schema(self) -> pa.Schema:
        return CLICKS

    def planner(self, log: LogStore) -> Planner:
        return EvenPlanner(self.rows, _CHUNK_ROWS, CLICK_BYTES)

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        # Not before: whoever only plans needs no compiled kernels.
        from afspark.model.kernels.generate import block_key
        from afspark.model.kernels.labelled import CARDINALITIES, fill_clicks

        labels = np.empty(chunk.units, np.int8)
        values = np.empty((chunk.units, CLICK_FEATURES), np.int32)
        many = np.minimum(CARDINALITIES, self.values)
        fill_clicks(block_key(self.seed, chunk.index), block_key(self.seed, _NATURE), many, self.noise, labels, values)
        yield _rows(labels, values, CLICKS)


@dataclass(frozen=True)
class Higgs(Source, kind="higgs"):
    """``rows`` generated collisions: ``label`` (53 % signals) and ``features``, a list of 28 numbers. Shaped like the
    HIGGS data set, but synthetic: the label shifts the means of the features a little, and they overlap so far that
    no predictor is right much more often than two times in three. A chunk depends only on ``seed`` and its number.
    """

    rows: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rows < 0:
            raise UsageError(f"{self} cannot be generated.", remedy="Needs rows >= 0.")

    def schema(self) -> pa.Schema:
        return HIGGS

    def planner(self, log: LogStore) -> Planner:
        return EvenPlanner(self.rows, _CHUNK_ROWS, HIGGS_BYTES)

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        from afspark.model.kernels.generate import block_key
        from afspark.model.kernels.labelled import fill_higgs

        labels = np.empty(chunk.units, np.int8)
        values = np.empty((chunk.units, HIGGS_FEATURES), np.float32)
        fill_higgs(block_key(self.seed, chunk.index), block_key(self.seed, _NATURE), labels, values)
        yield _rows(labels, values, HIGGS)


def _rows(labels: Array, values: Array, schema: pa.Schema) -> pa.RecordBatch:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    return pa.record_batch([pa.array(labels), lists.cast(schema.field("features").type)], schema=schema)
