"""Gives a model server the model as the global operator has it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from afspark.errors import SegmentError
from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.exchange_messages import ExchangeFailed
from afspark.model.operator import Operator
from afspark.model.training import Cells
from afspark.numbers import Batch
from afspark.resident.residents import Residents, state_of
from afspark.task.result_reading import current_cells
from afspark.task.task_environment import TaskEnvironment

#: The state of the global operator that is its model.
MODEL = "model"


@dataclass(frozen=True, kw_only=True)
class ModelDestination:
    """The server of a shard, and how it calls the model as it was after ``version``."""

    shard: int
    size: int
    address: str
    secret: str
    base: str
    version: Batch


def load_model(
    residents: Residents,
    operator: Operator,
    destination: ModelDestination,
    environment: TaskEnvironment,
    _: int,
) -> list[bool]:
    """Whether the server has the model of a shard now: not if the worker's state of that version is not here."""
    shard = destination.shard
    try:
        if state_of(environment, residents, shard).found().version != destination.version:
            return [False]
        found = current_cells(residents, operator, None, None, environment, shard)[MODEL]
        cells = Cells(found.column("index").to_numpy().astype("uint32"), found.column("value").to_numpy())
        with contextlib.closing(ServerCalls(destination.address, destination.secret)) as calls:
            calls.load(destination.base, cells, destination.size)
    except (SegmentError, ExchangeFailed):
        return [False]
    return [True]
