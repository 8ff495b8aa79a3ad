"""Results as Spark DataFrames: rows a batch changed, items it sent, windows it closed, and merged state on demand.

Nothing is collected in the driver on the way to a sink, except the shares of operators that merge them themselves:
the rows are read on the workers' hosts when Spark runs the DataFrame, as often as it likes.
"""

from __future__ import annotations

from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from afspark.api.result_shares import (
    cells_of_run,
    closes_windows,
    current_shares,
    is_apart,
    is_lone_table,
    row_schema,
    window_tables,
)
from afspark.cluster.spark.anchors import anchor_frame
from afspark.cluster.spark.spark_cluster import SparkCluster
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.told_bounds import told
from afspark.numbers import Batch
from afspark.protocol.parcels import open_schema
from afspark.protocol.ports import ALL, ROWS
from afspark.task.result_reading import SPAN, ReadRows, read_kept, read_slots, read_table, read_windows


def changed_rows(cluster: SparkCluster, run: OperatorRun, batch: Batch) -> DataFrame:
    """The rows that ``batch`` changed, kept beside the state of each worker."""
    return _on_workers(cluster, run, partial(read_kept, run.residents, batch, ROWS), row_schema(run.node.operator))


def sent_items(cluster: SparkCluster, run: OperatorRun, batch: Batch) -> DataFrame | None:
    """The items that ``batch`` sent; None if it sent none, because nothing is known of their columns then."""
    schema = next((open_schema(report.columns) for report in run.reports if report.columns), None)
    if schema is None:
        return None
    return _on_workers(cluster, run, partial(read_kept, run.residents, batch, ALL), schema)


def closed_windows(cluster: SparkCluster, run: OperatorRun, batch: Batch) -> DataFrame | None:
    """Results of the windows that ``batch`` closed, with their spans; None if it closed none."""
    if not closes_windows(run):
        return None
    operator = run.node.operator
    if is_lone_table(operator):
        schema = pa.schema([*SPAN, *row_schema(operator)])
        rows = _on_workers(cluster, run, partial(read_windows, run.residents, operator, batch), schema)
        return rows if is_apart(run) else _summed(rows, schema, len(run.homes))
    tables = list(window_tables(cluster, run, batch))
    return cluster.session.createDataFrame(pa.concat_tables(tables)) if tables else None


def current_results(cluster: SparkCluster, run: OperatorRun) -> DataFrame:
    """The operator's results now: a lone table is merged by Spark, everything else by ``operator.results``.

    With windows: of what is open, all panes together.
    """
    operator = run.node.operator
    if is_lone_table(operator):
        schema = row_schema(operator)
        rows = _on_workers(cluster, run, partial(read_table, operator, cells_of_run(run)), schema)
        return rows if is_apart(run) else _summed(rows, schema, len(run.homes))
    return cluster.session.createDataFrame(operator.results(current_shares(cluster, run)))


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


def _summed(rows: DataFrame, schema: pa.Schema, partitions: int) -> DataFrame:
    *keys, value = schema.names
    # Partitioned here, the aggregation needs no shuffle of its own into Spark's default of 200 partitions.
    return rows.repartition(partitions, *keys).groupBy(*keys).agg(F.sum(value).alias(value))


def _on_workers(cluster: SparkCluster, run: OperatorRun, read: ReadRows, schema: pa.Schema) -> DataFrame:
    task = partial(read_slots, read, cluster.environment)
    return anchor_frame(cluster.session, run.homes).mapInArrow(task, from_arrow_schema(schema))
