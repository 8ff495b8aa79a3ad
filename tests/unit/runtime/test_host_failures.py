"""When hosts fail and come back, decided without any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.cluster.loopback.host_failures import (
    FailureSchedule,
    KillHost,
    PlannedFailure,
    StartHost,
    seeded_host_failures,
)
from afspark.errors import UsageError

A, B, C = "127.0.0.2", "127.0.0.3", "127.0.0.4"


@given(count=st.integers(0, 12), more=st.integers(1, 50), hosts=st.integers(1, 5), seed=st.integers(0, 99))
def test_seeded_moments_are_spread_over_the_stream(count: int, more: int, hosts: int, seed: int) -> None:
    batches = count + more
    found = seeded_host_failures(count, batches=batches, hosts=hosts, seed=seed)
    assert found == seeded_host_failures(count, batches=batches, hosts=hosts, seed=seed)
    assert len(found) == count and len({one.batch for one in found}) == count
    assert [one.batch for one in found] == sorted(one.batch for one in found)
    assert all(1 <= one.batch < batches and 0 <= one.share < 1 and 0 <= one.host < hosts for one in found)


def test_another_seed_has_other_moments() -> None:
    found = {seeded_host_failures(3, batches=100, hosts=3, seed=seed) for seed in range(5)}
    assert len(found) == 5


def test_failures_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError) as refused:
        seeded_host_failures(3, batches=3, hosts=2, seed=1)
    assert (refused.value.failures, refused.value.batches) == (3, 3)


def kill(host: str, planned: PlannedFailure) -> KillHost:
    return KillHost(host, planned)


def test_a_host_is_killed_in_the_middle_of_a_batch_and_comes_back() -> None:
    planned = PlannedFailure(2, 0.5, 1)
    schedule = FailureSchedule((A, B), (planned,), away_seconds=3)
    look = {"batch_seconds": 4.0, "alive": {A, B}}
    assert schedule.is_idle(1) and schedule.actions(10, batches=1, **look) == []  # type: ignore[arg-type]
    assert not schedule.is_idle(2) and schedule.actions(11, batches=2, **look) == []  # type: ignore[arg-type]
    assert schedule.actions(12.9, batches=2, **look) == []  # type: ignore[arg-type]
    assert schedule.actions(13, batches=2, **look) == [kill(B, planned)]  # type: ignore[arg-type]
    assert schedule.left == 0 and not schedule.is_idle(2)
    assert schedule.actions(15.9, batches=3, batch_seconds=4, alive={A}) == []
    assert schedule.actions(16, batches=3, batch_seconds=4, alive={A}) == [StartHost(B)]
    assert schedule.actions(17, batches=3, batch_seconds=4, alive={A}) == []
    assert schedule.actions(20, batches=4, **look) == [] and schedule.is_idle(9)  # type: ignore[arg-type]


def test_the_last_host_is_spared_until_another_one_is_back_and_has_seen_a_batch() -> None:
    first, second = PlannedFailure(1, 0.0, 0), PlannedFailure(2, 0.0, 1)
    schedule = FailureSchedule((A, B), (first, second), away_seconds=1)
    assert schedule.actions(0, batches=1, batch_seconds=1, alive={A, B}) == [kill(A, first)]
    # Spark may not have noticed yet.
    assert schedule.actions(0.5, batches=2, batch_seconds=1, alive={A, B}) == []
    assert schedule.actions(1, batches=2, batch_seconds=1, alive={B}) == [StartHost(A)]
    assert schedule.actions(5, batches=5, batch_seconds=1, alive={B}) == []
    assert schedule.actions(6, batches=5, batch_seconds=1, alive={A, B}) == []
    assert schedule.actions(7, batches=6, batch_seconds=1, alive={A, B}) == [kill(B, second)]


def test_with_three_hosts_the_next_one_fails_at_once() -> None:
    first, second = PlannedFailure(1, 0.0, 0), PlannedFailure(2, 0.0, 0)
    schedule = FailureSchedule((A, B, C), (first, second), away_seconds=9)
    assert schedule.actions(0, batches=1, batch_seconds=1, alive={A, B, C}) == [kill(A, first)]
    assert schedule.actions(1, batches=2, batch_seconds=1, alive={B, C}) == [kill(B, second)], "the one drawn is away"


def test_a_single_host_fails_too() -> None:
    planned = PlannedFailure(1, 0.0, 0)
    schedule = FailureSchedule((A,), (planned,), away_seconds=1)
    assert schedule.actions(0, batches=1, batch_seconds=1, alive={A}) == [kill(A, planned)]
    assert schedule.actions(1, batches=1, batch_seconds=1, alive=()) == [StartHost(A)]


def test_hosts_come_back_after_the_end_and_none_fails() -> None:
    first, second = PlannedFailure(1, 0.0, 0), PlannedFailure(2, 0.0, 1)
    schedule = FailureSchedule((A, B, C), (first, second), away_seconds=1)
    assert schedule.actions(0, batches=1, batch_seconds=1, alive={A, B, C}) == [kill(A, first)]
    found = schedule.actions(1, batches=9, batch_seconds=1, alive={B, C}, killing=False)
    assert found == [StartHost(A)] and schedule.left == 1
