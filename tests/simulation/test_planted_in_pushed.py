"""The simulator finds mistakes about pushed items: each is planted, and some of the schedules that fit must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from afspark.coordinator import told_bounds as assurance
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.receivers.past_positions import PastPositions, copied
from afspark.coordinator.receivers.retained_items import RetainedItems
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.model.states import HashTable
from afspark.model.windows import Decaying, fading
from afspark.numbers import Batch
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch
from afspark.protocol.losses import LossEvidence
from afspark.protocol.requests import TaskRequest
from afspark.push.receiver.backlog import Backlog
from afspark.task import restore
from afspark.task.intake import Intake
from afspark.task.unnamed_backups import UnnamedBackups
from tests.simulation.memory import MemorySegment
from tests.simulation.pushed.running import Failure, attempt, simulate
from tests.simulation.pushed.schedule import PushedSchedule, draw
from tests.simulation.pushed.wire import SlowWrite
from tests.simulation.pushed.world import PushedWorld
from tests.simulation.simulation import Broken
from tests.simulation.world import world

#: How many fitting schedules may pass before a mistake is found.
MOST = 600

Fits = Callable[[PushedSchedule], bool]


@dataclass(frozen=True)
class Mistake:
    """``fits``: the schedules that could notice."""

    plant: Callable[[pytest.MonkeyPatch], None]
    fits: Fits

    def __str__(self) -> str:
        return self.plant.__name__


def is_exact(schedule: PushedSchedule) -> bool:
    return isinstance(schedule.tolerance, MiniBatch)


def loses_state(schedule: PushedSchedule) -> bool:
    return bool({"folder", "host", "everything", "vanish", "system"} & set(schedule.troubles))


def approximates(schedule: PushedSchedule) -> bool:
    return isinstance(schedule.tolerance, Approximate) and schedule.tolerance.theta > 0 and loses_state(schedule)


def loses_items(schedule: PushedSchedule) -> bool:
    limited = isinstance(schedule.tolerance, Approximate) and schedule.tolerance.items > 0
    return limited and bool({"receiver", "driver", "system"} & set(schedule.troubles))


def unguarded(patch: pytest.MonkeyPatch) -> None:
    """Without what stops a query whose receiver is ahead of a restored worker: the mistake itself has to show."""
    real = Intake._meet

    def meet(self: Intake, known: Any) -> None:
        assert self._start is not None
        self._start = replace(self._start, losses_counted=True)
        real(self, replace(known, durable=self._start.durable))

    patch.setattr(Intake, "_meet", meet)


# --- what was lost, and what is told of it ------------------------------------------------------------------


def step_backups_of_the_same_request_passed_over(patch: pytest.MonkeyPatch) -> None:
    """A retried request does not look at what its first attempt has made durable."""
    unguarded(patch)
    real = restore.find_unnamed

    def find_unnamed(config: Any, request: Any) -> UnnamedBackups:
        found = real(config, request)
        own = found.progress is not None and found.progress.newest.incarnation == request.incarnation
        return UnnamedBackups() if own else found

    patch.setattr(restore, "find_unnamed", find_unnamed)


def loss_in_a_tick_not_counted(patch: pytest.MonkeyPatch) -> None:
    """Only an incarnation that has completed a batch can have lost anything."""
    unguarded(patch)
    patch.setattr(UnnamedBackups, "undeclared", lambda self, request, window: None)


def panes_of_the_last_commit_affected(patch: pytest.MonkeyPatch) -> None:
    """A loss is told of the panes that the last record knew, not of those opened since."""
    unguarded(patch)
    real = ErrorBudget.count_failure

    def undeclared(self: UnnamedBackups, request: TaskRequest, window: Any) -> LossEvidence | None:
        return next((trace for trace in self.traces if trace.incarnation not in request.counted), None)

    def counted_failure(
        self: ErrorBudget, counted_failures: Any, batch_time: Any, trace: LossEvidence, older: Any = None
    ) -> Any:
        return real(self, counted_failures, batch_time, LossEvidence(trace.incarnation), older)

    patch.setattr(UnnamedBackups, "undeclared", undeclared)
    patch.setattr(ErrorBudget, "count_failure", counted_failure)


def backups_numbered_by_the_clock(patch: pytest.MonkeyPatch) -> None:
    """The newest backup of a step is the one with the latest time on the wall."""
    unguarded(patch)

    def number_backup(self: MemorySegment) -> int:
        here = world()
        assert isinstance(here, PushedWorld)
        return int(here.wall() * 1000)

    patch.setattr(MemorySegment, "number_backup", number_backup)


def thresholds_of_one_worker_for_shares_that_overlap(patch: pytest.MonkeyPatch) -> None:
    """Tables are taken for disjoint, whatever their keys are."""
    patch.setattr(HashTable, "disjoint", property(lambda self: True))


def decaying_state_keeps_its_first_base(patch: pytest.MonkeyPatch) -> None:
    """However far event time has come, a state stays in the units that it began with."""
    patch.setattr(fading, "needs_rebase", lambda window, tick, base: False)


def lowered_threshold_told_of_older_backups(patch: pytest.MonkeyPatch) -> None:
    real = ErrorBudget.count_failure
    patch.setattr(
        ErrorBudget,
        "count_failure",
        lambda self, counted_failures, batch_time, trace, older=None: real(self, counted_failures, batch_time, trace),
    )


def losses_of_a_relay_told_of_nobody(patch: pytest.MonkeyPatch) -> None:
    """Items that a relay has lost are in no bound of the operator behind it."""
    real = OperatorRun.lost_items

    def lost_items(self: OperatorRun, lane: int | None = None) -> int:
        return real(self, lane) if self.config.pushed else 0

    patch.setattr(OperatorRun, "lost_items", lost_items)


def damage_leaves_the_bound_as_it_was(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(assurance, "uncovered", lambda run, window=None: [])


# --- receivers, lanes and steps -----------------------------------------------------------------------------


def items_confirmed_before_their_backup_is_durable(patch: pytest.MonkeyPatch) -> None:
    """A backup under way is taken for durable."""
    unguarded(patch)
    real = SlowWrite.wait
    patch.setattr(SlowWrite, "wait", lambda self, seconds=None: real(self, seconds) or True)


def everything_acknowledged_at_once(patch: pytest.MonkeyPatch) -> None:
    """Items are acknowledged however many are in no log."""
    patch.setattr(Backlog, "_fits", lambda self, entry, now: True)


# --- items that are retained until a record covers them -----------------------------------------------------


def replays(schedule: PushedSchedule) -> bool:
    has_intervals = isinstance(schedule.tolerance, BarrierSnapshot) and (schedule.tolerance.batches or 0) > 1
    return has_intervals and loses_state(schedule)


def waits_at_barriers(schedule: PushedSchedule) -> bool:
    return replays(schedule) and schedule.tolerance.waits_at_barriers and "system" in schedule.troubles


def items_released_with_their_batch(patch: pytest.MonkeyPatch) -> None:
    """Receivers forget the items of a batch when it has ended, whatever covers it."""
    unguarded(patch)

    def release(self: PastPositions, covered: Batch) -> None:
        self.released = copied(self._ends[max(self._ends)])

    patch.setattr(PastPositions, "release", release)


def batch_replayed_with_the_one_before(patch: pytest.MonkeyPatch) -> None:
    """A worker that applies a batch again begins where the batch before it began."""
    patch.setattr(
        PastPositions,
        "span",
        lambda self, name, lane, batch: (
            (self._at(Batch(batch - 2), name, lane), self._at(batch, name, lane)) if batch in self._ends else None
        ),
    )


def end_of_batches_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A worker that applies a batch again takes whatever there is now."""
    patch.setattr(PastPositions, "span", lambda self, name, lane, batch: None)


