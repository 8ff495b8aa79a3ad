"""Clicks with an anomalous stretch, as the trace of KDD Cup 2012 has one: items that miss a feature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from afspark.sources import Clicks
from afspark.sources.chunks import NumberedChunk
from afspark.sources.labelled_rows import CLICK_FEATURES, CLICKS

#: The feature that is missing, one of 200 values; where it is, its value is 0.
MISSING = 4
#: The stretch, in parts of the stream: 40 of 150 million items in the papers.
FIRST, LAST = 0.4, 0.4 + 40 / 150
_CHUNK_ROWS = 1 << 15


@dataclass(frozen=True)
class GappedClicks(Clicks, kind="clicks with a gap"):
    """`Clicks` whose items from ``FIRST`` to ``LAST`` of the stream, in whole chunks, miss a feature; labels are as if
    it were there.
    """

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        place = chunk.index * _CHUNK_ROWS / max(1, self.rows)
        for items in super().read(chunk):
            yield _without(items) if FIRST <= place < LAST else items


def _without(items: pa.RecordBatch) -> pa.RecordBatch:
    values = np.array(items.column("features").flatten()).reshape(-1, CLICK_FEATURES)
    values[:, MISSING] = 0
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), CLICK_FEATURES)
    return pa.record_batch([items.column("label"), lists.cast(CLICKS.field("features").type)], schema=CLICKS)
