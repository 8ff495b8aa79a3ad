"""Gives a model server the model as the global operator has it."""

from __future__ import annotations

from afspark.errors import SegmentError
from afspark.exchange.driver_calls import ServerCalls
from afspark.model.operator import Operator
from afspark.model.training import Cells
from afspark.numbers import Batch
from afspark.resident.residents import Residents, state_of
from afspark.task.result_reading import current_cells
from afspark.task.task_environment import TaskEnvironment

#: The state of the global operator that is its model.
MODEL = "model"


def load_model(
    residents: Residents,
    operator: Operator,
    shard: int,
    address: str,
    secret: str,
    base: str,
    size: int,
    version: Batch,
    environment: TaskEnvironment,
    _: int,
) -> list[bool]:
    """Whether the server has the model of a shard now: not if the worker's state of ``version`` is not here."""
    try:
        if state_of(environment, residents, shard).found().version != version:
            return [False]
        found = current_cells(residents, operator, None, None, environment, shard)[MODEL]
    except SegmentError:
        return [False]
    cells = Cells(found.column("index").to_numpy().astype("uint32"), found.column("value").to_numpy())
    ServerCalls(address, secret).load(base, cells, size)
    return [True]
