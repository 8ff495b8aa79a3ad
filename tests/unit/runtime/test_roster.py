"""What the driver concludes from reports: pure decisions."""

from __future__ import annotations

import math
from typing import Any

import pytest

from afspark.errors import OperatorFailed
from afspark.model.states import HashTable, Matrix
from afspark.policies import Approximate, MiniBatch, Nothing, Tolerance, counts_as_failure
from afspark.runtime.lifecycle import Hint
from afspark.runtime.orders import Report, Status
from afspark.runtime.roster import Member, Terms, Verdict, digests_agree, judge
from afspark.store import CompactionRule, ObjectRef

STATES = {
    "counts": HashTable(key="string", value="int64", divergence="max"),
    "sums": Matrix(rows=2, cols=2, value="float64", divergence="manhattan"),
    "keys": HashTable(key="string", value="int64", exact=True),
}


def terms(tolerance: Tolerance | None = None, *, keyed: bool = False, workers: int = 4) -> Terms:
    return Terms(tolerance=tolerance or Approximate(800.0), states=STATES, workers=workers, keyed=keyed)


def ref(number: int, *, full: bool = False, cells: int = 10) -> ObjectRef:
    return ObjectRef(f"object-{number}", "sum", 100, cells, full)


def report(worker: int = 0, status: Status = Status.APPLIED, **facts: Any) -> Report:
    return Report(worker=worker, status=status, host="a", **facts)


@pytest.mark.parametrize(
    ("status", "home_alive", "verdict"),
    [
        (Status.APPLIED, True, Verdict.DONE),
        (Status.APPLIED, False, Verdict.DONE),
        (Status.FAILED, True, Verdict.FAIL),
        (Status.MISSING, True, Verdict.LOST),
        (Status.CONTRADICTORY, True, Verdict.REFUSE),
        (Status.MISPLACED, True, Verdict.RETRY),
        (Status.MISPLACED, False, Verdict.AWAIT_HOST),
    ],
)
def test_verdicts(status: Status, home_alive: bool, verdict: Verdict) -> None:
    member = Member(worker=0, home="a")
    assert judge(member, report(status=status), ["a"] if home_alive else ["b"]) is verdict


def test_no_report_is_no_proof_of_a_loss() -> None:
    assert judge(Member(worker=0, home="a"), None, []) is Verdict.RETRY


def test_thresholds_follow_partitioning_and_norm() -> None:
    assert terms(keyed=False).theta(0) == {"counts": 100.0, "sums": 100.0, "keys": 0.0}
    assert terms(keyed=True).theta(0) == {"counts": 400.0, "sums": 100.0, "keys": 0.0}
    assert terms(keyed=True).theta(3) == {"counts": 50.0, "sums": 12.5, "keys": 0.0}
    assert set(terms(MiniBatch()).theta(0).values()) == {0.0}
    assert set(terms(Nothing()).theta(0).values()) == {math.inf}


def test_a_loss_begins_a_new_incarnation_and_halves() -> None:
    member = Member(worker=1, home="a", completed=3, chain=(ref(1),), hint=Hint.RESUME)
    lost = member.lost(terms(), "b")
    assert (lost.home, lost.incarnation, lost.failures, lost.completed, lost.hint) == ("b", 1, 1, 0, Hint.RECOVER)
    assert lost.missing == {"counts": 100.0, "sums": 100.0, "keys": 0.0}
    order = lost.order(7, terms(), 5)
    assert (order.batch, order.chain, order.fence, order.home) == (7, (ref(1),), 5, "b")
    assert order.theta == terms().theta(1) and order.missing == lost.missing


def test_an_incarnation_that_completed_nothing_costs_nothing() -> None:
    once = Member(worker=1, home="a", completed=3).lost(terms(), "a")
    twice = once.lost(terms(), "a")
    assert (twice.incarnation, twice.failures, twice.missing) == (2, 1, once.missing)
    assert counts_as_failure(completed=1) and not counts_as_failure(completed=0)


def test_nothing_is_missing_where_nothing_was_promised() -> None:
    lost = Member(worker=0, home="a", completed=1).lost(terms(Nothing()), "a")
    assert all(math.isfinite(value) for value in lost.missing.values())
    assert lost.incarnation == 1


def test_a_batch_extends_the_chain_and_a_full_image_replaces_it() -> None:
    member = Member(worker=0, home="a", chain=(ref(1), ref(2)), hint=Hint.RECOVER, recheck=True)
    plain = member.applied(report())
    assert (plain.chain, plain.completed, plain.hint, plain.recheck) == (member.chain, 1, Hint.RESUME, False)
    partial = plain.applied(report(backup=ref(3)))
    assert partial.chain == (ref(1), ref(2), ref(3)) and partial.completed == 2
    full = partial.applied(report(backup=ref(4, full=True)))
    assert full.chain == (ref(4, full=True),) and full.previous == partial.chain


def test_orders_name_backups_only_for_recoveries() -> None:
    member = Member(worker=0, home="a", chain=(ref(1),), previous=(ref(0),), hint=Hint.RESUME)
    assert member.order(1, terms()).chain == () and member.order(1, terms()).previous == ()
    assert member.lost(terms(), "a").order(1, terms()).previous == (ref(0),)


def test_a_full_image_is_ordered_when_the_rule_says_so() -> None:
    rule = CompactionRule(floor_cells=20)
    agreed = Terms(tolerance=MiniBatch(), states=STATES, workers=1, keyed=False, compaction=rule)
    assert not Member(worker=0, home="a", chain=(ref(1),)).order(1, agreed).full
    assert Member(worker=0, home="a", chain=(ref(1), ref(2))).order(1, agreed).full


def test_a_record_says_what_the_next_driver_needs() -> None:
    member = Member(worker=2, home="b", incarnation=3, failures=2, completed=5, chain=(ref(1),), previous=(ref(0),))
    record = member.record(terms())
    assert (record.worker, record.host, record.incarnation, record.failures, record.completed) == (2, "b", 3, 2, 5)
    assert (record.chain, record.previous, record.theta) == ((ref(1),), (ref(0),), terms().theta(2))


def test_digests_agree_only_if_all_workers_saw_the_same_outputs() -> None:
    first = report(0, consumed={"0": "x", "1": "y"})
    assert digests_agree([first, report(1, consumed={"0": "x", "1": "y"})])
    assert not digests_agree([first, report(1, consumed={"0": "x", "1": "z"})])
    assert digests_agree([report(0), report(1)])


def test_reports_survive_the_segment_they_are_kept_in() -> None:
    kept = report(3, backup=ref(1), consumed={"0": "x"}, items=5, damaged=("object-9",), drift={"counts": 1.5})
    assert Report.from_json(kept.to_json()) == kept
    failed = report(status=Status.FAILED, error=OperatorFailed("no", batch=1, worker=0, trace=""))
    assert Report.from_json(failed.to_json()).error is None
