"""Results as Arrow tables in the driver, for queries without Spark; see `results`, which gives DataFrames."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from afspark.api.result_shares import (
    cells_of_run,
    closes_windows,
    current_shares,
    is_apart,
    is_lone_table,
    row_schema,
    window_tables,
)
from afspark.cluster.cluster import Cluster, HostTask
from afspark.coordinator.operator_run import OperatorRun
from afspark.numbers import Batch
from afspark.protocol.parcels import open_schema
from afspark.protocol.ports import ALL, ROWS
from afspark.task.result_reading import SPAN, read_kept, read_table, read_windows


def results_table(cluster: Cluster, run: OperatorRun) -> pa.Table:
    """The operator's results now; with windows those of what is open."""
    operator = run.node.operator
    if not is_lone_table(operator):
        return operator.results(current_shares(cluster, run))
    rows = _collected(cluster, run, partial(read_table, operator, cells_of_run(run)), row_schema(operator))
    return rows if is_apart(run) else _summed(rows)


def rows_table(cluster: Cluster, run: OperatorRun, batch: Batch) -> pa.Table:
    """The rows that ``batch`` changed."""
    return _collected(cluster, run, partial(read_kept, run.residents, batch, ROWS), row_schema(run.node.operator))


def items_table(cluster: Cluster, run: OperatorRun, batch: Batch) -> pa.Table | None:
    """The items that ``batch`` sent; None if it sent none."""
    schema = next((open_schema(report.columns) for report in run.reports if report.columns), None)
    return None if schema is None else _collected(cluster, run, partial(read_kept, run.residents, batch, ALL), schema)


def windows_table(cluster: Cluster, run: OperatorRun, batch: Batch) -> pa.Table | None:
    """Results of the windows that ``batch`` closed, with their spans; None if it closed none."""
    if not closes_windows(run):
        return None
    operator = run.node.operator
    if not is_lone_table(operator):
        tables = list(window_tables(cluster, run, batch))
        return pa.concat_tables(tables) if tables else None
    schema = pa.schema([*SPAN, *row_schema(operator)])
    rows = _collected(cluster, run, partial(read_windows, run.residents, operator, batch), schema)
    return rows if is_apart(run) else _summed(rows)


def _collected(cluster: Cluster, run: OperatorRun, read: HostTask, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(cluster.run_on(run.homes, read), schema)


def _summed(rows: pa.Table) -> pa.Table:
    *keys, value = rows.schema.names
    return rows.group_by(keys).aggregate([(value, "sum")]).rename_columns([*keys, value])
