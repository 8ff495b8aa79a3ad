"""A closed step is final, so losing what came after the last backup counts, in the middle of a tick as between two."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from afspark.bounds import Place
from afspark.coordinator.recovery.discovery import RecordedWorkers, restore_workers
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.worker_state import WorkerState
from afspark.errors import BackupLost
from afspark.model.state_label import StateLabel
from afspark.model.states import HashTable
from afspark.model.windows import Hopping, PaneReport, WindowProgress
from afspark.policies import Approximate, ThresholdBackup
from afspark.protocol.batch_times import BatchTime
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.lifecycle import Hint
from afspark.protocol.losses import CountedLoss, LossEvidence
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import Packet
from afspark.protocol.reports import Status, TaskReport
from afspark.resident import SegmentAddress, process_cache
from afspark.store import Loss, open_store
from afspark.store.naming import OBJECTS
from afspark.task.intake import LaneAway
from afspark.task.lane_feed import LaneFeed
from afspark.task.pane_states import PaneStates
from afspark.task.unnamed_backups import find_unnamed
from tests.unit.runtime.environments import written_at_once
from tests.unit.runtime.test_steps import A, Bench, Died, FakeLane, GatedStore

THETA = 100.0


@dataclass
class Approximating(Bench):
    """A worker that may lose up to THETA, as its driver sees it: every loss that it reports is declared."""

    exact: bool = False
    window: Hopping | None = None
    member: WorkerState = field(default_factory=lambda: WorkerState.at("a", worker=0))

    @property
    def budget(self) -> ErrorBudget:
        states = {"seen": HashTable(key="int64", value="int64")}
        return ErrorBudget(tolerance=Approximate(THETA), states=states, place=Place(workers=1), window=self.window)

    @property
    def config(self) -> OperatorConfig:
        return replace(super().config, window=self.window)

    def attempt(self, lane: FakeLane, probe: Callable[[FaultPhase], None] = lambda phase: None) -> TaskReport:
        """Spark runs the task of the present request."""
        window_progress = WindowProgress(first_open=0, touched=frozenset({0})) if self.window else WindowProgress()
        batch_time = BatchTime(window_progress=window_progress, exposed=window_progress.touched)
        request = self.member.request(1, self.budget, 0, batch_time)
        given = {
            name: getattr(request, name) for name in request.__dataclass_fields__ if name not in ("worker", "batch")
        }
        report = self.run(lane, probe=probe, **given)
        if report.status is Status.MISSING:
            self.member = self.member.lost(self.budget, "a", batch_time, report.trace)
        return report

    def batch(self, lane: FakeLane, probe: Callable[[FaultPhase], None] = lambda phase: None) -> TaskReport:
        """The driver declares what is reported missing, and tries until the batch is applied."""
        for _ in range(12):
            report = self.attempt(lane, probe)
            if report.status is Status.APPLIED:
                return report
        raise AssertionError(report)

    def lose(self) -> None:
        """The host dies, with its memory."""
        process_cache().clear()
        shutil.rmtree(self.place, ignore_errors=True)

    def state(self) -> dict[str, dict[int, int]]:
        """The cells of every state that is resident."""
        home = SegmentAddress(self.place).open()
        assert home is not None
        with home.lock(1.0):
            panes = PaneStates(home.columns, self.budget.states, paned=self.window is not None, first=0)
            found = {StateLabel(name, pane).text(): state.export() for name, pane, state in panes.named()}
        return {
            name: dict(zip(cells.column(0).to_pylist(), cells.column(1).to_pylist(), strict=True))
            for name, cells in found.items()
        }

    @property
    def told(self) -> float:
        return self.budget.realised([self.member.counted_failures])["seen"]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Approximating]:
    store = GatedStore(open_store(str(tmp_path / "store")))
    yield Approximating(store, tmp_path / "segments" / "q" / "tally-0")
    process_cache().clear()


def dies_in_step(number: int) -> Callable[[FaultPhase], None]:
    steps = 0

    def probe(phase: FaultPhase) -> None:
        nonlocal steps
        steps += phase is FaultPhase.BACKING_UP
        if steps == number:
            raise Died

    return probe


def dies_when_confirmed(lane: FakeLane, more: int) -> Callable[[FaultPhase], None]:
    """In the middle of a step, once so many more items are confirmed."""
    wanted = lane.confirmed + more

    def probe(phase: FaultPhase) -> None:
        if phase is FaultPhase.APPLYING and lane.confirmed >= wanted:
            raise Died

    return probe


def dies_ahead_of_its_backups(bench: Approximating, lane: FakeLane, more: int) -> Callable[[FaultPhase], None]:
    """In the middle of a step, once so many items are confirmed and some of them are in no backup."""

    def probe(phase: FaultPhase) -> None:
        if phase is FaultPhase.APPLYING and lane.confirmed >= more:
            durable = find_unnamed(bench.config, bench.request()).progress
            if durable is None or durable.positions.get(A, 0) < lane.confirmed:
                raise Died

    return probe


def same_key(count: int) -> list[list[int]]:
    """Portions of one item each, all of one key."""
    return [[7]] * count


def test_every_loss_in_the_first_tick_of_an_incarnation_is_counted_and_the_bound_holds(bench: Approximating) -> None:
    """Spark runs the same request again and again; each time the host dies after steps that were confirmed."""
    bench.writes = written_at_once
    lane = FakeLane(same_key(400))
    for _ in range(6):
        with pytest.raises(Died):
            bench.batch(lane, dies_when_confirmed(lane, 30))
        bench.lose()
    assert bench.batch(lane).positions == {A: 400}
    observed = 400 - bench.state()["seen"].get(7, 0)
    assert bench.member.failures == 6
    assert 0 < observed <= bench.told <= THETA


def test_a_loss_before_the_first_step_is_final_counts_nothing(bench: Approximating) -> None:
    """A crash loop must not drive the threshold to zero."""
    lane = FakeLane(same_key(5))

    def die(phase: FaultPhase) -> None:
        if phase is FaultPhase.APPLYING:
            raise Died

    for _ in range(5):
        with pytest.raises(Died):
            bench.attempt(lane, die)
        bench.lose()
    assert bench.batch(lane).positions == {A: 5}
    assert bench.member.failures == 0 and bench.told == 0.0


def test_an_exact_worker_takes_up_its_own_steps_when_its_request_is_run_again(bench: Approximating) -> None:
    bench.exact = True
    exact = replace(bench.member, hint=Hint.CREATE)
    lane = FakeLane([[1, 2], [3], [4, 5], [6], [7]])
    with pytest.raises(Died):
        bench.run(lane, probe=dies_in_step(4), hint=exact.hint)
    assert lane.confirmed > 0
    bench.lose()
    report = bench.run(lane, hint=exact.hint)
    assert bench.restored(report.backups) == dict.fromkeys(range(1, 8), 1)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "approximate"])
def test_a_worker_restored_behind_a_backup_that_was_durable_stops(bench: Approximating, exact: bool) -> None:
    """Whoever deletes a backup breaks the promise; nobody goes on in silence."""
    bench.exact = exact
    lane = FakeLane([[1, 2], [3], [4, 5], [6], [7]])
    with pytest.raises(Died):
        bench.run(lane, probe=dies_in_step(4), backup=ThresholdBackup(theta={"seen": 0.0}))
    bench.lose()
    bench.store.delete(list(bench.store.list(OBJECTS)))
    report = bench.run(lane, hint=Hint.RECOVER, incarnation=2, counted={1: CountedLoss()})
    assert report.status is Status.FAILED and isinstance(report.error, BackupLost)
    assert report.error.fields["confirmed"] > report.error.fields["restored"]


def test_items_confirmed_by_nobody_known_stop_an_approximate_worker(bench: Approximating) -> None:
    report = bench.run(FakeLane([[1]] * 5, confirmed=3))
    assert report.status is Status.FAILED and isinstance(report.error, BackupLost)


def test_a_damaged_step_backup_is_a_loss_that_is_not_covered(bench: Approximating) -> None:
    bench.exact = True
    lane = FakeLane([[1, 2], [3], [4, 5], [6], [7]])
    with pytest.raises(Died):
        bench.run(lane, probe=dies_in_step(4))
    bench.lose()
    found = find_unnamed(bench.config, bench.request(incarnation=2)).progress
    assert found is not None
    # A step is confirmed with the second pull after it at the latest.
    names = [backup.name for backup in found.backups[1:]]
    for name in names:
        bench.store.put(name, bench.store.get(name)[:-1])
    report = bench.run(lane, hint=Hint.RECOVER, incarnation=2)
    assert report.status is Status.APPLIED and sorted(report.damaged) == sorted(names)


def test_the_newest_backup_is_told_by_its_number_whatever_the_clock_says(
    bench: Approximating, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.exact = True
    times = iter([100.0, 99.0, 98.0, *range(97, 0, -1)])
    monkeypatch.setattr("time.time", lambda: next(times))
    lane = FakeLane([[1, 2], [3], [4, 5], [6], [7]])
    with pytest.raises(Died):
        bench.run(lane, probe=dies_in_step(5))
    bench.lose()
    report = bench.run(lane, hint=Hint.RECOVER, incarnation=2)
    assert bench.restored(report.backups) == dict.fromkeys(range(1, 8), 1)


def test_others_are_shut_out_before_the_store_is_searched(bench: Approximating) -> None:
    """Otherwise one that is still at work could confirm items for a backup that was not there yet."""
    events: list[str] = []

    class Noted(FakeLane):
        def attach(self, positions: Any) -> Any:
            events.append("attached")
            return super().attach(positions)

    listed = bench.store.inner.list

    def noted_list(prefix: str) -> Any:
        events.append("listed")
        return listed(prefix)

    bench.store.list = noted_list  # type: ignore[method-assign]
    bench.run(Noted([[1]]))
    assert events[:2] == ["attached", "listed"]


def test_a_worker_is_not_restored_while_its_receiver_is_away(bench: Approximating) -> None:
    class Away(FakeLane):
        def attach(self, positions: Any) -> Any:
            self.empty += 10
            raise LaneAway

    assert bench.run(Away([[1]])).status is Status.BUSY


def test_backups_that_had_to_be_durable_and_are_damaged_are_not_covered_whatever_the_receiver_knows(
    bench: Approximating,
) -> None:
    """A receiver that died as well remembers no number; but only the last backup can have been cut short."""
    bench.exact = True
    lane = FakeLane([[1, 2], [3], [4, 5], [6], [7]])
    with pytest.raises(Died):
        bench.run(lane, probe=dies_in_step(5))
    bench.lose()
    found = find_unnamed(bench.config, bench.request(incarnation=2)).progress
    assert found is not None
    names = [backup.name for backup in found.backups]
    for name in names[1:]:
        bench.store.put(name, bench.store.get(name)[:-1])
    report = bench.run(FakeLane(lane.portions), hint=Hint.RECOVER, incarnation=2)
    assert set(report.damaged) == set(names[1:-1])


def test_a_process_that_takes_up_a_batch_attaches_before_it_says_anything_else(bench: Approximating) -> None:
    """The lane belongs to the process that died; whoever does not take it over is refused."""

    class Owned(FakeLane):
        attached = False

        def attach(self, positions: Any) -> Any:
            self.attached = True
            return super().attach(positions)

        def stop_logging(self, positions: Any) -> bool:
            assert self.attached
            return super().stop_logging(positions)

    lane = Owned([[1, 2], [3], [4, 5]])
    with pytest.raises(Died):
        bench.run(lane, probe=dies_in_step(2))
    process_cache().clear()
    lane.attached = False
    assert bench.run(lane, hint=Hint.RESUME).status is Status.APPLIED
    assert lane.attached


# --- windows ------------------------------------------------------------------------------------------------


def test_a_pane_opened_in_the_tick_is_affected_as_well(bench: Approximating) -> None:
    """The driver knows of the panes at the last commit; the store tells of those opened since."""
    bench.window = Hopping(10, column="n")
    bench.member = WorkerState.at("a", worker=0, completed=1, hint=Hint.CREATE)
    lane = FakeLane([[15]] * 400)
    with pytest.raises(Died):
        bench.attempt(lane, dies_ahead_of_its_backups(bench, lane, 30))
    bench.lose()
    bench.member = replace(bench.member, hint=Hint.RESUME)
    bench.batch(lane)
    assert {name for failure in bench.member.counted_failures for name in failure.told()} == {"seen@0", "seen@1"}
    observed = 400 - bench.state()["seen@1"].get(15, 0)
    assert 0 < observed <= bench.budget.realised([bench.member.counted_failures], window=1)["seen"] == THETA / 2


def test_windows_by_count_do_not_move_because_items_were_lost(bench: Approximating) -> None:
    """How many were counted is in a backup before their items are confirmed, whatever the threshold allows."""
    bench.window = Hopping(50, by="count")
    lane = FakeLane(same_key(20))
    with pytest.raises(Died):
        bench.attempt(lane, dies_when_confirmed(lane, 10))
    found = find_unnamed(bench.config, bench.request()).progress
    assert found is not None and found.panes is not None and found.panes.seen >= lane.confirmed


@pytest.mark.parametrize("restored", [True, False])
def test_what_comes_before_the_items_of_a_batch_comes_once(bench: Approximating, restored: bool) -> None:
    """A state that was restored inside the batch has it already."""
    asked: list[bool] = []

    class Noted(LaneFeed):
        def feedback(self) -> Iterator[tuple[str, Packet]]:
            asked.append(True)
            return super().feedback()

    bench.exact, bench.feed = True, Noted
    lane = FakeLane([[1, 2], [3], [4, 5]])
    if restored:
        with pytest.raises(Died):
            bench.run(lane, probe=dies_in_step(2))
        bench.lose()
        asked.clear()
        bench.run(lane, hint=Hint.RECOVER, incarnation=2)
    else:
        bench.run(lane)
    assert len(asked) == (0 if restored else 1)


def test_a_loss_counts_once_for_each_pane() -> None:
    budget = ErrorBudget(
        tolerance=Approximate(THETA),
        states={"n": HashTable()},
        place=Place(workers=1),
        window=Hopping(10, column="t"),
    )
    batch_time = BatchTime(exposed=frozenset({3, 5}))
    seen = PaneReport(worker=0, panes=frozenset({3, 4}))
    first = budget.count_failure((), batch_time, LossEvidence(2))
    # The threshold of pane 4 had not been halved when that incarnation was at work.
    second = budget.count_failure((first,), batch_time, LossEvidence(2, seen))
    assert first.pane_taken == {3: {"n": 50.0}, 5: {"n": 50.0}} and second.pane_taken == {4: {"n": 50.0}}
    third = budget.count_failure((first, second), batch_time, LossEvidence(5, seen))
    assert third.pane_taken[3]["n"] == 25.0 and third.pane_taken[4]["n"] < 50.0


# --- a lowered limit ----------------------------------------------------------------------------------------


def test_a_loss_is_told_by_the_threshold_its_backup_was_made_under() -> None:
    budget = ErrorBudget(tolerance=Approximate(20.0), states={"n": HashTable()}, place=Place(workers=1))
    member = WorkerState.at("a", worker=0, completed=3, older_theta={"n": 1000.0})
    lost = member.lost(budget, "b")
    assert lost.counted_failures[-1].taken == {"n": 1000.0} and lost.older_theta is None
    assert WorkerState.at("a", worker=0, completed=3).lost(budget, "b").counted_failures[-1].taken == {"n": 10.0}


def test_a_batch_applied_under_a_higher_limit_is_told_by_that() -> None:
    """It was applied for a driver that died before its commit; the next one has a lower limit."""
    budget = ErrorBudget(tolerance=Approximate(20.0), states={"n": HashTable()}, place=Place(workers=1))
    report = TaskReport(
        worker=0, status=Status.APPLIED, host="a", plan=ThresholdBackup(theta={"n": 1000.0}).described("n")
    )
    member = WorkerState.at("a", worker=0).applied(report, budget)
    assert member.recheck and member.record(budget).theta == {"n": 1000.0}
    assert member.lost(budget, "b").counted_failures[-1].taken == {"n": 1000.0}
    again = member.applied(replace(report, plan=ThresholdBackup(theta={"n": 10.0}).described("n")), budget)
    assert not again.recheck and again.record(budget).theta == {"n": 10.0}


def test_thresholds_that_failures_have_halved_are_not_lowered_limits() -> None:
    """However often everything is lost within one batch, the losses add up to less than Θ."""
    budget = ErrorBudget(tolerance=Approximate(THETA), states={"n": HashTable()}, place=Place(workers=1))
    record = WorkerState.at("a", worker=0, completed=3).record(budget)
    losses: list[Loss] = []
    for number in range(6):
        members, undeclared = restore_workers(
            batch=4,
            budget=budget,
            slots={"a": 1},
            recorded=RecordedWorkers(3, [record]),
            losses=losses,
            survivors=[],
        )
        (member,) = members
        lost = member.lost(budget, "a", None, None if undeclared else LossEvidence(member.incarnation))
        failure = lost.counted_failures[-1]
        losses.append(
            Loss(
                batch=4,
                operator="o",
                worker=0,
                incarnation=member.incarnation,
                counted=True,
                cause="",
                theta={},
                failures=number,
                counted_failure=failure,
            )
        )
    assert budget.realised([lost.counted_failures])["n"] < THETA
