"""Results as Spark DataFrames: rows a batch changed, items it sent, windows it closed, and merged state on demand.

Nothing is collected in the driver on the way to a sink, except the shares of operators that merge them themselves:
the rows are read on the workers' hosts when Spark runs the DataFrame, as often as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from afspark.cluster.spark.anchors import anchor, anchor_frame
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.told_bounds import with_lost_items
from afspark.errors import UsageError
from afspark.model.operator import Operator, Share
from afspark.model.states import HashTable, StateSpec
from afspark.numbers import Batch
from afspark.protocol.parcels import open_packets, open_parts, open_schema, pack_parts
from afspark.protocol.ports import ALL, ROWS, WINDOWS
from afspark.resident.residents import Residents, kept_by, segment_of
from afspark.resident.segment import LOCK_SECONDS
from afspark.task.pane_states import PaneStates, merged

Read = Callable[[int], Iterable[pa.RecordBatch]]
ReadCells = Callable[[int], dict[str, pa.RecordBatch]]
SPAN = pa.schema([("window_start", pa.float64()), ("window_end", pa.float64())])


def changed_rows(spark: SparkSession, run: OperatorRun, batch: Batch) -> DataFrame:
    """The rows that ``batch`` changed, kept beside the state of each worker."""
    return _on_workers(
        spark,
        run,
        partial(_read_kept, run.residents, batch, ROWS),
        _row_schema(run.node.operator),
    )


def sent_items(spark: SparkSession, run: OperatorRun, batch: Batch) -> DataFrame | None:
    """The items that ``batch`` sent; None if it sent none, because nothing is known of their columns then."""
    schema = next((open_schema(report.columns) for report in run.reports if report.columns), None)
    if schema is None:
        return None
    return _on_workers(spark, run, partial(_read_kept, run.residents, batch, ALL), schema)


def closed_windows(spark: SparkSession, run: OperatorRun, batch: Batch) -> DataFrame | None:
    """Results of the windows that ``batch`` closed, with their spans; None if it closed none."""
    if not any(step.own and not step.punctuation.last for step in run.group.punctuation_plan):
        return None
    operator, residents = run.node.operator, run.residents
    if _is_lone_table(operator):
        schema = pa.schema([*SPAN, *_row_schema(operator)])
        rows = _on_workers(spark, run, partial(_read_windows, residents, operator, batch), schema)
        return rows if _is_apart(run) else _summed(rows, schema, len(run.homes))
    collected = anchor(spark.sparkContext, run.homes).map(partial(_kept_windows, residents, batch)).collect()
    tables = [
        _with_span(operator.results(_window_shares(run, collected, window)), start, end)
        for window, start, end in _windows_in(collected)
    ]
    return spark.createDataFrame(pa.concat_tables(tables)) if tables else None


def current_results(spark: SparkSession, run: OperatorRun) -> DataFrame:
    """The operator's results now: a lone table is merged by Spark, everything else by ``operator.results``.

    With windows: of what is open, all panes together.
    """
    operator = run.node.operator
    if _is_lone_table(operator):
        schema = _row_schema(operator)
        read = partial(_cells, run.residents, operator, run.latest_tick, run.first_needed)
        rows = _on_workers(spark, run, partial(_read_table, operator, read), schema)
        return rows if _is_apart(run) else _summed(rows, schema, len(run.homes))
    return spark.createDataFrame(operator.results(current_shares(spark, run)))


def current_shares(spark: SparkSession, run: OperatorRun) -> list[Share]:
    """Every worker's share of the state now, collected in the driver."""
    read = partial(_cells, run.residents, run.node.operator, run.latest_tick, run.first_needed)
    collected = anchor(spark.sparkContext, run.homes).map(partial(_export, read)).collect()
    budget = run.group.budget
    return [
        Share(
            worker=worker,
            cells=dict(open_parts(data)),
            missing=with_lost_items(
                run,
                worker,
                budget.missing_now(run.group.member(worker).counted_failures, run.latest_tick),
            ),
        )
        for worker, data in collected
    ]


def _summed(rows: DataFrame, schema: pa.Schema, partitions: int) -> DataFrame:
    *keys, value = schema.names
    # Partitioned here, the aggregation needs no shuffle of its own into Spark's default of 200 partitions.
    return rows.repartition(partitions, *keys).groupBy(*keys).agg(F.sum(value).alias(value))


