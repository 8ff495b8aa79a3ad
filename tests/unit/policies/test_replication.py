"""The six schemes as tolerances: what users may ask for, and what is promised."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from afspark.bounds import Place
from afspark.errors import UsageError
from afspark.numbers import Batch
from afspark.policies import BackupNeed, BarrierSnapshot, HotStandby, MiniBatch, Replicated, ThresholdBackup
from afspark.policies.parameters import LARGEST_COUNT
from afspark.policies.plans import AwaitBarrier
from afspark.policies.replication import SCHEMES, ActiveStandby, Followed

CASE: dict[str, Any] = {"failures": 2, "place": Place(workers=4), "divergence": "max", "exact": False}
NEED = BackupNeed(batch=Batch(3), theta={"counts": 0.0}, items=0.0)
BETWEEN = BackupNeed(batch=Batch(3), theta={"counts": 0.0}, items=0.0, barrier=False)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_precise_recovery_loses_nothing(scheme: type[Replicated]) -> None:
    one = scheme()
    assert one.exact and one.replays and one.needs_records and not one.approximates
    assert one.promise() == one.promise(3.0) == one.allowance(**CASE) == 0.0
    assert one.backup_plan(NEED) == MiniBatch().backup_plan(NEED)
    assert one.backup_plan(BETWEEN) == AwaitBarrier()
    assert one.reason and "\n" not in one.reason


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gap_recovery_promises_nothing_and_checkpoints_everything(scheme: type[Replicated]) -> None:
    one = scheme(gap=True)
    assert one.leaves_gap and not one.exact and one.promise() is None
    need = BackupNeed(batch=Batch(3), theta={"counts": one.allowance(**CASE)}, items=5.0, full=True)
    assert one.backup_plan(need) == ThresholdBackup(theta={"counts": 0.0}, items=5.0, full=True)
    assert one.backup_plan(BETWEEN) == AwaitBarrier()


def test_barriers_are_those_of_snapshots() -> None:
    assert HotStandby().interval == BarrierSnapshot().interval and HotStandby(interval=0.5).barrier_seconds == 0.5
    by_batches = HotStandby(batches=3, full_every=4, keep=2, unacked=8)
    assert not by_batches.is_due(seconds=99.0, batches=2, items=10**6)
    assert by_batches.is_due(seconds=0.0, batches=3, items=0)
    assert (by_batches.longest_chain, by_batches.records_kept) == (4, 2)
    assert by_batches.unacked_allowance(failures=0, place=Place(workers=4)) == 2.0
    assert by_batches.keeps_upstream and HotStandby(log_items=True).logs_first


def test_each_has_a_name_of_its_own_and_tells_what_was_chosen() -> None:
    assert len({scheme.name for scheme in SCHEMES}) == 6
    for scheme in SCHEMES:
        told = json.loads(json.dumps(scheme(items=9, gap=True).to_json(), allow_nan=False))
        stored = {"store_every": 8} if issubclass(scheme, Followed) else {}
    assert told == {"name": scheme.name, "items": 9, "gap": True, **stored}


@pytest.mark.parametrize(
    "given", [{"interval": 0}, {"batches": 1.5}, {"interval": 1, "batches": 1}, {"gap": 1}], ids=str
)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_cannot_be_meant(scheme: type[Replicated], given: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        scheme(**given)
    assert "\n" not in str(caught.value)


def test_the_right_policy_is_named_where_there_are_two_intervals() -> None:
    with pytest.raises(UsageError) as caught:
        HotStandby(interval=1, items=5)
    assert "HotStandby" in str(caught.value) and caught.value.remedy


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("apart", [{"interval": 0.5}, {"batches": 3}, {"items": 70}])
def test_what_follows_needs_few_checkpoints(scheme: type[Replicated], apart: dict[str, Any]) -> None:
    one = scheme(**apart)
    ((name, distance),) = apart.items()
    times = 8 if issubclass(scheme, Followed) else 1
    assert getattr(one.rarely, name) == times * distance and one.rarely.rarely == one.rarely
    if issubclass(scheme, Followed):
        assert scheme(**apart, store_every=1).rarely == scheme(**apart, store_every=1)
        with pytest.raises(UsageError, match="store_every"):
            scheme(**apart, store_every=0)


@pytest.mark.parametrize("apart", [{"interval": sys.float_info.max}, {"batches": LARGEST_COUNT}, {"items": 2**62}])
def test_few_of_the_fewest_can_still_be_given(apart: dict[str, Any]) -> None:
    ((name, distance),) = apart.items()
    assert getattr(ActiveStandby(**apart).rarely, name) >= distance
