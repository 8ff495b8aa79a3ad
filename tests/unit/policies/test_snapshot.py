"""Barrier snapshots as a tolerance: what may be asked for, and when a barrier is due."""

from __future__ import annotations

import math
from typing import Any

import pytest

from afspark.bounds import Place
from afspark.errors import UsageError
from afspark.numbers import Batch
from afspark.policies import BackupNeed, BarrierSnapshot, MiniBatch
from afspark.policies.plans import AwaitBarrier

BAD = [0, 0.0, -1, -0.5, math.nan, math.inf, -math.inf, True, False, "1", (1,)]


@pytest.mark.parametrize("value", BAD, ids=repr)
@pytest.mark.parametrize("name", ["interval", "batches", "items"])
def test_what_no_barrier_can_be_apart(name: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        BarrierSnapshot(**{name: value})
    assert name in caught.value.fields and caught.value.remedy


@pytest.mark.parametrize("name", ["batches", "items"])
@pytest.mark.parametrize("value", [0.5, 1.5])
def test_there_is_no_half_batch_and_no_half_item(name: str, value: float) -> None:
    with pytest.raises(UsageError) as caught:
        BarrierSnapshot(**{name: value})
    assert caught.value.fields == {name: value}


@pytest.mark.parametrize("value", [*BAD, 1.5, 2.0], ids=repr)
@pytest.mark.parametrize("name", ["full_every", "keep"])
def test_what_cannot_be_kept_and_how_often_no_image_can_be_full(name: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        BarrierSnapshot(**{name: value})
    assert name in caught.value.fields and caught.value.remedy


def test_how_much_is_kept_and_how_long_a_chain_becomes() -> None:
    assert (BarrierSnapshot().longest_chain, BarrierSnapshot().records_kept) == (None, None)
    assert BarrierSnapshot(full_every=1).longest_chain == 1 and BarrierSnapshot(keep=2).records_kept == 2
    with pytest.raises(UsageError) as caught:
        BarrierSnapshot(keep=1)
    assert caught.value.keep == 1


@pytest.mark.parametrize(
    "given",
    [
        {"interval": 1.0, "batches": 2},
        {"batches": 2, "items": 5},
        {"interval": 1, "items": 5},
        {"interval": 1, "batches": 2, "items": 3},
    ],
)
def test_there_is_one_interval(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        BarrierSnapshot(**given)


@pytest.mark.parametrize("recovery", ["", "Full", "none", None, True])
def test_unknown_recovery(recovery: Any) -> None:
    with pytest.raises(UsageError):
        BarrierSnapshot(recovery=recovery)


def test_when_one_is_due() -> None:
    by_time, by_batches, by_items = (
        BarrierSnapshot(interval=2.5),
        BarrierSnapshot(batches=3),
        BarrierSnapshot(items=100),
    )
    much: dict[str, Any] = {"seconds": 1e9, "batches": 10**9, "items": 10**9}
    assert not by_time.is_due(**{**much, "seconds": 2.49}) and by_time.is_due(seconds=2.5, batches=0, items=0)
    assert not by_batches.is_due(**{**much, "batches": 2}) and by_batches.is_due(seconds=0.0, batches=3, items=0)
    assert not by_items.is_due(**{**much, "items": 99}) and by_items.is_due(seconds=0.0, batches=0, items=100)
    assert BarrierSnapshot().is_due(seconds=1.0, batches=0, items=0)


def test_it_is_exact_whatever_happens() -> None:
    case: dict[str, Any] = {"failures": 7, "place": Place(workers=4), "divergence": "max"}
    one = BarrierSnapshot()
    assert one.exact and one.promise() == one.promise(3.0) == 0.0
    assert one.allowance(exact=False, **case) == one.allowance(exact=True, decaying=True, **case) == 0.0


def test_between_barriers_nothing_is_written_and_nothing_covered() -> None:
    need = BackupNeed(batch=Batch(3), theta={"counts": 0.0}, items=0.0)
    assert BarrierSnapshot().backup_plan(need) == MiniBatch().backup_plan(need)
    between = BarrierSnapshot().backup_plan(BackupNeed(batch=Batch(3), theta={"counts": 0.0}, items=0.0, barrier=False))
    assert isinstance(between, AwaitBarrier) and not between.covers
    assert between.allows(["counts"]) == {"counts": 0.0}


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (BarrierSnapshot(), {"interval": 1.0}),
        (BarrierSnapshot(batches=4), {"batches": 4}),
        (BarrierSnapshot(batches=4, full_every=5, keep=3), {"batches": 4, "full_every": 5, "keep": 3}),
        (BarrierSnapshot(items=9, asynchronous=False, recovery="full"), {"items": 9}),
    ],
    ids=repr,
)
def test_it_tells_what_was_chosen(one: BarrierSnapshot, told: dict[str, Any]) -> None:
    rest = {"name": "snapshot", "asynchronous": one.asynchronous, "recovery": one.recovery}
    assert one.to_json() == told | rest
