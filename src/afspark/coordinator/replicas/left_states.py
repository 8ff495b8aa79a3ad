"""Removes states that lost workers have left on hosts which were away, and are back: nobody goes on from them.

A host that was frozen or cut off comes back with the states that it had, while their workers have gone on elsewhere as
later incarnations. No task of theirs would ever look at those again, and they take memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from afspark.cluster.cluster import Cluster, StageFailed
from afspark.coordinator.operator_run import OperatorRun
from afspark.errors import SegmentError
from afspark.numbers import Incarnation
from afspark.protocol.operator_config import OperatorConfig
from afspark.task.backup_writes import BackgroundWrite
from afspark.task.task_environment import TaskEnvironment

LOG = logging.getLogger("afspark")

#: What could not be removed is tried again after so many seconds: a task from before may be at work on it.
AGAIN_SECONDS = 10.0

#: A worker, the host where it has left a state, and the incarnation before which that is nobody's.
_Place = tuple[OperatorConfig, int, str, Incarnation]


class LeftStates:
    """What the lost workers of one query have left."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._work: BackgroundWrite | None = None
        self._tried = 0.0
        self._removed: list[_Place] = []

    def clear(self, runs: Sequence[OperatorRun]) -> None:
        """Begins to remove what lies on hosts that answer; nobody waits for it."""
        if self._work is not None and not self._work.wait(0):
            return
        self._take_up(runs)
        # What lies where a worker lives is its own: a place has one state of it.
        left = [
            (run.config, worker, home, incarnation)
            for run in runs
            for worker, home, incarnation in run.group.secondaries.left_behind()
            if run.homes[worker] != home
        ]
        now = self._cluster.clock.monotonic()
        if not left or now < self._tried + AGAIN_SECONDS:
            return
        alive = self._cluster.slots_by_host()
        if there := [place for place in left if place[2] in alive]:
            self._tried = now
            self._work = self._cluster.in_background(partial(self._remove, there))

    def _take_up(self, runs: Sequence[OperatorRun]) -> None:
        """Notes what the last job has removed."""
        work, self._work = self._work, None
        if work is not None and work.failure is not None:
            if not isinstance(work.failure, Exception):
                raise work.failure
            LOG.debug("States that nobody needs could not be removed: %s", work.failure)
        removed, self._removed = self._removed, []
        if removed:
            self._tried = 0.0
        for config, worker, home, incarnation in removed:
            for run in runs:
                if run.name == config.operator_name:
                    run.group.secondaries.is_left_no_more(worker, home, incarnation)

    def _remove(self, places: Sequence[_Place]) -> None:
        homes = {number: home for number, (_, _, home, _) in enumerate(places)}
        try:
            found = self._cluster.try_on(homes, partial(_drop, tuple(places)))
        except StageFailed:
            return
        self._removed = [places[number] for number in found]


def _drop(places: Sequence[_Place], environment: TaskEnvironment, number: int) -> Iterator[int]:
    config, worker, home, incarnation = places[number]
    if environment.host != home:
        return
    with suppress(SegmentError):
        environment.drop_before(config, worker, incarnation)
        yield number
