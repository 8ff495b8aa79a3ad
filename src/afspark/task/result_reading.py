"""What results are made of, read on the hosts where workers live: rows, sent items, closed windows, cells of states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from afspark.model.operator import Operator
from afspark.numbers import Batch
from afspark.protocol.parcels import open_packets, open_parts, pack_parts
from afspark.protocol.ports import WINDOWS
from afspark.resident.residents import Residents, kept_by, state_of
from afspark.resident.segment import LOCK_SECONDS
from afspark.task.pane_states import PaneStates, merged
from afspark.task.task_environment import TaskEnvironment

SPAN = pa.schema([("window_start", pa.float64()), ("window_end", pa.float64())])

#: Reads the cells of a worker's states, by name.
ReadCells = Callable[[TaskEnvironment, int], dict[str, pa.RecordBatch]]

#: Reads the rows of a worker.
ReadRows = Callable[[TaskEnvironment, int], Iterable[pa.RecordBatch]]


def read_slots(
    read: ReadRows, environment: TaskEnvironment, slots: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What ``read`` finds of the workers whose numbers are in the slots."""
    for slot in slots:
        for worker in slot.column(0).to_pylist():
            yield from read(environment, worker)


def read_kept(
    residents: Residents, batch: Batch, port: str, environment: TaskEnvironment, worker: int
) -> list[pa.RecordBatch]:
    """What a worker's batch keeps on a port."""
    return [packet.items for packet in open_packets(kept_by(environment, residents, worker, batch, port))]


def read_windows(
    residents: Residents, operator: Operator, batch: Batch, environment: TaskEnvironment, worker: int
) -> Iterator[pa.RecordBatch]:
    """The rows of the windows that a worker's batch has closed, with their spans."""
    for (_, start, end, _), cells in open_parts(kept_by(environment, residents, worker, batch, WINDOWS)):
        rows = operator.rows(cells)
        spans = [pa.repeat(pa.scalar(float(edge)), rows.num_rows) for edge in (start, end)]
        yield pa.record_batch([*spans, *rows.columns], names=[*SPAN.names, *rows.schema.names])


def kept_windows(
    residents: Residents, batch: Batch, environment: TaskEnvironment, worker: int
) -> list[tuple[int, bytes]]:
    """A worker's number and the cells of the windows that its batch has closed, packed."""
    return [(worker, bytes(kept_by(environment, residents, worker, batch, WINDOWS)))]


def read_table(operator: Operator, read: ReadCells, environment: TaskEnvironment, worker: int) -> list[pa.RecordBatch]:
    """The rows of the states that ``read`` finds."""
    return [operator.rows(cells) for cells in read(environment, worker).values()]


def packed_cells(read: ReadCells, environment: TaskEnvironment, worker: int) -> list[tuple[int, bytes]]:
    """A worker's number and what ``read`` finds, packed."""
    return [(worker, pack_parts(list(read(environment, worker).items())))]


def current_cells(
    residents: Residents,
    operator: Operator,
    tick: int | None,
    first: int | None,
    environment: TaskEnvironment,
    worker: int,
) -> dict[str, pa.RecordBatch]:
    """The cells of a worker's states now. ``tick``: of a decaying window; ``first``: the first pane that is open."""
    home, specs = state_of(environment, residents, worker), operator.states()
    with home.lock(LOCK_SECONDS):
        window = residents.config.window
        panes = PaneStates.under(window, home.columns, specs)
        # A pane stays until the batch that closed it is committed; results are of what is still open.
        open_panes = [panes.of(pane) for pane in panes if pane is None or first is None or pane >= first]
        if window is None:
            states: Any = panes.of(None)
        else:
            states = merged(specs, open_panes) if window.has_panes else panes.at(tick)
        return {name: state.export() for name, state in states.items()}
