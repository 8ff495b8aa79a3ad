"""Results as Arrow tables in the driver, for queries without Spark."""

from __future__ import annotations

import pyarrow as pa

from afspark.api.results import Results
from afspark.coordinator.operator_run import OperatorRun
from afspark.task.result_reading import ReadRows


class ArrowResults(Results[pa.Table]):
    def _of_workers(self, run: OperatorRun, read: ReadRows, schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches(self._cluster.run_on(run.homes, read), schema)

    def _added_up(self, run: OperatorRun, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        *keys, value = schema.names
        return rows.group_by(keys).aggregate([(value, "sum")]).rename_columns([*keys, value])

    def _of_table(self, table: pa.Table) -> pa.Table:
        return table
