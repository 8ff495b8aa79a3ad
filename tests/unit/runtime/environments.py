"""Where tasks of tests run: on a host of that name, with the one worker's state in a given place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from afspark.clock import SystemClock
from afspark.cluster.local.local_environment import LocalEnvironment
from afspark.model.operator import Operator
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident import SegmentAddress
from afspark.store import Store
from afspark.task.backup_writes import BackgroundWrite, DoneAtOnce, StartWrite, threaded_write
from afspark.task.feed import Feed
from afspark.task.worker import serve

Probe = Callable[[FaultPhase], None]


@dataclass(frozen=True, kw_only=True)
class At(LocalEnvironment):
    """``probed`` is told of every moment at which a failure can happen; ``writes`` starts what is written meanwhile."""

    place: SegmentAddress
    probed: Probe
    writes: StartWrite

    def address(self, config: OperatorConfig, worker: int) -> SegmentAddress:
        return self.place

    def probe(self, config: OperatorConfig, worker: int, batch: int, phase: FaultPhase) -> None:
        self.probed(phase)

    def start_write(self, store: Store, name: str, data: bytes) -> BackgroundWrite:
        return self.writes(store, name, data)


def written_at_once(store: Store, name: str, data: bytes) -> BackgroundWrite:
    """No thread decides which step is the first to know that a backup is durable."""
    return DoneAtOnce(partial(store.put, name, data))


def attend(
    config: OperatorConfig,
    request: TaskRequest,
    operator: Operator,
    feed: Feed,
    address: SegmentAddress,
    host: str,
    probe: Probe,
    writes: StartWrite = threaded_write,
) -> TaskReport:
    """What the task of a worker whose state is at ``address`` reports."""
    return serve(At(name=host, place=address, probed=probe, writes=writes), config, request, operator, feed)


class LaneClock(SystemClock):
    """A second passes whenever a lane was found empty."""

    def __init__(self, lane: Any) -> None:
        self._lane = lane

    def monotonic(self) -> float:
        return float(self._lane.empty)
