"""The controller beside the batches: measures units, asks the pure controller, has its decisions carried out, and keeps
what it knows in the store.

It acts at the ends of batches. Nobody waits for what it writes, and nothing but estimates rests on that.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from afspark.cluster.cluster import Cluster
from afspark.control import Controller, Decision, FailureKind, InForce, Quantity, Unit, estimate
from afspark.control.candidates import Candidate, candidate, offered
from afspark.control.controller import decide
from afspark.control.schemes import RecoveryStep, Scheme, Unreplicated, steps_of
from afspark.coordinator.adapting.detection import Detection
from afspark.coordinator.adapting.protector import Protector, protector_of
from afspark.coordinator.adapting.query_meters import QueryMeters
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.record_writer import RecordWriter
from afspark.coordinator.recovery.recovery_timings import Foreseen
from afspark.errors import AfsparkError
from afspark.graph.pipeline import Pipeline
from afspark.numbers import Batch
from afspark.policies import Adaptive
from afspark.store import LedgerEntry, Store
from afspark.store.control_log import ControlLog
from afspark.task.backup_writes import BackgroundWrite

LOG = logging.getLogger("afspark")

WRITE_SECONDS = 10.0
"""How often measurements are written at most; decisions are written with the next batch."""

MOST_DECISIONS = 100
"""How many decisions are kept: the newest."""


class ControlLoop:
    """The units of one query: what is measured, estimated and decided. ``log`` is None if nothing is kept."""

    def __init__(
        self,
        cluster: Cluster,
        meters: QueryMeters,
        log: ControlLog | None,
        protector: Callable[[OperatorRun], Protector] = protector_of,
    ) -> None:
        self.meters = meters
        self._cluster, self._log, self._protector = cluster, log, protector
        self._runs: dict[str, OperatorRun] = {}
        self._controllers: dict[str, Controller] = {}
        self._decisions: deque[Decision] = deque(maxlen=MOST_DECISIONS)
        #: units whose limit nothing keeps, which was said
        self._warned: set[Unit] = set()
        self._epoch = ""
        self._writing: BackgroundWrite | None = None
        self._written = 0.0
        self._news = False

    # --- what happens ---------------------------------------------------------------------------------------

    def open(self, runs: Sequence[OperatorRun], epoch: str) -> None:
        """Begins with the workers that a starting driver has found, and what earlier drivers have left."""
        self._epoch, self._written = epoch, self._now
        self._runs = {run.name: run for run in runs if not run.node.internal}
        found, _ = self._log.read() if self._log is not None else ([], [])
        self.meters.take_up(found)
        self._decisions.extend(decisions_of(found))
        for run in self._runs.values():
            timings = run.group.recoveries.timings
            timings.foresee = partial(self._foreseen, run)
            if self.meters.detection is not None:
                timings.seen = self.meters.detection.seen
            if isinstance(run.node.tolerance, Adaptive):
                self._controllers[run.name] = self._controller(run, run.node.tolerance)
        self._look()

    def batch_ended(
        self, batch: Batch, recovered: Sequence[LedgerEntry], records: RecordWriter, *, recording: float
    ) -> None:
        """After ``batch``, which waited so many seconds for its record. ``recovered``: what was complete with it."""
        applied = self._now - recording
        for run in self._runs.values():
            self.meters.batch(run, batch, applied)
        self.meters.recorded(recording)
        self.meters.covered(records.covered.batch, records.covered_at)
        self.meters.learn(recovered)
        self._look()
        self._keep()

    def step_taken(self, run: OperatorRun, worker: int, step: Quantity, seconds: float, amount: float) -> None:
        """A secondary of a worker has taken a step of a recovery, on its way to a scheme."""
        self.meters.step_taken(Unit(run.name, worker), step, at=self._now, seconds=seconds, amount=amount)

    def close(self) -> None:
        """Keeps what is known, if the store takes it: no batch follows."""
        if self._log is None or not self._runs:
            return
        self._heard(None)
        try:
            self._job()()
        except AfsparkError as error:
            LOG.warning("What was measured is not kept for the next start: %s", error)

    # --- what is asked --------------------------------------------------------------------------------------

    def estimates(self, run: OperatorRun) -> list[dict[str, Any]]:
        """For every worker of an operator: what protects it, and how long each protection would take to recover."""
        found, now, controller = self._protector(run).protections(), self._now, self._controllers.get(run.name)
        answers = []
        for worker in sorted(run.homes):
            in_force = wanted = found.get(worker)
            if controller is not None:
                wanted = controller.wanted.get(Unit(run.name, worker), in_force)
            limit = None if controller is None else controller.adaptive.recovery_seconds
            answers.append(
                {
                    "operator": run.title,
                    "worker": worker,
                    "in_force": None if in_force is None else in_force.to_json(),
                    "limit": limit,
                    "candidates": [
                        _told(one, in_force, limit) for one in self._candidates(run, worker, now, controller, wanted)
                    ],
                }
            )
        return answers

    def decisions(self) -> list[dict[str, Any]]:
        """What was decided, oldest first."""
        return [one.to_json() for one in list(self._decisions)]

    # --- inside ---------------------------------------------------------------------------------------------

    @property
    def _now(self) -> float:
        return self._cluster.clock.time()

    def _controller(self, run: OperatorRun, adaptive: Adaptive) -> Controller:
        """The controller of an operator: what was decided outlives the driver, as far as its tolerance still offers it.
        About the other units the first look decides.
        """
        decided = {one.unit: one.in_force for one in self._decisions if one.unit.operator == run.name}
        wanted = {}
        for unit, in_force in decided.items():
            if unit.worker not in run.homes:
                continue
            if in_force.protection in offered(adaptive, self.meters.situation(run, unit.worker, self._now)):
                wanted[unit] = in_force
                self._protector(run).protect(unit.worker, in_force.protection, in_force.interval)
        return Controller(adaptive=adaptive, wanted=wanted)

    def _look(self) -> None:
        """Has every controller look at its units that is due, and has carried out what it decides."""
        now = self._now
        for name, controller in self._controllers.items():
            if not controller.is_due(now):
                continue
            run = self._runs[name]
            situations = [self.meters.situation(run, worker, now) for worker in sorted(run.homes)]
            self._controllers[name], found = controller.tick(now, situations)
            for decision in found:
                self._act_on(decision, self._protector(run))

    def _act_on(self, decision: Decision, protector: Protector) -> None:
        if decision.in_time:
            self._warned.discard(decision.unit)
        elif decision.unit not in self._warned:
            self._warned.add(decision.unit)
            LOG.warning("%s: %s.", decision.unit, decision.reason)
        if decision.changes:
            chosen = decision.chosen
            LOG.info("%s: %s, because %s.", decision.unit, chosen.protection, decision.reason)
            self._decisions.append(decision)
            self._news = True
            protector.protect(decision.unit.worker, chosen.protection, chosen.interval)

    def _foreseen(self, run: OperatorRun, worker: int, kind: FailureKind) -> Foreseen:
        """What protects a worker that has failed in this way, and the estimate for it."""
        protections = self._protector(run).protections()
        controller = self._controllers.get(run.name)
        wanted = None if controller is None else controller.wanted.get(Unit(run.name, worker))
        in_force = protections.get(worker, wanted)
        if in_force is None:
            return Foreseen()
        situation = self.meters.situation(run, worker, self._now)
        protection, gap = in_force.protection, run.node.tolerance.leaves_gap
        return Foreseen(
            protection,
            estimate(protection, situation, gap=gap, kind=kind),
            deploys=RecoveryStep.DEPLOY in steps_of(protection, elsewhere=situation.elsewhere),
        )

    def _candidates(
        self, run: OperatorRun, worker: int, now: float, controller: Controller | None, wanted: InForce | None
    ) -> Sequence[Candidate]:
        """As the controller sees them; without one as of now, with what came since the last checkpoint."""
        situation = self.meters.situation(run, worker, now)
        if controller is not None:
            return decide(controller.adaptive, situation, wanted).candidates
        usual = Adaptive(gap=run.node.tolerance.leaves_gap)
        return [candidate(one, None, usual, situation) for one in (*Scheme, *Unreplicated)]

    # --- over restarts --------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Begins to write what is known, if that is due and nothing is being written."""
        due = self._news or self._now - self._written >= WRITE_SECONDS
        if self._log is None or not due or not self._heard(0.0):
            return
        self._news, self._written = False, self._now
        self._writing = self._cluster.in_background(self._job())

    def _heard(self, seconds: float | None) -> bool:
        """Whether nothing is being written, after so many seconds at most."""
        if self._writing is None:
            return True
        if not self._writing.wait(seconds):
            return False
        failure, self._writing = self._writing.failure, None
        if isinstance(failure, Exception):
            LOG.warning("What was measured could not be kept: %s", failure)
        elif failure is not None:
            raise failure
        return True

    def _job(self) -> Callable[[], None]:
        assert self._log is not None
        return partial(_write, self._log, self._epoch, self.meters.known(self._now), tuple(self._decisions))


