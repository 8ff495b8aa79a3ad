"""Loads an operator where one of its workers may have to live next, and keeps it loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark import cloudpickle

from afspark.model.operator import Operator
from afspark.model.states import HeapColumns
from afspark.protocol.operator_config import OperatorConfig
from afspark.task.task_environment import TaskEnvironment


def deploy(
    places: Sequence[tuple[OperatorConfig, int, str]], environment: TaskEnvironment, number: int
) -> Iterator[tuple[str, int]]:
    """The operator's name and the worker, once its code is loaded at its place and its static data is built."""
    config, worker, host = places[number]
    if environment.host != host:
        return
    operator: Operator = cloudpickle.loads(config.pristine)
    operator.prepare()
    operator.combiner()
    for name, spec in operator.states().items():
        # Opened once on the heap: its code and kernels are there from now on.
        state = spec.open(HeapColumns(), name)
        state.begin()
        state.update_drift()
        state.rollback()
    yield config.operator_name, worker
