"""Random schedules of queries whose workers have secondaries: nothing is lost or doubled, whoever dies when.

Mistakes in the promotion of secondaries are planted in the real code, and found. One that schedules notice too rarely
is in ``tests/unit/runtime/test_promoted_backups.py``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from afspark.coordinator.recovery.queued_span import QueuedSpan, SpanReports
from afspark.coordinator.replicas.secondary import Secondary
from afspark.coordinator.replicas.secondary_group import SecondaryGroup
from afspark.coordinator.worker_group import WorkerGroup
from afspark.coordinator.worker_state import WorkerState
from afspark.numbers import Batch
from afspark.protocol import lifecycle
from afspark.protocol.lifecycle import Found, Identity, Position, Present, Wanted
from afspark.resident.side_files import Delta
from afspark.task import completing, receiving, shipping, worker
from afspark.task.feed import Feed
from tests.simulation import memory
from tests.simulation.memory import MemorySegment
from tests.simulation.replica_world import ReplicaWorld
from tests.simulation.replicated import PlainReplicated, ReplicatedSimulation
from tests.simulation.simulation import Broken, simulate
from tests.simulation.world import world

#: Seeds from one number to another; `make test` runs the first part.
PARTS = [range(80), *(range(first, first + 400) for first in range(80, 2080, 400))]
#: How many schedules may pass before a mistake is found.
MOST = 600


@pytest.mark.parametrize(
    "seeds", [part if not part.start else pytest.param(part, marks=pytest.mark.thorough) for part in PARTS], ids=str
)
def test_promises_hold_under_any_schedule(seeds: range) -> None:
    outcomes = [simulate(seed, make=ReplicatedSimulation) for seed in seeds]
    seen, count = sum((outcome.seen for outcome in outcomes), Counter()), len(seeds)
    # Schedules in which nothing happens prove nothing. Two of the six schemes have nobody to promote.
    assert sum(outcome.losses for outcome in outcomes) > count
    assert seen["promoted"] > count / 10
    assert seen["promoted with a queue"] > count / 40
    assert seen["batch taken from a queue"] > count / 40
    assert seen["several batches taken in one stage"] > 0
    assert seen["promoted behind a record"] > 0
    assert seen["secondary behind a record"] > 0
    assert seen["two hosts at once"] > count / 20
    assert seen["stopped task woken"] > count / 20
    assert seen["primary woken after its secondary was promoted"] > 0
    assert seen["scheme taken up by another driver"] > 0


@pytest.mark.parametrize("seed", [0, 5, 8])
def test_a_seed_replays_step_by_step(seed: int) -> None:
    """Also if processes are stopped, which are threads."""
    assert _steps(seed) == _steps(seed)


def _steps(seed: int) -> list[str]:
    """The steps, without the random parts of object names."""
    trace = simulate(seed, make=ReplicatedSimulation).trace
    return [step.split("objects/")[0].split("/epochs/")[0].split("ledger/")[0] for step in trace]


def one_that_lacks_a_batch_promoted_as_if_it_had_it(patch: pytest.MonkeyPatch) -> None:
    """What a secondary lacks is not replayed."""
    real = SecondaryGroup.replacement

    def replacement(self: SecondaryGroup, member: WorkerState, *found: Any) -> Secondary | None:
        one = real(self, member, *found)
        return one and replace(one, version=member.version)

    patch.setattr(SecondaryGroup, "replacement", replacement)


def damaged_one_promoted(patch: pytest.MonkeyPatch) -> None:
    """A secondary that was built from backups which could not be read is promoted, and its task does not look."""
    real = worker.noted_damage
    patch.setattr(worker, "noted_damage", lambda storage, batch=None: () if batch is None else real(storage, batch))
    patch.setattr(
        Secondary, "can_replace", lambda self, member, covered: self.is_built and self.can_follow(member, covered)
    )


def one_that_is_promoted_stays_a_secondary(patch: pytest.MonkeyPatch) -> None:
    """A promoted segment is still taken for a secondary."""

    def promote(self: MemorySegment, incarnation: int) -> None:
        self.incarnation = incarnation

    patch.setattr(MemorySegment, "promote", promote)


def sleeping_one_given_less_than_a_checkpoint_holds(patch: pytest.MonkeyPatch) -> None:
    """A secondary forgets a part of what has changed, and is at the batch of the checkpoint all the same."""
    real = shipping.unseal

    def unsealed(data: bytes) -> Any:
        found = real(data)
        return replace(found, images={label: image.slice(1) for label, image in found.images.items()})

    patch.setattr(shipping, "unseal", unsealed)


def one_behind_a_record_given_less_than_its_backups_hold(patch: pytest.MonkeyPatch) -> None:
    """A secondary forgets a part of the backups that it lacked, and is at the batch of the record all the same."""
    real = completing.load_chain

    def loaded(*given: Any) -> Any:
        found = real(*given)
        return replace(
            found, images={label: [image.slice(1) for image in images] for label, images in found.images.items()}
        )

    patch.setattr(completing, "load_chain", loaded)


def queue_with_a_hole(patch: pytest.MonkeyPatch) -> None:
    """A batch whose items wait beside a secondary is applied as if it had none."""
    patch.setattr(receiving, "queued_feed", lambda *_: Feed())


def _over_batches_that_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    real = QueuedSpan.of

    def span(members: Any, first: Batch, last: Batch, changes: int) -> QueuedSpan | None:
        found = real(members, first, last, changes)
        others = [Batch(one.version) for one in members if one.version >= first]
        return found and replace(found, last=min(last, *others))

    patch.setattr(QueuedSpan, "of", span)


def stage_goes_on_over_a_batch_that_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    """A stage that applies batches from queues takes all that follow with it; those without items are empty."""
    _over_batches_that_do_not_wait(patch)
    real = receiving.queued_feed
    patch.setattr(receiving, "queued_feed", lambda *given: real(*given) or Feed())


def batch_counted_that_a_worker_lacks(patch: pytest.MonkeyPatch) -> None:
    """The same, but workers say that they lack such a batch, and the driver does not listen."""
    _over_batches_that_do_not_wait(patch)
    real = QueuedSpan.applied

    def applied(self: QueuedSpan, found: SpanReports) -> list[Batch]:
        heard = {
            batch: {one: replace(report, lacks_batch=False) for one, report in reports.items()}
            for batch, reports in found.items()
        }
        return real(self, heard)

    patch.setattr(QueuedSpan, "applied", applied)


def delta_applied_on_another_base(patch: pytest.MonkeyPatch) -> None:
    """Of the checkpoints that wait the newest is sent alone, and a secondary takes it wherever it stands."""
    real = shipping.leading_from
    patch.setattr(shipping, "leading_from", lambda deltas, version: real(deltas, version)[-1:])
    patch.setattr(Delta, "fits", lambda self, version: version < self.until)


def checkpoint_counted_before_it_has_come(patch: pytest.MonkeyPatch) -> None:
    """The driver takes a checkpoint for shipped as soon as the primary has kept it."""
    real = SecondaryGroup.has_shipped

    def has_shipped(self: SecondaryGroup, worker: int, delta: Delta) -> None:
        real(self, worker, delta)
        for one in self.members:
            if one.worker == worker and one.is_built:
                self.given_checkpoint(one, delta.until)

    patch.setattr(SecondaryGroup, "has_shipped", has_shipped)


def promoted_ones_not_told_by_their_incarnation(patch: pytest.MonkeyPatch) -> None:
    """A task of the incarnation before a promotion may change what was promoted, unless the fence refuses it."""
    real, real_newer = lifecycle.locate, memory.is_newer

    def promoted(operator: str, number: int, incarnation: int) -> bool:
        here = world()
        return isinstance(here, ReplicaWorld) and (operator, number, incarnation) in here.promotions

    def locate(found: Found, wanted: Wanted) -> Position:
        if isinstance(found, Present) and wanted.incarnation < found.incarnation and found.fence <= wanted.fence:
            whose = found.identity
            return Position.OLDER if promoted(whose.operator, whose.worker, found.incarnation) else Position.NEWER
        return real(found, wanted)

    def is_newer(old: MemorySegment, identity: Identity, incarnation: int) -> bool:
        return not promoted(*old.place[1:], old.incarnation) and real_newer(old, identity, incarnation)

    patch.setattr(lifecycle, "locate", locate)
    patch.setattr(memory, "is_newer", is_newer)


def fence_not_raised_at_promotion(patch: pytest.MonkeyPatch) -> None:
    """Tasks that were sent before a promotion may change the state. Their incarnation would give them away as well, so
    that is not compared.
    """
    promoted_ones_not_told_by_their_incarnation(patch)
    real = WorkerGroup._declare

    def declare(self: WorkerGroup, *given: Any, **named: Any) -> None:
        with patch.context() as meanwhile:
            meanwhile.setattr(WorkerGroup, "raise_fence", lambda self: None)
            real(self, *given, **named)

    patch.setattr(WorkerGroup, "_declare", declare)


MISTAKES = [
    sleeping_one_given_less_than_a_checkpoint_holds,
    one_behind_a_record_given_less_than_its_backups_hold,
    one_that_lacks_a_batch_promoted_as_if_it_had_it,
    damaged_one_promoted,
    one_that_is_promoted_stays_a_secondary,
    queue_with_a_hole,
    stage_goes_on_over_a_batch_that_does_not_wait,
    batch_counted_that_a_worker_lacks,
    delta_applied_on_another_base,
    checkpoint_counted_before_it_has_come,
    fence_not_raised_at_promotion,
]
#: Seeds that noticed a mistake when schedules were drawn as they are now.
NOTICED = {
    "damaged_one_promoted": 280,
    "checkpoint_counted_before_it_has_come": 53,
    "delta_applied_on_another_base": 109,
    "fence_not_raised_at_promotion": 1376,
    "queue_with_a_hole": 5,
}


def test_the_fence_alone_keeps_late_tasks_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing but the fence refuses a task that was sent before a promotion, that is enough."""
    with monkeypatch.context() as patch:
        promoted_ones_not_told_by_their_incarnation(patch)
        simulate(NOTICED["fence_not_raised_at_promotion"], make=ReplicatedSimulation)


#: Mistakes that need damage before a promotion, which the plain world has more of.
PLAIN = (damaged_one_promoted,)


@pytest.mark.some(2)
@pytest.mark.parametrize("plant", MISTAKES, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make = PlainReplicated if plant in PLAIN else ReplicatedSimulation
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by([*filter(None, [NOTICED.get(plant.__name__)]), *range(MOST)], make)
    assert seed is not None, f"{MOST} schedules did not notice: {plant.__doc__}"
    simulate(seed, make=make)


def found_by(seeds: list[int], make: type[ReplicatedSimulation]) -> int | None:
    for seed in seeds:
        try:
            simulate(seed, make=make)
        except Broken:
            return seed
    return None
