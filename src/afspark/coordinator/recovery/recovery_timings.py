"""How long the recoveries of one operator take, from the failure to the first batch applied, by their steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from afspark.clock import Clock
from afspark.control import (
    STEPS,
    FailureKind,
    MeasuredRecovery,
    Protection,
    RecoveryStep,
    RecoveryTimes,
    Unit,
    Unreplicated,
)
from afspark.numbers import Batch
from afspark.protocol.reports import Restored, Status, TaskReport


@dataclass(frozen=True)
class Foreseen:
    """What protected a unit, the estimate that was in force for it, and whether a replica has to be deployed."""

    protection: Protection = Unreplicated.BARRIER_SNAPSHOT
    estimated: RecoveryTimes = field(default_factory=partial(RecoveryTimes, detection=None))
    deploys: bool = False


@dataclass(frozen=True)
class SeenFailure:
    """A failure of a host that the cluster has seen: of which kind, when, and when the driver knew, in seconds since
    1970. ``limit``: after how many seconds it was to know at most, 0: nobody can tell.
    """

    kind: FailureKind
    at: float
    noticed: float
    limit: float = 0.0


@dataclass(frozen=True)
class _UnderWay:
    declared: float
    #: when the driver knew that something was wrong: it may have waited before it declared the loss
    known: float
    #: None: nobody can tell
    failed: float | None
    #: seconds that have passed before anybody needed the worker, although the cluster knew
    pause: float
    kind: FailureKind
    limit: float
    foreseen: Foreseen


class RecoveryTimings:
    """The recoveries of one operator that are under way. ``alive``: the hosts that live."""

    def __init__(self, operator: str, clock: Clock, alive: Callable[[], Collection[str]]) -> None:
        self._operator, self._clock, self._alive = operator, clock, alive
        #: what is estimated for a worker of the operator that has failed in this way
        self.foresee: Callable[[int, FailureKind], Foreseen] = lambda worker, kind: Foreseen()
        #: what the cluster has seen of a host
        self.seen: Callable[[str], SeenFailure | None] = lambda host: None
        self._batch: Batch | None = None
        self._began: float | None = None
        #: when all was well, because the batch before was begun: what the cluster has seen earlier is over
        self._well: float | None = None
        self._under_way: dict[int, _UnderWay] = {}
        self._applied: dict[int, float] = {}
        self._away: dict[int, float] = {}

    def begin(self, batch: Batch) -> None:
        """Notes that a stage of ``batch`` is about to begin. If it turns out that somebody is lost, that is the moment
        of the failure, unless the cluster knows better: so far all was well, and it may have happened since.
        """
        if batch != self._batch:
            self._batch, self._well, self._began = batch, self._began, self._clock.time()

    def away(self, worker: int) -> None:
        """The driver misses the host of a worker, which may come back."""
        self._away.setdefault(worker, self._clock.time())

    def declared(self, worker: int, home: str) -> None:
        """A worker which lived at ``home`` is lost."""
        now, seen = self._clock.time(), self.seen(home)
        if seen is not None and seen.at < (self._well or 0.0):
            seen = None
        known = self._away.pop(worker, now)
        kind = seen.kind if seen else FailureKind.PROCESS_KILLED if home in self._alive() else FailureKind.HOST_LOST
        failed = seen.at if seen else self._began
        pause = max((self._began or 0.0) - seen.noticed, 0.0) if seen else 0.0
        self._under_way[worker] = _UnderWay(
            declared=now,
            known=known,
            failed=None if failed is None else min(failed, known),
            pause=pause,
            kind=kind,
            limit=seen.limit if seen else 0.0,
            foreseen=self.foresee(worker, kind),
        )
        self._applied.pop(worker, None)

    def dropped(self, worker: int) -> None:
        """A worker goes back to an older state without having failed: nothing is measured."""
        self._under_way.pop(worker, None)

    def hear(self, report: TaskReport) -> None:
        """A worker's task has ended; the last one before the recovery is complete has applied the batch."""
        self._away.pop(report.worker, None)
        if report.worker in self._under_way and report.status is Status.APPLIED:
            self._applied[report.worker] = self._clock.time()

    def completed(
        self, report: TaskReport, restored: Restored | None, replaying: float, items: int = 0
    ) -> MeasuredRecovery | None:
        """The recovery of a worker that is whole again, and took so many seconds to replay so many items; None: nobody
        has timed it.

        ``restored``: what it has read; a worker without was promoted.
        """
        found = self._under_way.pop(report.worker, None)
        applied = self._applied.pop(report.worker, self._clock.time())
        if found is None:
            return None
        read = restored.seconds if restored else 0.0
        steps = _begun(
            max(applied - found.declared - read - replaying, 0.0),
            report.work.seconds + report.work.backup_seconds,
            found.foreseen,
            promoted=restored is None,
        )
        return MeasuredRecovery(
            at=found.known if found.failed is None else found.failed,
            unit=Unit(self._operator, report.worker),
            kind=found.kind,
            protection=found.foreseen.protection,
            estimated=found.foreseen.estimated,
            measured=RecoveryTimes(
                detection=None if found.failed is None else max(found.known - found.failed - found.pause, 0.0),
                wait=found.declared - found.known,
                read=read,
                replay=replaying,
                **steps,
            ),
            bytes_read=float(restored.bytes) if restored else 0.0,
            items_replayed=float(items),
            pause=found.pause,
            limit=found.limit,
        )


def _begun(rest: float, work: float, foreseen: Foreseen, *, promoted: bool) -> Mapping[str, float]:
    """How long it took until a worker was at work, by steps. In the stage that promotes or restores it, it is given its
    batch, too: that is wiring, unless it was wired all along, and takes as long as its ``work``.
    """
    wiring = [one for one in STEPS[foreseen.protection] if one in (RecoveryStep.WIRE_SEND, RecoveryStep.WIRE_RECEIVE)]
    if promoted:
        wired = min(rest, work) if wiring else 0.0
        return {RecoveryStep.PROMOTION: rest - wired, **dict.fromkeys(wiring, wired)}
    wired = min(rest, work) if foreseen.deploys else rest
    return {RecoveryStep.DEPLOY: rest - wired, RecoveryStep.WIRE_RECEIVE: wired}