def record_of_a_batch_that_may_run_again_counted_on(patch: pytest.MonkeyPatch) -> None:
    """Items are released when a record covers them, although Spark has not committed its batch."""
    real = RetainedItems.release
    patch.setattr(RetainedItems, "release", lambda self, batch, covered: real(self, Batch(batch + 1), covered))


MISTAKES = [
    Mistake(items_released_with_their_batch, replays),
    Mistake(batch_replayed_with_the_one_before, replays),
    Mistake(end_of_batches_forgotten, replays),
    Mistake(record_of_a_batch_that_may_run_again_counted_on, waits_at_barriers),
    Mistake(step_backups_of_the_same_request_passed_over, lambda one: is_exact(one) and loses_state(one)),
    Mistake(loss_in_a_tick_not_counted, approximates),
    Mistake(panes_of_the_last_commit_affected, lambda one: approximates(one) and one.window is not None),
    Mistake(backups_numbered_by_the_clock, lambda one: is_exact(one) and "clock" in one.troubles and loses_state(one)),
    Mistake(
        thresholds_of_one_worker_for_shares_that_overlap,
        lambda one: approximates(one) and bool(one.behind) and one.table == "other" and one.divergence == "max",
    ),
    Mistake(
        decaying_state_keeps_its_first_base,
        lambda one: isinstance(one.window, Decaying) and one.window.by == "event" and one.leap > 0,
    ),
    Mistake(
        lowered_threshold_told_of_older_backups,
        lambda one: approximates(one) and bool({"driver", "system"} & set(one.troubles)) and min(one.factors) < 1,
    ),
    Mistake(losses_of_a_relay_told_of_nobody, lambda one: loses_items(one) and bool(one.behind)),
    Mistake(damage_leaves_the_bound_as_it_was, lambda one: one.corrupts and loses_state(one)),
    Mistake(items_confirmed_before_their_backup_is_durable, lambda one: is_exact(one) and loses_state(one)),
    Mistake(everything_acknowledged_at_once, lambda one: is_exact(one) and loses_state(one)),
]


def found_by(fits: Fits) -> int | None:
    """The first fitting seed that breaks a promise."""
    tried = 0
    for seed in range(200 * MOST):
        if not fits(draw(seed)):
            continue
        tried += 1
        if isinstance(attempt(seed), Failure):
            return seed
        if tried >= MOST:
            return None
    return None


@pytest.mark.some(8)
@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_planted_mistake_is_found(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        mistake.plant(patch)
        seed = found_by(mistake.fits)
    assert seed is not None, f"{MOST} schedules did not notice: {mistake.plant.__doc__ or mistake}"
    simulate(seed)


def test_a_failure_is_told_with_the_events_that_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of those that came to pass are enough, and the command that is printed replays them."""
    with monkeypatch.context() as patch:
        loss_in_a_tick_not_counted(patch)
        seed = found_by(approximates)
        assert seed is not None
        with pytest.raises(
            Broken, match=f"python -m tests.simulation --pushed --only [0-9a-f,]+ --seed {seed} -v"
        ) as told:
            simulate(seed)
        only = frozenset(str(told.value).split("--only ")[1].split(" ")[0].split(","))
        assert isinstance(attempt(seed, only), Failure)
        for name in only:
            assert not isinstance(attempt(seed, only - {name}), Failure)
