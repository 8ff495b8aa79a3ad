"""Results as Spark DataFrames: rows are read on the workers' hosts when Spark runs them, as often as it likes."""

from __future__ import annotations

from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from afspark.api.results import Results
from afspark.cluster.spark.anchors import anchor_frame
from afspark.cluster.spark.spark_cluster import SparkCluster
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.told_bounds import told
from afspark.task.result_reading import SPAN, ReadRows, read_slots


class FrameResults(Results[DataFrame]):
    _cluster: SparkCluster

    def _of_workers(self, run: OperatorRun, read: ReadRows, schema: pa.Schema) -> DataFrame:
        task = partial(read_slots, read, self._cluster.environment)
        return anchor_frame(self._cluster.session, run.homes).mapInArrow(task, from_arrow_schema(schema))

    def _added_up(self, run: OperatorRun, rows: DataFrame, schema: pa.Schema) -> DataFrame:
        *keys, value = schema.names
        # Partitioned here, the aggregation needs no shuffle of its own into Spark's default of 200 partitions.
        return rows.repartition(len(run.homes), *keys).groupBy(*keys).agg(F.sum(value).alias(value))

    def _of_table(self, table: pa.Table) -> DataFrame:
        return self._cluster.session.createDataFrame(table)


def with_bounds(frame: DataFrame, run: OperatorRun) -> DataFrame:
    """The rows with the bound of their operator (and window): column ``bound``, or one per state."""
    names = list(run.group.budget.states)
    columns = {name: "bound" if len(names) == 1 else f"bound_{name}" for name in names}
    kind, start = run.node.window, SPAN.names[0]
    if kind is None or start not in frame.columns:
        bounds = told(run)
        return frame.withColumns({columns[name]: F.lit(float(bounds[name])) for name in names})
    closings = [step.punctuation for step in run.group.punctuation_plan if step.own and not step.punctuation.last]
    by_window = {float(one.start): told(run, one.window) for one in closings}
    for name, column in columns.items():
        pairs = [(F.lit(begin), F.lit(float(bounds[name]))) for begin, bounds in by_window.items()]
        frame = frame.withColumn(column, F.create_map(*chain.from_iterable(pairs))[F.col(start)])
    return frame
