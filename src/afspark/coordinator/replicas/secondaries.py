"""Prepares the secondaries of a query as their schemes say, behind the batches.

Whatever a secondary needs is done in jobs of its own that nobody waits for: its state is built from the newest durable
record, like that of a worker that was lost; one that processes applies the batches that its primary has applied; one
that sleeps is given the primary's checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from afspark.cluster.cluster import Cluster
from afspark.coordinator.batch_input import BatchInput
from afspark.coordinator.operator_inputs import OperatorInputs
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.replicas.secondary import Secondary
from afspark.coordinator.replicas.secondary_job import SecondaryJob, SecondaryOrders, SecondaryStage
from afspark.numbers import Batch
from afspark.protocol.requests import TaskRequest
from afspark.protocol.shipments import ShipOrder
from afspark.resident.side_files import Delta

LOG = logging.getLogger("afspark")

#: How long a query that ends waits for its secondaries: a host that does not answer must not hold it up.
CLOSING_SECONDS = 10.0

#: How often orders follow each other at once, where jobs take no time.
_ROUNDS = 8


@dataclass(frozen=True)
class FollowedBatch:
    """What belonged to a batch that primaries have applied, and what they were asked, by operator and worker."""

    given: BatchInput
    requests: Mapping[str, Mapping[int, TaskRequest]]


class Secondaries:
    """The secondaries of all operators whose schemes have some."""

    def __init__(self, cluster: Cluster, inputs: OperatorInputs) -> None:
        self._cluster, self._inputs = cluster, inputs
        self._batches: dict[Batch, FollowedBatch] = {}
        self._job = SecondaryJob()

    def follow(self, batch: Batch, given: BatchInput, runs: Sequence[OperatorRun]) -> None:
        """Has secondaries come to the end of ``batch``, which all primaries have applied, as their schemes say."""
        followed = [run for run in runs if run.group.secondaries.has_some]
        if not followed:
            return
        requests = {run.name: {one.worker: one for one in run.group.requests(batch)} for run in followed}
        self._batches[batch] = FollowedBatch(given, requests)
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
        """Notes what the last job has found out so far."""
        job = self._job
        while job.applied:
            stage, one, report = job.applied.pop(0)
            stage.run.group.secondaries.applied(one, stage.batch, damaged=bool(report.damaged))
        while job.shipped:
            run, one, answer = job.shipped.pop(0)
            run.group.secondaries.given_checkpoint(one, answer.version)
        while job.gone:
            run, one, why = job.gone.pop(0)
            LOG.warning("The secondary of worker %d of %s on %s %s.", one.worker, run.name, one.home, why)
            run.group.secondaries.gone(one)
        failure = None if job.work is None else job.work.failure
        if isinstance(failure, Exception):
            LOG.warning("Secondaries did not come to the last batch: %s", failure)
        elif failure is not None:
            raise failure

    def close(self) -> None:
        """Waits for the job under way, if that ends soon: nobody follows any more."""
        if self._job.work is not None:
            self._job.work.wait(CLOSING_SECONDS)
        self.take_up()
        self._job = SecondaryJob()

    def _orders(self, followed: Sequence[OperatorRun], runs: Sequence[OperatorRun]) -> SecondaryOrders:
        slots = self._cluster.slots_by_host()
        unusable = []
        for run in followed:
            housed = run.group.secondaries.house(run.group.members, run.group.covered, slots)
            unusable += [(run.config, one) for one in housed]
        return SecondaryOrders(
            unusable,
            [stage for run in followed for stage in self._to_build(run)],
            self._to_follow(followed, runs),
            [ordered for run in followed for ordered in _to_ship(run)],
        )

    def _to_build(self, run: OperatorRun) -> list[SecondaryStage]:
        """States that are new, of those that do not get one with the first batch that they apply."""
        stages = []
        for one in run.group.secondaries.those(lambda _, one: one.holds_state and not one.is_built):
            batch = Batch(one.version + 1)
            asked = self._asked(run, one, batch)
            if asked is not None:
                stages.append(SecondaryStage(run, Batch(one.version), [one], [replace(asked, apply=False)], ()))
        return stages

    def _to_follow(self, followed: Sequence[OperatorRun], runs: Sequence[OperatorRun]) -> list[SecondaryStage]:
        """What secondaries have to do to come to the newest batch: batch by batch, operators after each other."""
        stages = []
        found = {
            run.name: run.group.secondaries.those(lambda unit, one: unit.switches.processing and one.holds_state)
            for run in followed
        }
        for batch, known in sorted(self._batches.items()):
            for run in followed:
                # Those who lack a batch that nobody remembers are built anew from a newer record.
                members = [one for one in found[run.name] if one.version == batch - 1]
                asked = {one.worker: self._asked(run, one, batch) for one in members}
                requests = [request for request in asked.values() if request is not None]
                if not requests:
                    continue
                inputs = self._inputs.of(run, runs, batch, known.given)
                stages.append(SecondaryStage(run, batch, members, requests, inputs))
                found[run.name] = [one.applied(batch) if one in members else one for one in found[run.name]]
        return stages

    def _asked(self, run: OperatorRun, one: Secondary, batch: Batch) -> TaskRequest | None:
        """What a secondary is asked to do in a batch; None if nobody remembers what its primary was asked."""
        known = self._batches.get(batch)
        primary = None if known is None else known.requests.get(run.name, {}).get(one.worker)
        return None if primary is None else replace(one.request(primary), fence=run.group.fence)


def _to_ship(run: OperatorRun) -> list[tuple[OperatorRun, Secondary, ShipOrder]]:
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
            )
            found.append((run, one, order))
    return found


def _note_checkpoints(run: OperatorRun, batch: Batch, requests: Mapping[int, TaskRequest]) -> None:
    """Notes which primaries have kept a checkpoint for their secondaries."""
    for report in run.reports:
        shipping = requests[report.worker].shipping
        if shipping is not None and report.covers:
            run.group.secondaries.has_shipped(report.worker, Delta(batch, shipping.since))
