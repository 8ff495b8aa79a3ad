"""Results as Spark DataFrames: rows a batch changed, and the merged state on demand.

Nothing is collected in the driver on the way to a sink: the rows are read on the workers' hosts when Spark runs
the DataFrame, as often as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from afspark.errors import SegmentError
from afspark.model.operator import Operator, Share
from afspark.model.states import HashTable
from afspark.runtime.exchange import decode, encode
from afspark.runtime.host import spark_host
from afspark.runtime.orders import Mission
from afspark.runtime.placement import anchor, anchor_frame
from afspark.runtime.roster import Member
from afspark.runtime.segment import Segment, SegmentRoot, process_cache

LOCK_SECONDS = 10.0


def changed_rows(
    spark: SparkSession, mission: Mission, operator: Operator, homes: Sequence[str], batch: int
) -> DataFrame:
    """The rows that ``batch`` changed, kept beside the state of each worker."""
    return _on_workers(spark, homes, partial(_read_outputs, mission, batch), _row_schema(operator))


def current_results(
    spark: SparkSession, mission: Mission, operator: Operator, members: Sequence[Member], *, keyed: bool
) -> DataFrame:
    """The operator's results now: a lone table is merged by Spark, everything else by ``operator.results``."""
    homes = [member.home for member in members]
    if _is_lone_table(operator):
        schema = _row_schema(operator)
        rows = _on_workers(spark, homes, partial(_read_table, mission, operator), schema)
        if keyed:
            return rows
        *keys, value = schema.names
        # Partitioned here, the aggregation needs no shuffle of its own into Spark's default of 200 partitions.
        return rows.repartition(len(homes), *keys).groupBy(*keys).agg(F.sum(value).alias(value))
    collected = anchor(spark.sparkContext, homes).map(partial(_export, mission, operator)).collect()
    shares = [
        Share(
            worker=worker,
            cells={name: decode(data)[0] for name, data in cells.items()},
            missing=members[worker].missing,
        )
        for worker, cells in collected
    ]
    return spark.createDataFrame(operator.results(shares))


def _is_lone_table(operator: Operator) -> bool:
    specs = list(operator.states().values())
    return len(specs) == 1 and isinstance(specs[0], HashTable) and type(operator).results is Operator.results


def _row_schema(operator: Operator) -> pa.Schema:
    (spec,) = operator.states().values()
    return operator.rows(pa.RecordBatch.from_pylist([], schema=spec.pairs_schema)).schema


def _on_workers(spark: SparkSession, homes: Sequence[str], read: Any, schema: pa.Schema) -> DataFrame:
    return anchor_frame(spark, homes).mapInArrow(partial(_each_worker, read), from_arrow_schema(schema))


def _each_worker(read: Any, slots: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for slot in slots:
        for worker in slot.column(0).to_pylist():
            yield from read(worker)


def _read_outputs(mission: Mission, batch: int, worker: int) -> list[pa.RecordBatch]:
    segment = _segment(mission, worker)
    with segment.lock(LOCK_SECONDS):
        return decode(segment.outputs(batch) or b"")


def _read_table(mission: Mission, operator: Operator, worker: int) -> list[pa.RecordBatch]:
    return [operator.rows(cells) for cells in _cells(mission, operator, worker).values()]


def _export(mission: Mission, operator: Operator, worker: int) -> tuple[int, dict[str, bytes]]:
    return worker, {name: encode([cells]) for name, cells in _cells(mission, operator, worker).items()}


def _cells(mission: Mission, operator: Operator, worker: int) -> dict[str, pa.RecordBatch]:
    segment = _segment(mission, worker)
    with segment.lock(LOCK_SECONDS):
        return {name: spec.open(segment.columns, name).export() for name, spec in operator.states().items()}


def _segment(mission: Mission, worker: int) -> Segment:
    host = spark_host(mission.driver_host)
    directory = SegmentRoot(mission.segments, host).directory(mission.query_id, mission.operator_name, worker)
    segment = process_cache().get(directory)
    if segment is None:
        raise SegmentError(f"Worker {worker} has no state on {host}.", worker=worker, host=host)
    return segment
