"""Prepares the secondaries of a query as their schemes say, behind the batches.

Whatever a secondary needs is done in jobs of its own that nobody waits for: its code is loaded; its state is built from
the newest durable record, like that of a worker that was lost; one that processes applies the batches that its primary
has applied; one that sleeps is given the primary's checkpoints, and the items that came since if it receives them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from afspark.cluster.cluster import Cluster
from afspark.control import Quantity
from afspark.coordinator.batch_input import BatchInput
from afspark.coordinator.operator_inputs import OperatorInputs
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.recovery.coverage import declare_difference
from afspark.coordinator.replicas.left_states import LeftStates
from afspark.coordinator.replicas.replica_check import other_effects
from afspark.coordinator.replicas.secondary import Secondary
from afspark.coordinator.replicas.secondary_job import SecondaryJob, SecondaryOrders, SecondaryStage
from afspark.coordinator.replicas.warm_hosts import WarmHosts
from afspark.coordinator.told_bounds import is_whole
from afspark.numbers import Batch
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.protocol.shipments import ShipOrder
from afspark.resident.side_files import Delta
from afspark.task.queueing import FULL
from afspark.task.stage_inputs import StageInput

T = TypeVar("T")

LOG = logging.getLogger("afspark")

#: How long a query that ends waits for its secondaries: a host that does not answer must not hold it up.
CLOSING_SECONDS = 10.0

#: After so many seconds without a task an idle Python process would end, with what it has loaded.
KEPT_LOADED_SECONDS = 20.0

#: How often orders follow each other at once, where jobs take no time.
_ROUNDS = 8


@dataclass(frozen=True)
class FollowedBatch:
    """What belonged to a batch that primaries have applied, what they were asked and what they have answered, by
    operator and worker.
    """

    given: BatchInput
    requests: Mapping[str, Mapping[int, TaskRequest]]
    reports: Mapping[str, Mapping[int, TaskReport]]


class Secondaries:
    """The secondaries of all operators whose schemes have some."""

    def __init__(self, cluster: Cluster, inputs: OperatorInputs) -> None:
        self._cluster, self._inputs = cluster, inputs
        self._batches: dict[Batch, FollowedBatch] = {}
        #: the last batch that all primaries have applied
        self._applied = Batch(-1)
        self._job = SecondaryJob()
        self._hosts, self._left = WarmHosts(cluster), LeftStates(cluster)
        #: jobs of secondaries that work at the same time as their primaries, by operator
        self._alongside: dict[str, SecondaryJob] = {}
        #: told of every step of a recovery that a secondary has taken without a failure: its seconds, and bytes
        self.step_taken: Callable[[OperatorRun, int, Quantity, float, float], None] = lambda *_: None
        #: how often operators that reach one have made something else of a batch: what waits from before may be wrong
        self.changes_reaching: Callable[[str], int] = lambda _: 0
        #: what secondaries have answered of a batch that is under way
        self._early: list[tuple[SecondaryStage, Secondary, TaskReport]] = []

    # --- while a batch runs ---------------------------------------------------------------------------------

    def accompany(
        self, run: OperatorRun, batch: Batch, requests: Sequence[TaskRequest], inputs: Sequence[StageInput]
    ) -> None:
        """Has secondaries that send as well apply ``batch`` while their primaries do."""
        # What has brought one of them to the batch before may have ended since that one did.
        self._take_up(self._job)
        asked = {request.worker: request for request in requests}
        members = [
            one
            for one in run.group.secondaries.those(lambda unit, one: unit.switches.sending and one.is_built)
            if one.version == batch - 1
            and one.can_replace(run.group.member(one.worker), run.group.covered.batch)
            # Whether its primary hears of a loss in this batch is known when that one has applied it.
            and asked[one.worker].lost is None
        ]
        before = self._alongside.get(run.name)
        if not members or (before is not None and not before.is_done):
            return
        self._take_up(before)
        own = [one.request(asked[one.worker]) for one in members]
        self._alongside[run.name] = job = SecondaryJob()
        stage = SecondaryStage(run, batch, members, own, inputs)
        job.work = self._cluster.in_background(partial(_run_alone, job, self._cluster, stage))

    def settle(self) -> None:
        """Waits for those that work alongside their primaries: one of those has failed, or is to be taken back.

        A slower replica is allowed to finish; one that does not answer is left to itself. What came to others
        meanwhile is noted: who is further needs less if it is promoted.
        """
        self._take_up(self._job)
        for job in self._alongside.values():
            if job.work is not None and job.work.wait(CLOSING_SECONDS):
                self._take_up(job)

    def before_loss(self, then: Callable[[], None]) -> Callable[[], None]:
        """What is done before a loss is declared: it has to be known which secondaries have the batch; and ``then``."""

        def known() -> None:
            # Whoever recovers needs the slots, and what was ordered for its secondary is out of date.
            self._job.is_stopped = True
            self.settle()
            then()

        return known

    # --- after a batch --------------------------------------------------------------------------------------

    def follow(self, batch: Batch, given: BatchInput, runs: Sequence[OperatorRun]) -> None:
        """Has secondaries come to the end of ``batch``, which all primaries have applied, as their schemes say."""
        groups = [run.group.secondaries for run in runs]
        self._cluster.heed(
            standby=any(group.could_replace for group in groups),
            elsewhere=any(group.restores_elsewhere for group in groups),
        )
        self._left.clear(runs)
        if any(run.node.tolerance.recovers_elsewhere for run in runs):
            self._hosts.look()
        followed = [run for run in runs if run.group.secondaries.has_some]
        if not followed:
            return
        requests = {run.name: run.group.requests_to_follow(batch, run.reports) for run in followed}
        reports = {run.name: {one.worker: one for one in run.reports} for run in followed}
        self._batches[batch], self._applied = FollowedBatch(given, requests, reports), batch
        # Who has left batches out has kept nothing of them.
        self.forget(max(run.group.left_out for run in runs))
        for run in followed:
            _note_checkpoints(run, batch, requests[run.name])
        for _ in range(_ROUNDS):
            if not self._job.is_done:
                return
            self.take_up()
            for run in followed:
                run.group.secondaries.advance(run.group.evidence(batch))
            orders = self._orders(followed, runs)
            if orders.is_empty:
                return
            self._job = job = SecondaryJob()
            job.work = self._cluster.in_background(partial(job.carry_out, self._cluster, orders))

    def forget(self, covered: Batch) -> None:
        """A durable record covers ``covered``: nobody will ask for what came until then."""
        self._batches = {batch: one for batch, one in self._batches.items() if batch > covered}

    def take_up(self) -> None:
        """Notes what the last jobs have found out so far."""
        for job in self._alongside.values():
            self._take_up(job)
        self._take_up(self._job)
        early, self._early = self._early, []
        for stage, one, report in early:
            self._compare(stage, one, report)

    def _take_up(self, job: SecondaryJob | None) -> None:
        """Notes what a job has found out, also if there is more for it to do."""
        if job is None:
            return
        is_done = job.is_done
        now = self._cluster.clock.monotonic()
        for run, one, seconds in _drained(job.deployed):
            if not one.deployed:
                # Later it is only kept loaded.
                self.step_taken(run, one.worker, Quantity.DEPLOY, seconds, 0.0)
            run.group.secondaries.note(one, lambda known: known.was_deployed(now))
        for stage, one, report in _drained(job.applied):
            if report.restored is not None and report.restored.bytes:
                read = report.restored
                self.step_taken(stage.run, one.worker, Quantity.READ, read.seconds, float(read.bytes))
            stage.run.group.secondaries.applied(one, stage.batch, damaged=bool(report.damaged))
            self._early.append((stage, one, report))
        for run, one, answer in _drained(job.shipped):
            run.group.secondaries.given_checkpoint(one, answer.version)
        for stage, one, report in _drained(job.queued):
            self._note_queued(stage, one, report)
        for run, one in _drained(job.uncleared):
            run.group.secondaries.to_clear(one)
        for run, one, why in _drained(job.gone):
            LOG.warning("The secondary of worker %d of %s on %s %s.", one.worker, run.name, one.home, why)
            run.group.secondaries.gone(one)
        if not is_done:
            return
        failure, job.work = None if job.work is None else job.work.failure, None
        if isinstance(failure, Exception):
            LOG.warning("Secondaries did not come to the last batch: %s", failure)
        elif failure is not None:
            raise failure

    def close(self) -> None:
        """Waits for the jobs under way, if those end soon: nobody follows any more."""
        for job in (*self._alongside.values(), self._job):
            if job.work is not None:
                job.work.wait(CLOSING_SECONDS)
        self.take_up()
        self._job = SecondaryJob()

    def _compare(self, stage: SecondaryStage, one: Secondary, report: TaskReport) -> None:
        """Acts on what a secondary has made of a batch, if that is something else than what its primary has."""
        known = self._batches.get(stage.batch)
        first = None if known is None else known.reports.get(stage.run.name, {}).get(one.worker)
        if first is None or report.lacks_batch:
            return
        group = stage.run.group
        if first.consumed != report.consumed:
            LOG.warning("The secondary of worker %d of %s was given other items.", one.worker, stage.run.name)
            group.secondaries.discard(one)
            return
        if not group.secondaries.is_whole(one, group.member(one.worker)) or not is_whole(stage.run):
            # They have begun with different states.
            return
        if labels := other_effects(first, report):
            what = (
                f"both replicas of worker {one.worker} of {stage.run.name!r} have applied batch {stage.batch}, and have"
                f" done something else ({', '.join(labels)})"
            )
            LOG.warning("%s: an operator that is not deterministic cannot be replicated.", what)
            declare_difference(stage.run, stage.batch, what)

    def _note_queued(self, stage: SecondaryStage, one: Secondary, report: TaskReport) -> None:
        group = stage.run.group
        if report.status is Status.APPLIED:
            group.secondaries.note(one, lambda known: known.was_queued(stage.batch, stage.changes))
        elif report.detail == FULL:
            LOG.warning(
                "The queue of the secondary of worker %d of %s on %s is full until the next checkpoint comes.",
                one.worker,
                stage.run.name,
                one.home,
            )
            group.secondaries.note(one, lambda known: replace(known, full=True))

    # --- what is to be done ---------------------------------------------------------------------------------

    def _orders(self, followed: Sequence[OperatorRun], runs: Sequence[OperatorRun]) -> SecondaryOrders:
        slots = self._cluster.slots_by_host()
        unusable, silent, now = [], self._cluster.silent_hosts(), self._cluster.clock.monotonic()
        for run in followed:
            run.group.secondaries.keep_silent(run.group.members, run.group.covered, silent, now)
            housed = run.group.secondaries.house(run.group.members, run.group.covered, slots)
            unusable += [(run, one) for one in housed]
        building = [stage for run in followed for stage in self._to_build(run)]
        # With every try: a host that was away may come back with the state that it had, and the last job may have
        # failed.
        unusable += [(stage.run, one) for stage in building for one in stage.secondaries]
        return SecondaryOrders(
            unusable,
            [(run, one) for run in followed for one in self._to_deploy(run)],
            building,
            [*(stage for run in followed for stage in self._to_complete(run)), *self._to_follow(followed, runs)],
            [ordered for run in followed for ordered in _to_ship(run, self._applied)],
            [stage for run in followed for stage in self._to_queue(run, runs)],
        )

    def _to_deploy(self, run: OperatorRun) -> list[Secondary]:
        """Those whose code is not loaded, or would not be for much longer."""
        late = self._cluster.clock.monotonic() - KEPT_LOADED_SECONDS
        return run.group.secondaries.those(
            lambda unit, one: not one.deployed or (one.loaded < late and not unit.switches.processing)
        )

    def _to_build(self, run: OperatorRun) -> list[SecondaryStage]:
        """States that are new."""
        stages = []
        for one in run.group.secondaries.those(lambda _, one: one.holds_state and not one.is_built):
            asked = self._asked(run, one, Batch(one.version + 1))
            if asked is not None:
                stages.append(SecondaryStage(run, Batch(one.version), [one], [replace(asked, apply=False)], ()))
        return stages

    def _to_complete(self, run: OperatorRun) -> list[SecondaryStage]:
        """Those that sleep, and were slower than a record: no checkpoint that they could be given is left."""
        group, covered = run.group.secondaries, run.group.covered
        stages = []
        for one in group.those(lambda unit, one: one.is_built and not unit.switches.processing):
            later = group.completed(one, covered)
            asked = self._asked(run, later, Batch(later.version + 1)) if later.completing else None
            if asked is not None and not group.has_more(one):
                stages.append(SecondaryStage(run, Batch(later.version), [one], [replace(asked, apply=False)], ()))
        return stages

    def _to_follow(self, followed: Sequence[OperatorRun], runs: Sequence[OperatorRun]) -> list[SecondaryStage]:
        """What secondaries have to do to come to the newest batch: batch by batch, operators after each other."""
        stages = []
        busy = {name for name, job in self._alongside.items() if not job.is_done}
        found = {
            run.name: [
                run.group.secondaries.completed(one, run.group.covered)
                for one in run.group.secondaries.those(lambda unit, one: unit.switches.processing and one.holds_state)
            ]
            for run in followed
            if run.name not in busy
        }
        for batch, known in sorted(self._batches.items()):
            for run in followed:
                # What one of them lacks that nobody remembers, its first task reads from the store.
                members = [one for one in found.get(run.name, ()) if one.version == batch - 1]
                requests = [asked for one in members if (asked := self._asked(run, one, batch)) is not None]
                if not requests:
                    continue
                inputs = self._inputs.of(run, runs, batch, known.given)
                stages.append(SecondaryStage(run, batch, members, requests, inputs))
                found[run.name] = [one.applied(batch) if one in members else one for one in found[run.name]]
        return stages

    def _to_queue(self, run: OperatorRun, runs: Sequence[OperatorRun]) -> list[SecondaryStage]:
        """The batches whose items are to wait beside secondaries that sleep; not those that a checkpoint or a record
        will have brought them by then, nor those with bad items, which are looked for among the items as they came.
        """
        group, covered = run.group.secondaries, run.group.covered
        asleep = run.group.secondaries.those(
            lambda unit, one: unit.switches.receiving and not unit.switches.processing and one.is_built and not one.full
        )
        stages = []
        for batch, known in sorted(self._batches.items()):
            bad = {worker for worker, report in known.reports.get(run.name, {}).items() if report.bad}
            members = [
                one
                for one in asleep
                if batch > max(covered.batch, group.reach(one)) and batch not in one.queued and one.worker not in bad
            ]
            requests = [asked for one in members if (asked := self._asked(run, one, batch)) is not None]
            if requests:
                inputs = self._inputs.of(run, runs, batch, known.given)
                queueing = [replace(asked, queues=True) for asked in requests]
                stages.append(SecondaryStage(run, batch, members, queueing, inputs, self.changes_reaching(run.name)))
        return stages

    def _asked(self, run: OperatorRun, one: Secondary, batch: Batch) -> TaskRequest | None:
        """What a secondary is asked to do in a batch; None if nobody remembers what its primary was asked.

        An earlier driver may have given the primary another reading of it.
        """
        known = self._batches.get(batch)
        primary = None if known is None else known.requests.get(run.name, {}).get(one.worker)
        if known is None or primary is None:
            return None
        consumed = known.reports[run.name][one.worker].consumed
        return replace(one.request(primary), fence=run.group.fence, consumes=consumed)


def _run_alone(job: SecondaryJob, cluster: Cluster, stage: SecondaryStage) -> None:
    job.run(cluster, stage)


def _drained(found: list[T]) -> list[T]:
    """What is in a list that a job may add to meanwhile."""
    return [found.pop(0) for _ in range(len(found))]


def _to_ship(run: OperatorRun, until: Batch) -> list[tuple[OperatorRun, Secondary, ShipOrder]]:
    group = run.group
    found = []
    for one in group.secondaries.those(lambda unit, one: unit.switches.shipping and one.is_built):
        member = group.member(one.worker)
        if group.secondaries.has_more(one) and one.incarnation == member.incarnation:
            order = ShipOrder(
                config=run.config,
                worker=one.worker,
                incarnation=one.incarnation,
                fence=group.fence,
                source=member.home,
                target=one.home,
                version=one.version,
                until=until,
            )
            found.append((run, one, order))
    return found


def _note_checkpoints(run: OperatorRun, batch: Batch, requests: Mapping[int, TaskRequest]) -> None:
    """Notes which primaries have kept a checkpoint for their secondaries."""
    for report in run.reports:
        shipping = requests[report.worker].shipping
        if shipping is not None and report.covers:
            run.group.secondaries.has_shipped(report.worker, Delta(batch, shipping.since))
