"""A batch of a DataFrame where there is no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class LocalFrame:
    """Arrow batches by partition, which the tasks of a stage share among them."""

    partitions: Sequence[Sequence[pa.RecordBatch]]
