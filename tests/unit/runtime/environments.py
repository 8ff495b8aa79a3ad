"""Where tasks of tests run: on a host of that name, with the one worker's state in a given place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from afspark.clock import SystemClock
from afspark.cluster.local.local_environment import LocalEnvironment
from afspark.model.operator import Operator
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident import SegmentAddress
from afspark.task.feed import Feed
from afspark.task.worker import serve

Probe = Callable[[FaultPhase], None]


@dataclass(frozen=True, kw_only=True)
class At(LocalEnvironment):
    """``probed`` is told of every moment at which a failure can happen."""

    place: SegmentAddress
    probed: Probe

    def address(self, config: OperatorConfig, worker: int) -> SegmentAddress:
        return self.place

    def probe(self, config: OperatorConfig, worker: int, batch: int, phase: FaultPhase) -> None:
        self.probed(phase)


def attend(
    config: OperatorConfig,
    request: TaskRequest,
    operator: Operator,
    feed: Feed,
    address: SegmentAddress,
    host: str,
    probe: Probe,
) -> TaskReport:
    """What the task of a worker whose state is at ``address`` reports."""
    return serve(At(name=host, place=address, probed=probe), config, request, operator, feed)


class LaneClock(SystemClock):
    """A second passes whenever a lane was found empty."""

    def __init__(self, lane: Any) -> None:
        self._lane = lane

    def monotonic(self) -> float:
        return float(self._lane.empty)
