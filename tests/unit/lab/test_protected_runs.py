"""Real faults under tolerances do what these let them, and so do those under the advice of a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import afspark as af
from afspark.errors import UsageError
from afspark.lab.advice import advise
from afspark.lab.advised_trials import AdvisedCampaign, measured_again
from afspark.lab.findings import findings_of
from afspark.lab.protected_runs import ProtectedRuns
from afspark.lab.real_fault_trials import protected_runs, real_faults, run_real_fault
from afspark.lab.real_faults import HostFrozen, HostLost, ProcessKilled, StoreGone, StoreSlow, WorkersLost
from afspark.lab.spreading import InThisProcess
from afspark.lab.study import Study
from afspark.lab.study_plan import StudyPlan
from afspark.lab.trial_query import TrialQuery
from tests.unit.lab.small_pipelines import SMALL_STUDY, Even, Latest, Sums, rows

pytestmark = pytest.mark.some(3)


def planned(work: Path, tolerance: af.Tolerance) -> StudyPlan:
    def pipeline(stream):
        even = stream.apply(Even(), name="even", workers=1, tolerance=tolerance)
        return even.apply(Latest(), name="latest", workers=2, tolerance=tolerance)

    plan, _ = Study(pipeline, rows(2_400), work=work, **SMALL_STUDY)._planned(work)
    return plan


@pytest.mark.parametrize("tolerance", [af.MiniBatch(), af.BarrierSnapshot(), af.ActiveStandby()])
def test_nothing_shows_in_the_output_under_exact_policies(tmp_path: Path, tolerance: af.Tolerance) -> None:
    runs = protected_runs(planned(tmp_path, tolerance))
    for fault in real_faults(runs.plan):
        found = run_real_fault(runs, fault)
        assert found.unchanged and found.within_bound, found.sentence()
        assert "the output is the same" in found.sentence()


@pytest.mark.parametrize("tolerance", [af.Nothing(), af.Approximate(theta=1e9)])
def test_a_lost_state_shows_where_nothing_else_is_promised(tmp_path: Path, tolerance: af.Tolerance) -> None:
    runs = protected_runs(planned(tmp_path, tolerance))
    assert run_real_fault(runs, ProcessKilled("latest")).unchanged, "its state stays on the host"
    lost = run_real_fault(runs, WorkersLost("latest"))
    assert not lost.unchanged and lost.changed_keys
    assert "keys have other rows" in lost.sentence()
    assert not run_real_fault(runs, HostLost("latest"), 1).unchanged


def added_up(work: Path, tolerance: af.Tolerance) -> StudyPlan:
    def pipeline(stream):
        return stream.apply(Totals(), name="totals", workers=2, tolerance=tolerance)

    given = SMALL_STUDY | {"score": "count"}
    plan, _ = Study(pipeline, rows(2_400), work=work, **given)._planned(work)
    return plan


class Totals(Sums):
    """Sums that a gap leaves too small, by what was lost and no more."""

    alpha = 2_400.0
    approximable = True


def test_what_a_real_fault_leaves_is_compared_with_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = protected_runs(added_up(tmp_path, af.Approximate(theta=1e5)))
    lost = run_real_fault(runs, WorkersLost("totals"))
    assert not lost.unchanged and 0 < lost.bounds["totals"]["sums"] <= 1e5
    assert lost.within_bound is True
    told = TrialQuery.bounds
    monkeypatch.setattr(TrialQuery, "bounds", lambda *given: {name: off / 1e6 for name, off in told(*given).items()})
    assert run_real_fault(runs, WorkersLost("totals")).within_bound is False


def test_without_a_bound_there_is_no_verdict(tmp_path: Path) -> None:
    runs = protected_runs(added_up(tmp_path, af.Nothing()))
    lost = run_real_fault(runs, WorkersLost("totals"))
    assert not lost.unchanged and lost.within_bound is None


def test_faults_strike(tmp_path: Path) -> None:
    runs = protected_runs(planned(tmp_path, af.ActiveStandby()))
    runs.prepare()
    assert runs.trial(0).losses == 0
    assert runs.trial(0, WorkersLost("latest")).losses == 2
    assert runs.trial(0, HostLost("latest")).losses >= 1
    assert runs.trial(0, HostFrozen("latest")).losses >= 1
    slow, usual = runs.trial(0, StoreSlow()), runs.trial(0)
    assert slow.seconds > usual.seconds + 0.05
    assert runs.trial(0, StoreGone()).seconds > 0.3


def test_a_trial_goes_on_from_a_copy_and_ends_when_it_is_golden_again(tmp_path: Path) -> None:
    runs = protected_runs(planned(tmp_path, af.MiniBatch()))
    runs.prepare()
    begin = runs.plan.interleaving(0).batch_of(1_600) - 1
    trial = runs.trial(1, WorkersLost("even"))
    assert (trial.output.first, trial.output.last) == (begin, begin + 2)


# --- under the advice ---------------------------------------------------------------------------------------


def sums(stream):
    even = stream.apply(Even(), name="even", workers=1)
    return even.apply(Sums(), name="sums", workers=2)


def summed(work: Path | None = None, **changed: Any) -> Study:
    given = SMALL_STUDY | {"score": "sum:sum", "outages": (), "seconds": [1, 4], "rate": (40, 100), "failover": 0.5}
    return Study(sums, rows(2_400), work=work, **given | changed)


def test_metrics_are_measured_again_under_the_advised_tolerances(tmp_path: Path) -> None:
    found = findings_of(summed(tmp_path).run())
    assert {one.operator: one.need for one in found.advice.operators}["sums"] == "replicate"
    after = {one.operator: one for one in found.improvements}
    assert list(after) == ["source", "even", "sums"]
    for name in ("even", "sums"):
        assert (after[name].after.local.recovery, after[name].after.local.impact) == (0, 0.0)
        assert (after[name].before.local.impact or 0) > 0
    # Nothing brings back what a feed has not sent, but it was away for a shorter time.
    assert after["source"].after.outage.items == 50
    assert 0 < (after["source"].after.local.impact or 0) < (after["source"].before.local.impact or 0)
    assert "which no policy brings back" in after["source"].note
    assert "ActiveStandby" in after["sums"].note and "lost" in after["sums"].note


@pytest.mark.thorough
def test_targets_that_are_no_operators_keep_nobody_from_trials_under_the_advice(tmp_path: Path) -> None:
    result = summed(tmp_path, targets=["source", "sums", "sums.even", "even>", "even+sums"]).run()
    assert set(result.reruns) == {"source", "even", "sums"}
    assert result.notes == ()


def test_trials_under_advice_are_real(tmp_path: Path) -> None:
    """Under tolerances that lose a state, the loss is in the figures."""
    study = summed(tmp_path, failover=None)
    result = study.run()
    plan, _ = study._planned(tmp_path)
    careless = replace(
        advise(result),
        operators=tuple(
            replace(one, tolerance=None if one.tolerance is None else af.Nothing()) for one in advise(result).operators
        ),
    )
    again = measured_again(
        study._checked(plan), result, careless, failover=0.5, spread=InThisProcess(), progress=lambda done, total: None
    )
    after = {one.operator: one.after.local for one in findings_of(again).improvements}
    assert (after["sums"].impact or 0) > 0 and (after["sums"].recovery or 0) > 0
    assert after["even"].impact == 0, "without a state there is nothing to lose"


def test_trials_under_advice_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = summed(tmp_path).run()
    made: list[object] = []
    monkeypatch.setattr(ProtectedRuns, "trial", lambda *given, **named: made.append(given))
    assert summed(tmp_path).run().rerun_notes == first.rerun_notes
    assert not made


def test_a_study_is_not_lost_with_its_trials_under_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: object, **named: object) -> None:
        raise UsageError("It cannot be.")

    monkeypatch.setattr(ProtectedRuns, "prepare", refused)
    result = summed(tmp_path).run()
    assert result.notes[-1] == "The metrics were not measured again under the advice: It cannot be."
    assert result.observations and not result.reruns


def test_other_tolerances_are_other_trials(tmp_path: Path) -> None:
    plan = planned(tmp_path, af.MiniBatch())
    one, other = (AdvisedCampaign(plan, {"latest": each}, 2.0) for each in (af.MiniBatch(), af.ActiveStandby()))
    assert one.folder != other.folder
