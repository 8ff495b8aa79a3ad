"""What the driver concludes from reports: pure decisions."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from afspark.bounds import Place
from afspark.coordinator.digests import digests_agree
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.recovery.verdicts import Verdict, judge, reasons
from afspark.coordinator.worker_state import Covered, DurableState, WorkerState
from afspark.errors import OperatorFailed
from afspark.model.states import HashTable, Matrix
from afspark.model.windows import PaneReport
from afspark.numbers import Batch, Incarnation
from afspark.policies import (
    Approximate,
    KeepResident,
    MiniBatch,
    NoBackup,
    Nothing,
    RestoreChain,
    StartEmpty,
    ThresholdBackup,
    Tolerance,
    counts_as_failure,
)
from afspark.protocol.lifecycle import Hint
from afspark.protocol.replicas import Replica, ReplicaId
from afspark.protocol.reports import Status, TaskReport
from afspark.store import CommitRecord, CompactionRule, CountedFailure, ObjectRef, WorkerRecord

#: A role that no feature has yet.
STANDBY: Any = "standby"

STATES = {
    "counts": HashTable(key="string", value="int64", divergence="max", operator_key=True),
    "sums": Matrix(rows=2, cols=2, value="float64", divergence="manhattan"),
    "keys": HashTable(key="string", value="int64", exact=True),
}


def budget(tolerance: Tolerance | None = None, *, keyed: bool = False, workers: int = 4) -> ErrorBudget:
    place = Place(workers=workers, keyed=keyed)
    return ErrorBudget(tolerance=tolerance or Approximate(800.0), states=STATES, place=place)


def counted_failures(count: int) -> tuple[CountedFailure, ...]:
    return tuple(CountedFailure(taken={"counts": float(number)}) for number in range(1, count + 1))


def ref(number: int, *, full: bool = False, cells: int = 10) -> ObjectRef:
    return ObjectRef(f"object-{number}", "sum", 100, cells, full)


def report(worker: int = 0, status: Status = Status.APPLIED, **facts: Any) -> TaskReport:
    return TaskReport(worker=worker, status=status, host="a", **facts)


@pytest.mark.parametrize(
    ("status", "home_alive", "verdict"),
    [
        (Status.APPLIED, True, Verdict.DONE),
        (Status.APPLIED, False, Verdict.DONE),
        (Status.FAILED, True, Verdict.FAIL),
        (Status.BUSY, True, Verdict.RETRY),
        (Status.MISSING, True, Verdict.LOST),
        (Status.CONTRADICTORY, True, Verdict.REFUSE),
        (Status.MISPLACED, True, Verdict.RETRY),
        (Status.MISPLACED, False, Verdict.AWAIT_HOST),
    ],
)
def test_verdicts(status: Status, home_alive: bool, verdict: Verdict) -> None:
    member = WorkerState.at("a", worker=0)
    assert judge(member.primary, report(status=status), ["a"] if home_alive else ["b"]) is verdict


def test_what_others_have_done_is_no_reason_why_a_batch_was_not_applied() -> None:
    found = [report(status=Status.APPLIED, detail="apply"), report(status=Status.BUSY, detail="the lane is away")]
    assert reasons([*found, *found]) == ["the lane is away"] and reasons(found[:1]) == []


def test_no_report_is_no_proof_of_a_loss() -> None:
    assert judge(WorkerState.at("a", worker=0).primary, None, []) is Verdict.RETRY


def test_a_replica_moves_alone_and_requests_name_it() -> None:
    home, other = Replica(worker=3, index=1, home="b"), Replica(worker=3, index=2, role=STANDBY, home="c")
    member = WorkerState(worker=3, replicas=(other, home))
    assert member.primary == home and member.home == "b"
    moved = member.moved(home.id, "d")
    assert [replica.home for replica in moved.replicas] == ["c", "d"]
    request = moved.request(0, budget())
    assert (request.replica_id, request.home) == (ReplicaId(3, 1), "d")
    assert report(3, replica=1).replica_id == request.replica_id != report(3).replica_id
    lost = replace(moved, completed=1).lost(budget(), "e")
    assert [replica.home for replica in lost.replicas] == ["c", "e"]


def test_thresholds_follow_partitioning_and_norm() -> None:
    assert budget(keyed=False).theta(()) == {"counts": 100.0, "sums": 100.0, "keys": 0.0}
    assert budget(keyed=True).theta(()) == {"counts": 400.0, "sums": 100.0, "keys": 0.0}
    assert budget(keyed=True).theta(counted_failures(3)) == {"counts": 50.0, "sums": 12.5, "keys": 0.0}
    assert set(budget(MiniBatch()).theta(()).values()) == {0.0}
    assert set(budget(Nothing()).theta(()).values()) == {math.inf}


def test_the_place_in_a_pipeline_lowers_thresholds() -> None:
    place = Place(workers=2, weight=1 / 4, fan_out=2, downstream=1)
    agreed = ErrorBudget(tolerance=Approximate(1600.0, items=32), states=STATES, place=place)
    assert agreed.theta(()) == {"counts": 50.0, "sums": 50.0, "keys": 0.0}
    assert agreed.items(()) == 1.0 and agreed.items(counted_failures(2)) == 0.25


def test_a_gap_counts_whatever_its_incarnation_has_completed() -> None:
    """One that was promoted had been left all batches, and the feedback that waited after the last of them."""
    member = WorkerState.at("a", worker=1, version=9, incarnation=Incarnation(1), hint=Hint.RESUME)
    assert member.lost(budget(), "b", durable=DurableState(9, Incarnation(1))).failures == 0
    gap = DurableState(9, Incarnation(1), older_theta=dict.fromkeys(STATES, math.inf), waiting=3, gap_batches=4)
    lost = member.lost(budget(), "b", durable=gap)
    assert (lost.failures, lost.lost_items) == (1, 3) and math.inf in lost.counted_failures[0].theta.values()


def test_a_loss_begins_a_new_incarnation_and_halves() -> None:
    member = WorkerState.at("a", worker=1, completed=3, chain=(ref(1),), hint=Hint.RESUME)
    lost = member.lost(budget(), "b")
    assert (lost.home, lost.incarnation, lost.failures, lost.completed, lost.hint) == ("b", 1, 1, 0, Hint.RECOVER)
    assert budget().missing(lost.counted_failures) == {"counts": 100.0, "sums": 100.0, "keys": 0.0}
    request = lost.request(7, budget(), 5)
    assert (request.batch, request.fence, request.home) == (7, 5, "b")
    assert request.recovery == RestoreChain(chain=(ref(1),))
    halved = budget().theta(counted_failures(1))
    assert request.backup == ThresholdBackup(theta=halved, items=0.0)
    assert request.missing == budget().missing(lost.counted_failures)


def test_losses_add_up_as_they_were() -> None:
    """Each with the threshold that was in force, whatever is in force now."""
    member = WorkerState.at("a", worker=1, completed=3).lost(budget(), "a")
    again = member.applied(report(), budget()).lost(budget(), "a")
    assert budget(Approximate(8.0)).missing(again.counted_failures) == {"counts": 150.0, "sums": 150.0, "keys": 0.0}
    assert budget().realised([again.counted_failures, member.counted_failures])["counts"] == 250.0
    assert budget(keyed=True).realised([again.counted_failures, member.counted_failures])["counts"] == 150.0


def test_the_first_batch_after_a_loss_is_told_of_it() -> None:
    member = WorkerState.at("a", worker=1, completed=3, waiting=4, counted_failures=counted_failures(1))
    lost = member.lost(budget(), "a")
    assert (lost.waiting, lost.lost_items) == (0, 4)
    request = lost.request(7, budget())
    assert request.lost == budget().theta(counted_failures(1)) and request.lost_items == 4
    assert lost.lost(budget(), "a").request(7, budget()).lost_items == 4, "an incarnation that was never told took them"
    later = lost.applied(report(), budget()).request(8, budget())
    assert later.lost is None and later.lost_items == 0
    assert WorkerState.at("a", worker=1).request(0, budget()).lost is None


def test_feedback_in_no_backup_waits() -> None:
    member = WorkerState.at("a", worker=1, waiting=3)
    sent = {"fed_back": {"source": 2, "other": 3}}
    assert member.applied(report(**sent, feedback_durable=False), budget()).waiting == 5
    assert member.applied(report(**sent), budget()).waiting == 0


def test_an_incarnation_that_completed_nothing_costs_nothing() -> None:
    once = WorkerState.at("a", worker=1, completed=3).lost(budget(), "a")
    twice = once.lost(budget(), "a")
    assert (twice.incarnation, twice.failures, twice.counted_failures) == (2, 1, once.counted_failures)
    assert counts_as_failure(completed=1) and not counts_as_failure(completed=0)


def test_nothing_is_missing_where_nothing_was_promised() -> None:
    """Operators are told what bounds cover; that none covers the loss is in the ledger."""
    lost = WorkerState.at("a", worker=0, completed=1).lost(budget(Nothing()), "a")
    assert set(budget(Nothing()).missing(lost.counted_failures).values()) == {0.0}
    assert set(lost.counted_failures[0].theta.values()) == {math.inf}
    assert lost.incarnation == 1


def test_a_state_that_had_no_threshold_is_lost_under_another_policy() -> None:
    older = dict.fromkeys(STATES, math.inf)
    lost = WorkerState.at("a", worker=0, completed=1, older_theta=older).lost(budget(), "a")
    assert set(budget().missing(lost.counted_failures).values()) == {0.0}
    assert set(lost.counted_failures[0].theta.values()) == {math.inf}


def test_a_batch_extends_the_chain_and_a_full_image_replaces_it() -> None:
    member = WorkerState.at("a", worker=0, chain=(ref(1), ref(2)), hint=Hint.RECOVER, recheck=True)
    plain = member.applied(report(), budget())
    assert (plain.chain, plain.completed, plain.hint, plain.recheck) == (member.chain, 1, Hint.RESUME, False)
    partial = plain.applied(report(backups=(ref(3),)), budget())
    assert partial.chain == (ref(1), ref(2), ref(3)) and partial.completed == 2
    full = partial.applied(report(backups=(ref(4, full=True),)), budget())
    assert full.chain == (ref(4, full=True),) and full.previous == partial.chain


def test_requests_name_backups_only_for_recoveries() -> None:
    member = WorkerState.at("a", worker=0, chain=(ref(1),), previous=(ref(0),), hint=Hint.RESUME)
    assert member.request(1, budget()).recovery == KeepResident()
    assert replace(member, hint=Hint.CREATE).request(1, budget()).recovery == StartEmpty()
    assert member.lost(budget(), "a").request(1, budget()).recovery == RestoreChain(chain=(ref(1),), preceded=(ref(0),))


def test_a_full_image_is_requested_when_the_rule_says_so() -> None:
    rule = CompactionRule(floor_cells=20)
    agreed = ErrorBudget(tolerance=MiniBatch(), states=STATES, place=Place(), compaction=rule)
    few, many = ((ref(1),), (ref(1), ref(2)))
    plans = [WorkerState.at("a", worker=0, chain=chain).request(1, agreed).backup for chain in (few, many)]
    nothing = dict.fromkeys(STATES, 0.0)
    assert plans == [ThresholdBackup(theta=nothing), ThresholdBackup(theta=nothing, full=True)]


def test_what_is_not_backed_up_has_a_plan_that_says_so() -> None:
    plan = WorkerState.at("a", worker=0).request(1, budget(Nothing())).backup
    assert plan == NoBackup() and set(plan.described(STATES)["allows"].values()) == {math.inf}


def test_a_record_says_what_the_next_driver_needs() -> None:
    chains = {"chain": (ref(1),), "previous": (ref(0),)}
    affected = counted_failures(2)
    member = WorkerState.at("b", worker=2, incarnation=3, counted_failures=affected, completed=5, waiting=7, **chains)
    record = member.record(budget())
    assert (record.worker, record.host, record.incarnation, record.failures, record.completed) == (2, "b", 3, 2, 5)
    assert (record.chain, record.previous, record.theta) == ((ref(1),), (ref(0),), budget().theta(affected))
    assert record.waiting == 7
    assert WorkerRecord.from_json(json.loads(json.dumps(record.to_json()))).counted_failures == affected


def test_digests_agree_only_if_all_workers_saw_the_same_outputs() -> None:
    first = report(0, consumed={"0": "x", "1": "y"})
    assert digests_agree([first, report(1, consumed={"0": "x", "1": "y"})])
    assert not digests_agree([first, report(1, consumed={"0": "x", "1": "z"})])
    assert digests_agree([report(0), report(1)])


@pytest.mark.parametrize("other", [{"0": "x"}, {}, {"0": "x", "1": "y", "a<0": "z"}], ids=["fewer", "none", "more"])
def test_digests_do_not_agree_where_workers_saw_other_partitions(other: dict[str, str]) -> None:
    """What both have seen is the same, but one has not seen all, as if feedback had gone between two tasks."""
    first = report(0, consumed={"0": "x", "1": "y"})
    assert not digests_agree([first, report(1, consumed=other)])
    assert not digests_agree([report(0, consumed=other), first])


def test_digests_agree_only_if_senders_still_keep_what_was_applied() -> None:
    """A sender that has lost its state and applied the batch again may keep something else now."""
    applied = [report(worker, consumed={":0": "s", "a:0": "x", "a:1": "y"}) for worker in (0, 1)]
    assert digests_agree(applied, {"a:0": "x", "a:1": "y"})
    assert not digests_agree(applied, {"a:0": "x", "a:1": "z"})


def test_reports_survive_the_segment_they_are_kept_in() -> None:
    kept = report(
        3, replica=1, backups=(ref(1),), consumed={"0": "x"}, items=5, damaged=("object-9",), drift={"counts": 1.5}
    )
    assert TaskReport.from_json(json.loads(json.dumps(kept.to_json()))) == kept
    seen = PaneReport(worker=3, latest=9.5, panes=frozenset({7, -1}), late=2, unplaced=1)
    sent = report(3, panes=seen, produced={"all": "x"}, fed_back={"source": 2}, feedback_durable=False)
    assert TaskReport.from_json(json.loads(json.dumps(sent.to_json()))) == sent
    failed = report(status=Status.FAILED, error=OperatorFailed("no", batch=1, worker=0, trace=""))
    assert TaskReport.from_json(failed.to_json()).error is None


def test_who_has_started_since_the_durable_record_is_given_an_empty_state() -> None:
    covered = Covered.by(CommitRecord(Batch(7), "00000001-0123456789abcdef", operators={}))
    assert covered.state_of("new", 0) == DurableState(7)
