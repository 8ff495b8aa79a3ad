"""A look at resident state that leaves no trace: private copies of its pages, under the segment's own lock."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from afspark.errors import AfsparkError, SegmentBusy
from afspark.model.state_label import Pane, StateLabel
from afspark.model.states import HeapColumns, StateSpec
from afspark.numbers import Batch, Incarnation
from afspark.protocol.lifecycle import Present
from afspark.resident.file_lock import FileLock
from afspark.resident.header import HEADER, examine
from afspark.resident.memory_map import PRIVATE, map_file

PEEK_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class StateView:
    """One resident state (of one pane). Without ``cells`` where its kind is not known here."""

    state: str
    pane: Pane
    bytes: int
    cells: int | None = None
    divergence: float | None = None
    largest: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Peek:
    """A segment at one moment. ``trouble`` says why its states could not be read."""

    version: Batch
    marked: bool
    incarnation: Incarnation
    bytes: int = 0
    states: tuple[StateView, ...] = ()
    trouble: str = ""


class PrivateColumns(HeapColumns):
    """The columns of a segment, mapped copy-on-write: whatever is done to them stays in this process."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        for path in directory.glob("*@*"):
            name, _, dtype = path.name.rpartition("@")
            with path.open("rb") as stream:
                array = map_file(stream.fileno(), os.fstat(stream.fileno()).st_size, PRIVATE, path)
            self._arrays[unquote(name)] = array.view(np.dtype(dtype))


def peek(
    directory: Path,
    specs: Mapping[str, StateSpec],
    *,
    committed: int = -1,
    largest: int = 0,
    timeout_seconds: float = PEEK_SECONDS,
) -> Peek | None:
    """The segment in ``directory`` as of its version; None if there is none.

    In the private copy only, a batch that a dead process left half applied is taken back, and backups of a batch
    up to ``committed`` count as durable, although the worker hears of it only with its next request.
    """
    try:
        file = os.open(directory / HEADER, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    lock = FileLock(file, directory)
    try:
        lock.acquire(timeout_seconds)
        found = examine(directory)
        if not isinstance(found, Present):
            return None
        try:
            columns = PrivateColumns(directory / "columns")
            views = _views(columns, specs, found=found, committed=committed, largest=largest)
        except (AfsparkError, OSError, ValueError, TypeError) as error:
            return _outside(found, f"unreadable: {error}")
        if not isinstance(examine(directory), Present):
            # Some of its files may have been gone before they were read.
            return None
        return Peek(
            version=found.version,
            marked=found.marked,
            incarnation=found.incarnation,
            bytes=sum(view.bytes for view in views),
            states=tuple(views),
        )
    except SegmentBusy:
        found = examine(directory)
        return _outside(found, "busy") if isinstance(found, Present) else None
    finally:
        lock.close()


def _outside(found: Present, trouble: str) -> Peek:
    return Peek(version=found.version, marked=found.marked, incarnation=found.incarnation, trouble=trouble)


def _views(
    columns: HeapColumns, specs: Mapping[str, StateSpec], *, found: Present, committed: int, largest: int
) -> list[StateView]:
    sizes: dict[StateLabel, int] = {}
    for column, array in columns.arrays().items():
        label = StateLabel.of_column(column)
        if label is not None:
            sizes[label] = sizes.get(label, 0) + array.nbytes
    views = []
    for label, size in sorted(sizes.items(), key=_by_pane):
        spec = specs.get(label.state)
        if spec is None:
            views.append(StateView(state=label.state, pane=label.pane, bytes=size))
            continue
        state = spec.open(columns, label.text())
        if found.marked:
            state.rollback()
        elif found.version <= committed:
            state.acknowledge()
        views.append(
            StateView(
                state=label.state,
                pane=label.pane,
                bytes=size,
                cells=state.size,
                divergence=state.divergence(),
                largest=_largest(state.export(), largest) if largest else (),
            )
        )
    return views


def _largest(cells: pa.RecordBatch, count: int) -> tuple[dict[str, Any], ...]:
    """The cells with the greatest values, or the first ones where cells have no number."""
    if "value" in cells.schema.names and pa.types.is_primitive(cells.schema.field("value").type):
        values = np.abs(cells.column("value").to_numpy(zero_copy_only=False))
        cells = cells.take(pa.array(np.argsort(-values, kind="stable")[:count]))
    return tuple(cells.slice(0, count).to_pylist())


def _by_pane(item: tuple[StateLabel, int]) -> tuple[int, str]:
    label, _ = item
    return -1 if label.pane is None else label.pane, label.state
