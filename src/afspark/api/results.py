"""Results of operators: rows a batch changed, items it sent, windows it closed, and merged state on demand.

What they are made of is decided here; a subclass gives them their form. Nothing is collected in the driver on the way,
except the shares of operators that merge them themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Generic, TypeVar

import pyarrow as pa

from afspark.api.result_shares import (
    cells_of_run,
    closes_windows,
    current_shares,
    is_apart,
    row_schema,
    window_tables,
)
from afspark.cluster.cluster import Cluster
from afspark.coordinator.operator_run import OperatorRun
from afspark.model.lone_table import is_lone_table
from afspark.numbers import Batch
from afspark.protocol.parcels import open_schema
from afspark.protocol.ports import ALL, ROWS
from afspark.task.result_reading import SPAN, ReadRows, read_kept, read_table, read_windows

Form = TypeVar("Form")


class Results(ABC, Generic[Form]):
    """The results of a query's operators in one form."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def current(self, run: OperatorRun) -> Form:
        """The operator's results now: a lone table is added up by key, all else is merged by ``operator.results``.

        With windows: of what is open, all panes together.
        """
        operator = run.node.operator
        if is_lone_table(operator):
            return self._rows_by_key(run, partial(read_table, operator, cells_of_run(run)), row_schema(operator))
        return self._of_table(operator.results(current_shares(self._cluster, run)))

    def changed_rows(self, run: OperatorRun, batch: Batch) -> Form:
        """The rows that ``batch`` changed, kept beside the state of each worker."""
        return self._of_workers(run, partial(read_kept, run.residents, batch, ROWS), row_schema(run.node.operator))

    def sent_items(self, run: OperatorRun, batch: Batch) -> Form | None:
        """The items that ``batch`` sent; None if it sent none, because nothing is known of their columns then."""
        schema = next((open_schema(report.columns) for report in run.reports if report.columns), None)
        return None if schema is None else self._of_workers(run, partial(read_kept, run.residents, batch, ALL), schema)

    def closed_windows(self, run: OperatorRun, batch: Batch) -> Form | None:
        """Results of the windows that ``batch`` closed, with their spans; None if it closed none."""
        if not closes_windows(run):
            return None
        operator = run.node.operator
        if is_lone_table(operator):
            schema = pa.schema([*SPAN, *row_schema(operator)])
            return self._rows_by_key(run, partial(read_windows, run.residents, operator, batch), schema)
        tables = list(window_tables(self._cluster, run, batch))
        return self._of_table(pa.concat_tables(tables)) if tables else None

    def _rows_by_key(self, run: OperatorRun, read: ReadRows, schema: pa.Schema) -> Form:
        rows = self._of_workers(run, read, schema)
        return rows if is_apart(run) else self._added_up(run, rows, schema)

    @abstractmethod
    def _of_workers(self, run: OperatorRun, read: ReadRows, schema: pa.Schema) -> Form:
        """The rows that all workers read."""

    @abstractmethod
    def _added_up(self, run: OperatorRun, rows: Form, schema: pa.Schema) -> Form:
        """One row for each key: the last column's sum over rows that agree in the others."""

    @abstractmethod
    def _of_table(self, table: pa.Table) -> Form:
        """What the driver has at hand."""
