"""What workers, the driver and a model server say to each other: JSON beside Arrow buffers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np
import pyarrow as pa

from afspark.errors import AfsparkError
from afspark.exchange.exchange_ticket import RoundKey
from afspark.model.kernels.plain_arrays import Array
from afspark.model.training import Cells

#: Names of the actions.
BEGIN, ABANDON, RESULT, EVENTS, PING, END = "begin", "abandon", "result", "events", "ping", "end"

#: What a server is given to answer, besides the time that it waits for others.
ANSWER_SECONDS = 30.0
#: The same where neither a model nor others have to be waited for.
PROMPT_SECONDS = 10.0

#: Cells on their way: one row. Without ``index`` the values are those of all cells of the shard.
CELLS = pa.schema([("index", pa.list_(pa.uint32())), ("value", pa.list_(pa.float64()))])


#: How a worker's report begins that somebody did not come in time, or that another one cannot go on.
REFUSED = "The batch cannot go on"


class Opened(StrEnum):
    """What a server says when it is to open the rounds of a batch."""

    OPEN = "open"
    #: it has not got the model that they begin with
    LACKS_BASE = "lacks base"
    #: they were open, and cannot be completed
    ABANDONED = "abandoned"


class ExchangeFailed(AfsparkError):
    """A batch cannot go on as it is: a model server is not there, or somebody did not come in time."""


@dataclass(frozen=True, kw_only=True)
class _Message:
    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: Any) -> Self:
        return cls(**json.loads(bytes(data)))


@dataclass(frozen=True, kw_only=True)
class Begin(RoundKey, _Message):
    """The driver opens the rounds of a batch. ``base`` names the version of the global state that they begin with."""

    base: str
    workers: list[int]
    #: of each of them; those before are lost
    incarnations: list[int]
    consistency: str
    #: how long anybody waits for others
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CheckIn(RoundKey, _Message):
    """A worker checks in."""

    worker: int
    incarnation: int
    process: int
    secret: str = ""


@dataclass(frozen=True, kw_only=True)
class Leave(RoundKey, _Message):
    """A worker cannot go on, and nobody needs to wait for it."""

    worker: int
    incarnation: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Said(_Message):
    """What a worker says beside the cells of a step; ``steps``: it has made so many, and there are none left."""

    step: int
    items: int = 0
    correct: int = 0
    loss: float = 0.0
    steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class Answered(_Message):
    """What the server says beside cells: which version they make; ``differs``: the step was pushed before, with another
    content, which holds; ``refused``: why the batch cannot go on.
    """

    version: int = 0
    differs: bool = False
    refused: str = ""


def first_line(error: Exception) -> str:
    """What Flight says in its first line; the end of a stream says nothing."""
    return next(iter(str(error).splitlines()), "it has ended the call")


def pack_cells(cells: Cells, size: int) -> pa.RecordBatch:
    """Cells as one row: all values of the shard where that is shorter, if they are all there in order."""
    index, values = cells.index, cells.values
    if len(index) == size and (size == 0 or (index[0] == 0 and np.all(np.diff(index) == 1))):
        index = index[:0]
    parts = (pa.array(index, pa.uint32()), pa.array(values, pa.float64()))
    lists = [pa.ListArray.from_arrays(pa.array([0, len(part)], pa.int32()), part) for part in parts]
    return pa.record_batch(lists, schema=CELLS)


def open_cells(row: pa.RecordBatch) -> Cells:
    """What `pack_cells` has packed."""
    index, values = (_array(row.column(name)[0]) for name in CELLS.names)
    if not len(index) and len(values):
        index = np.arange(len(values), dtype=np.uint32)
    return Cells(index, values)


def _array(found: Any) -> Array:
    result: Array = found.values.to_numpy()
    return result
