"""The shares that results are made of, collected in the driver; and which results need none."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from afspark.cluster.cluster import Cluster
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.told_bounds import with_lost_items
from afspark.errors import UsageError
from afspark.model.operator import Operator, Share
from afspark.model.states import StateSpec
from afspark.numbers import Batch
from afspark.protocol.parcels import open_parts
from afspark.task.result_reading import SPAN, ReadCells, current_cells, kept_windows, packed_cells


def is_apart(run: OperatorRun) -> bool:
    """Whether each key of a lone table is with one worker only."""
    (spec,) = run.node.operator.states().values()
    return run.node.keyed and spec.disjoint


def row_schema(operator: Operator) -> pa.Schema:
    """The columns of result rows; UsageError if the operator has several states."""
    specs: list[StateSpec] = list(operator.states().values())
    if len(specs) != 1:
        raise UsageError(
            f"{type(operator).__name__} has {len(specs)} states, so the rows of a batch are not defined.",
            remedy="Use outputMode('append') for the items it sends, or 'complete' for its results.",
        )
    return operator.rows(pa.RecordBatch.from_pylist([], schema=specs[0].pairs_schema)).schema


def cells_of_run(run: OperatorRun) -> ReadCells:
    """Reads what results show now: with windows what is open, with a decaying state its newest tick."""
    return partial(current_cells, run.residents, run.node.operator, run.latest_tick, run.first_needed)


def closes_windows(run: OperatorRun) -> bool:
    """Whether the batch at work closes windows of the operator."""
    return any(step.own and not step.punctuation.last for step in run.group.punctuation_plan)


def current_shares(cluster: Cluster, run: OperatorRun) -> list[Share]:
    """Every worker's share of the state now."""
    budget = run.group.budget
    return [
        Share(
            worker=worker,
            cells=dict(open_parts(data)),
            missing=with_lost_items(
                run, worker, budget.missing_now(run.group.member(worker).counted_failures, run.latest_tick)
            ),
        )
        for worker, data in cluster.run_on(run.homes, partial(packed_cells, cells_of_run(run)))
    ]


def window_tables(cluster: Cluster, run: OperatorRun, batch: Batch) -> Iterator[pa.Table]:
    """For each window that ``batch`` closed, what the operator makes of the workers' shares, with the window's span."""
    kept = cluster.run_on(run.homes, partial(kept_windows, run.residents, batch))
    collected = [(worker, _by_window(data)) for worker, data in kept]
    for window, start, end in sorted({one for _, windows in collected for one in windows}):
        cells = [(worker, windows.get((window, start, end), {})) for worker, windows in collected]
        yield _with_span(run.node.operator.results(_window_shares(run, cells, window)), start, end)


def _by_window(data: bytes) -> dict[tuple[int, float, float], dict[str, pa.RecordBatch]]:
    """The cells of a worker's states, by window."""
    windows: dict[tuple[int, float, float], dict[str, pa.RecordBatch]] = {}
    for (window, start, end, state), cells in open_parts(data):
        windows.setdefault((window, start, end), {})[state] = cells
    return windows


def _window_shares(
    run: OperatorRun, collected: list[tuple[int, dict[str, pa.RecordBatch]]], window: int
) -> list[Share]:
    budget = run.group.budget
    return [
        Share(
            worker=worker,
            cells=cells,
            missing=with_lost_items(
                run, worker, budget.window_missing(run.group.member(worker).counted_failures, window)
            ),
        )
        for worker, cells in collected
    ]


def _with_span(table: pa.Table, start: float, end: float) -> pa.Table:
    for position, (name, edge) in enumerate(zip(SPAN.names, (start, end), strict=True)):
        table = table.add_column(position, name, pa.repeat(pa.scalar(float(edge)), len(table)))
    return table
