"""Checks that can fail: each scenario passes as it stands, and not when a part of recovery is taken away."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.recovery.verdicts import Verdict, judge
from afspark.errors import WorkerFailed
from afspark.model.states.cells import CellState
from afspark.policies import Approximate
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from afspark.protocol.reports import Status, TaskReport
from afspark.resident import Segment, header
from afspark.store import Ledger, RecordLog, WorkerRecord
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.test_engine_drivers import after_record
from tests.unit.runtime.test_engine_failures import plan, worst
from tests.unit.runtime.test_engine_placement import Half, one_reading, salted

Patch = Callable[[pytest.MonkeyPatch], None]
Scenario = Callable[[MakeRig], None]
EVERY_SECOND = FaultPlan(
    frozenset(InjectedFailure(batch, FaultPhase.BETWEEN) for batch in (1, 3, 5, 7)), "every second"
)


def killed_half_way(make_rig: MakeRig) -> None:
    """A process dies with half a batch applied; its state survives."""
    rig, truth = make_rig()
    marker = rig.root / "marker"
    rig.hosts.fork()
    rig.start(operator=Half(str(marker)))
    rig.go(3)
    marker.touch()
    rig.go()
    assert rig.counts() == truth and rig.ledger == []


def driver_dies_after_its_record(make_rig: MakeRig) -> None:
    """The record of batch 3 exists, Spark has not committed it, and the state is gone."""
    rig, truth = make_rig()
    rig.drive_and_die(partial(after_record, rig))
    rig.lose()
    rig.start()
    rig.go()
    assert rig.counts() == truth


def driver_dies_and_state_survives(make_rig: MakeRig) -> None:
    rig, truth = make_rig(tolerance=Approximate(400.0))
    rig.drive_and_die(partial(after_record, rig))
    rig.start()
    rig.go()
    assert rig.counts() == truth and rig.ledger == []


def many_failures(make_rig: MakeRig) -> None:
    """Each failure comes when as much as allowed has not been backed up."""
    rig, truth = make_rig(batches=8, tolerance=Approximate(200.0), faults=EVERY_SECOND)
    rig.go()
    assert 0 < worst(truth, rig.counts()) <= rig.bound() <= 200.0


def driver_restarts_after_a_loss(make_rig: MakeRig) -> None:
    """The failures of an earlier run count in the next one."""
    rig, truth = make_rig(batches=9, tolerance=Approximate(200.0))
    for _ in range(4):
        rig.go(1)
        rig.lose()
        rig.go(1)
        rig.start()
    rig.go()
    assert worst(truth, rig.counts()) <= rig.bound() <= 200.0


def killed_after_the_backup(make_rig: MakeRig) -> None:
    """The process dies between writing its backup and ending the batch; a batch later the host is lost."""
    rig, truth = make_rig(tolerance=Approximate(80.0))
    rig.go(2)
    for worker in range(2):
        rig.hosts.kill("operator", worker, FaultPhase.BACKING_UP)
    rig.go(1)
    assert rig.ledger == []
    rig.lose()
    rig.go()
    assert worst(truth, rig.counts()) <= rig.bound() <= 80.0


def task_goes_astray(make_rig: MakeRig) -> None:
    rig, truth = make_rig(tolerance=Approximate(400.0))
    rig.go(2)
    rig.hosts.astray = {("job", 0): "b"}
    rig.go()
    assert rig.hosts.astray == {}
    assert rig.counts() == truth and rig.ledger == []


def map_outputs_are_lost(make_rig: MakeRig) -> None:
    rig, truth = make_rig(keyed=True, transforms=(salted,))
    rig.hosts.fork()

    def lose_outputs(kind: str, partition: int, attempt: int) -> None:
        if kind == "reduce" and partition == 1 and rig.committed == 2:
            rig.hosts.before = None
            rig.hosts.forget_outputs()

    rig.hosts.before = lose_outputs
    rig.go()
    one_reading(rig.counts(), truth)


def host_is_lost(make_rig: MakeRig) -> None:
    rig, truth = make_rig(faults=plan(FaultPhase.COMMITTING, 3))
    rig.go()
    assert rig.counts() == truth
    assert all(entry.recovery.covered for entry in rig.ledger)


def input_is_not_replayed(make_rig: MakeRig) -> None:
    """A loss in the middle of a batch: the batch must run again on the restored state."""
    rig, truth = make_rig(faults=plan(FaultPhase.APPLYING, 3))
    rig.go()
    assert rig.counts() == truth


def no_rollback(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CellState, "rollback", lambda state: None)


def newest_record_wins(patch: pytest.MonkeyPatch) -> None:
    real = RecordLog.open_epoch
    patch.setattr(RecordLog, "open_epoch", lambda log, upto: real(log, upto + 1))


def no_survivors(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("afspark.coordinator.recovery.discovery.find_survivors", lambda *where: [])


def failures_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("afspark.coordinator.worker_state.counts_as_failure", lambda *, completed, steps=False: False)


def thresholds_stay(patch: pytest.MonkeyPatch) -> None:
    real = ErrorBudget.theta
    patch.setattr(ErrorBudget, "theta", lambda budget, counted_failures, pane=None: real(budget, (), pane))


def ledger_forgets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "_read", lambda ledger: {})
    patch.setattr("afspark.coordinator.worker_state.WorkerState.record", _without_failures)


def _without_failures(member: Any, budget: ErrorBudget) -> Any:
    return WorkerRecord(
        worker=member.worker,
        incarnation=member.incarnation,
        failures=0,
        completed=member.completed,
        host=member.home,
        theta=budget.theta(()),
        chain=member.chain,
        previous=member.previous,
    )


def acknowledged_at_once(patch: pytest.MonkeyPatch) -> None:
    real = CellState.issue

    def issue(state: CellState, theta: float, *, everything: bool = False) -> Any:
        pairs = real(state, theta, everything=everything)
        state.acknowledge()
        return pairs

    patch.setattr(CellState, "issue", issue)


def astray_means_lost(patch: pytest.MonkeyPatch) -> None:
    def judge_badly(member: Any, report: Any, alive: Any) -> Verdict:
        verdict = judge(member, report, alive)
        return Verdict.LOST if report is not None and report.status.value == "misplaced" else verdict

    patch.setattr("afspark.coordinator.worker_group.judge", judge_badly)


def digests_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("afspark.coordinator.stage_runner.digests_agree", lambda reports, produced: True)


def backups_never_arrive(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("afspark.store.base.SubStore.put", _keep_objects_back)


def _keep_objects_back(store: Any, name: str, data: bytes) -> None:
    if not name.startswith("objects/"):
        store._inner.put(f"{store._folder}/{name}", data)


def loss_skips_the_batch(patch: pytest.MonkeyPatch) -> None:
    """Workers recover to the batch itself instead of the one before it."""
    real = Segment.restored

    def restored(segment: Segment, version: int) -> None:
        report = TaskReport(worker=segment.identity.worker, status=Status.APPLIED, host="a").to_json()
        (segment.directory / f"report-{version + 1}.").write_text(json.dumps(report))
        real(segment, version + 1)
        segment._slots[header.SLOT_KEPT] = version

    patch.setattr(Segment, "restored", restored)


SABOTAGE: list[tuple[Scenario, Patch]] = [
    (killed_half_way, no_rollback),
    (driver_dies_after_its_record, newest_record_wins),
    (driver_dies_and_state_survives, no_survivors),
    (many_failures, failures_do_not_count),
    (many_failures, thresholds_stay),
    (driver_restarts_after_a_loss, ledger_forgets),
    (killed_after_the_backup, acknowledged_at_once),
    (task_goes_astray, astray_means_lost),
    (map_outputs_are_lost, digests_ignored),
    (map_outputs_are_lost, no_rollback),
    (host_is_lost, backups_never_arrive),
    (input_is_not_replayed, loss_skips_the_batch),
]


@pytest.mark.some(2)
@pytest.mark.parametrize("scenario", dict.fromkeys(scenario for scenario, _ in SABOTAGE), ids=lambda s: s.__name__)
def test_the_scenario_passes(make_rig: MakeRig, scenario: Scenario) -> None:
    scenario(make_rig)


@pytest.mark.some(3)
@pytest.mark.parametrize(("scenario", "patch"), SABOTAGE, ids=lambda part: part.__name__)
def test_the_scenario_notices(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, scenario: Scenario, patch: Patch
) -> None:
    patch(monkeypatch)
    # The engine may notice itself, and stop.
    with pytest.raises((AssertionError, WorkerFailed)):
        scenario(make_rig)