def control_loop(cluster: Cluster, pipeline: Pipeline, store: Store, *, grace_seconds: float) -> ControlLoop:
    """The loop for a query that gives hosts so many seconds to come back."""
    meters = QueryMeters(
        replayable=pipeline.replayable,
        grace_seconds=grace_seconds,
        detection=Detection(cluster),
    )
    return ControlLoop(cluster, meters, ControlLog(store) if pipeline.keeps_records else None)


def _write(log: ControlLog, epoch: str, known: Callable[[], Mapping[str, Any]], decisions: Sequence[Decision]) -> None:
    log.write(epoch, {**known(), "decisions": [one.to_json() for one in decisions]})


def decisions_of(found: Sequence[Mapping[str, Any]]) -> list[Decision]:
    """The decisions that drivers have left, oldest first, each once; those that are not understood are left out."""
    decisions: dict[tuple[float, Unit], Decision] = {}
    for known in found:
        try:
            for one in map(Decision.from_json, known["decisions"]):
                decisions[one.at, one.unit] = one
        except (KeyError, TypeError, ValueError, StopIteration) as error:
            LOG.warning("Decisions of an earlier driver are not understood: %r", error)
    return [decisions[key] for key in sorted(decisions)][-MOST_DECISIONS:]


def _told(one: Candidate, in_force: InForce | None, limit: float | None) -> dict[str, Any]:
    """A candidate for users."""
    found = one.to_json()
    found["unknown"] = list(one.estimate.unknown)
    found["seconds"] = found["estimate"].pop("seconds")
    found["in_force"] = in_force is not None and one.protection is in_force.protection
    if limit is not None:
        found["verdict"] = one.verdict(limit)
    return found