def _is_apart(run: OperatorRun) -> bool:
    """Whether each key of a lone table is with one worker only."""
    (spec,) = run.node.operator.states().values()
    return run.node.keyed and spec.disjoint


def _is_lone_table(operator: Operator) -> bool:
    specs = list(operator.states().values())
    return len(specs) == 1 and isinstance(specs[0], HashTable) and type(operator).results is Operator.results


def _row_schema(operator: Operator) -> pa.Schema:
    specs: list[StateSpec] = list(operator.states().values())
    if len(specs) != 1:
        raise UsageError(
            f"{type(operator).__name__} has {len(specs)} states, so the rows of a batch are not defined.",
            remedy="Use outputMode('append') for the items it sends, or 'complete' for its results.",
        )
    return operator.rows(pa.RecordBatch.from_pylist([], schema=specs[0].pairs_schema)).schema


def _on_workers(spark: SparkSession, run: OperatorRun, read: Read, schema: pa.Schema) -> DataFrame:
    return anchor_frame(spark, run.homes).mapInArrow(partial(_each_worker, read), from_arrow_schema(schema))


def _each_worker(read: Read, slots: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for slot in slots:
        for worker in slot.column(0).to_pylist():
            yield from read(worker)


# --- on the workers' hosts ----------------------------------------------------------------------------------


def _read_kept(residents: Residents, batch: Batch, port: str, worker: int) -> list[pa.RecordBatch]:
    return [packet.items for packet in open_packets(kept_by(residents, worker, batch, port))]


def _read_windows(residents: Residents, operator: Operator, batch: Batch, worker: int) -> Iterator[pa.RecordBatch]:
    for (_, start, end, _), cells in open_parts(kept_by(residents, worker, batch, WINDOWS)):
        rows = operator.rows(cells)
        spans = [pa.repeat(pa.scalar(float(edge)), rows.num_rows) for edge in (start, end)]
        yield pa.record_batch([*spans, *rows.columns], names=[*SPAN.names, *rows.schema.names])


def _kept_windows(residents: Residents, batch: Batch, worker: int) -> tuple[int, bytes]:
    return worker, kept_by(residents, worker, batch, WINDOWS)


def _read_table(operator: Operator, read: ReadCells, worker: int) -> list[pa.RecordBatch]:
    return [operator.rows(cells) for cells in read(worker).values()]


def _export(read: ReadCells, worker: int) -> tuple[int, bytes]:
    return worker, pack_parts(list(read(worker).items()))


def _cells(
    residents: Residents, operator: Operator, tick: int | None, first: int | None, worker: int
) -> dict[str, pa.RecordBatch]:
    segment, specs = segment_of(residents, worker), operator.states()
    with segment.lock(LOCK_SECONDS):
        window = residents.config.window
        panes = PaneStates.under(window, segment.columns, specs)
        # A pane stays until the batch that closed it is committed; results are of what is still open.
        open_panes = [panes.of(pane) for pane in panes if pane is None or first is None or pane >= first]
        if window is None:
            states: Any = panes.of(None)
        else:
            states = merged(specs, open_panes) if window.has_panes else panes.at(tick)
        return {name: state.export() for name, state in states.items()}


# --- in the driver ------------------------------------------------------------------------------------------


def _windows_in(collected: Sequence[tuple[int, bytes]]) -> list[tuple[int, float, float]]:
    found = {(label[0], label[1], label[2]) for _, data in collected for label, _ in open_parts(data)}
    return sorted(found)


def _window_shares(run: OperatorRun, collected: Sequence[tuple[int, bytes]], window: int) -> list[Share]:
    budget = run.group.budget
    return [
        Share(
            worker=worker,
            cells={label[3]: cells for label, cells in open_parts(data) if label[0] == window},
            missing=with_lost_items(
                run, worker, budget.window_missing(run.group.member(worker).counted_failures, window)
            ),
        )
        for worker, data in collected
    ]


def _with_span(table: pa.Table, start: float, end: float) -> pa.Table:
    for position, (name, edge) in enumerate(zip(SPAN.names, (start, end), strict=True)):
        table = table.add_column(position, name, pa.repeat(pa.scalar(float(edge)), len(table)))
    return table
