"""What a worker keeps for others, read where it lives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from afspark.errors import SegmentError
from afspark.numbers import Batch, Incarnation
from afspark.protocol.operator_config import OperatorConfig
from afspark.resident.segment import LOCK_SECONDS
from afspark.resident.storage import StateHost, StateStorage


@dataclass(frozen=True)
class Residents:
    """The workers of an operator as the driver knows them now: a state of an older incarnation is a dead one."""

    config: OperatorConfig
    #: by worker
    incarnations: Mapping[int, Incarnation]


def state_of(here: StateHost, residents: Residents, worker: int) -> StateStorage:
    """The worker's state on this host; ``SegmentError`` if there is none, or one that was declared lost."""
    state = here.address(residents.config, worker).open()
    if state is None or state.found().incarnation != residents.incarnations[worker]:
        raise SegmentError(f"Worker {worker} has no state on {here.host}.", worker=worker, host=here.host)
    return state


def kept_by(here: StateHost, residents: Residents, worker: int, batch: Batch, port: str) -> bytes | memoryview:
    """What the worker's ``batch`` keeps on ``port``; empty if nothing."""
    state = state_of(here, residents, worker)
    with state.lock(LOCK_SECONDS):
        return state.kept(batch, port) or b""
