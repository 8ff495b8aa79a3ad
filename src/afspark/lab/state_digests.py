"""Digests of states, by which a trial is known to go on as the golden run does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from afspark.cluster.cluster import Cluster
from afspark.coordinator.operator_run import OperatorRun
from afspark.model.states import StateSpec
from afspark.protocol.parcels import open_parts
from afspark.resident.residents import Residents, state_of
from afspark.resident.segment import LOCK_SECONDS
from afspark.task.pane_states import PaneStates
from afspark.task.result_reading import packed_cells
from afspark.task.task_environment import TaskEnvironment


def state_digest(cluster: Cluster, run: OperatorRun) -> str:
    """A digest of the states of an operator without a window: the same only if they show the same from now on.

    Cells have an order, that of their first appearance, which an operator can see.
    """
    read = partial(_arrangements, run.residents, run.node.operator.states())
    whole = hashlib.blake2b(digest_size=16)
    for worker, data in sorted(cluster.run_on(run.homes, partial(packed_cells, read))):
        for state, cells in sorted(open_parts(data), key=lambda part: part[0]):
            whole.update(f"{worker}/{state}:".encode())
            whole.update(memoryview(cells.serialize()))
    return whole.hexdigest()


def _arrangements(
    residents: Residents, specs: Mapping[str, StateSpec], environment: TaskEnvironment, worker: int
) -> dict[str, pa.RecordBatch]:
    home = state_of(environment, residents, worker)
    with home.lock(LOCK_SECONDS):
        states = PaneStates.under(None, home.columns, specs).of(None)
        return {name: state.arrangement() for name, state in states.items()}
