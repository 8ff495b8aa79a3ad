"""When a batch is a barrier, and when somebody has to wait for the store."""

from __future__ import annotations

from typing import Any

import pytest

from afspark.coordinator.commit_pace import MOST_BATCHES, RECORDS_IN_KEPT, RECORDS_IN_REPLAY, CommitPace
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Tolerance


def pace(*tolerances: Tolerance, replayable: bool = True, most: float = 10.0) -> CommitPace:
    return CommitPace(tolerances or [MiniBatch()], replayable=replayable, max_replay_seconds=most)


def chosen(one: CommitPace, batch: int, now: float = 0.0, items: int = 0, **given: bool) -> tuple[bool, bool]:
    """(barrier, behind) of a batch, which ends as what it is."""
    one.choose(now, batch, items, under_way=given.get("under_way", False), must=given.get("must", False))
    if one.barrier:
        one.passed(now, batch, items)
    return one.barrier, one.behind


@pytest.mark.parametrize("tolerance", [MiniBatch(), Approximate(4.0)], ids=lambda one: one.name)
def test_every_batch_is_a_barrier_and_behind(tolerance: Tolerance) -> None:
    one = pace(tolerance)
    assert [chosen(one, batch, under_way=batch > 1) for batch in range(1, 5)] == [(True, True)] * 4
    assert one.skipped == 0


def test_who_has_to_wait() -> None:
    assert chosen(pace(), 3, must=True) == (True, False)
    assert chosen(pace(most=0.0), 3) == (True, False)
    assert chosen(pace(replayable=False), 3) == (True, False)
    assert chosen(pace(BarrierSnapshot(batches=1), most=0.0), 3) == (True, True)


def test_a_worker_has_no_more_to_replay_than_it_may() -> None:
    one = pace(most=10.0)
    one.cover(0)
    for batch in range(1, 5):
        one.ended(batch, 2.5)
    assert not one.is_late(5), "ten seconds are allowed"
    one.ended(5, 0.1)
    assert one.is_late(6)
    one.cover(1)
    assert not one.is_late(6)


def test_batches_that_spark_forgets_are_not_left_behind() -> None:
    one = pace(most=1e9)
    one.cover(3)
    assert not one.is_late(3 + MOST_BATCHES) and one.is_late(4 + MOST_BATCHES)


def test_a_barrier_every_so_often() -> None:
    one = pace(BarrierSnapshot(batches=3))
    assert chosen(one, 0, must=True) == (True, False)
    assert [chosen(one, batch)[0] for batch in range(1, 8)] == [False, False, True, False, False, True, False]


def test_a_barrier_after_a_time_or_so_many_items() -> None:
    by_time = pace(BarrierSnapshot(interval=2.0))
    by_items = pace(BarrierSnapshot(items=10))
    assert chosen(by_time, 0, now=100.0, must=True)[0] and chosen(by_items, 0, must=True)[0]
    assert [chosen(by_time, batch, now=100.0 + batch)[0] for batch in range(1, 5)] == [False, True, False, True]
    assert [chosen(by_items, batch, items=4 * batch)[0] for batch in range(1, 7)] == [False, False, True] * 2


def test_a_barrier_is_skipped_while_a_snapshot_is_under_way() -> None:
    one = pace(BarrierSnapshot(batches=2))
    chosen(one, 0, must=True)
    one.cover(0)
    assert [chosen(one, batch, under_way=True)[0] for batch in range(1, 5)] == [False] * 4
    assert one.skipped == 3
    assert chosen(one, 5) == (True, True) and one.skipped == 0


@pytest.mark.parametrize("trouble", ["must", "late"])
def test_a_barrier_that_must_be_is_not_skipped(trouble: str) -> None:
    one = pace(BarrierSnapshot(batches=2), most=1.0)
    chosen(one, 0, must=True)
    one.cover(0)
    given: dict[str, Any] = {"under_way": True}
    if trouble == "must":
        given["must"] = True
    else:
        one.ended(1, 1.5)
    assert chosen(one, 2, **given)[0] and one.skipped == 0


def test_everybody_waits_at_the_barriers_of_a_snapshot_that_is_not_asynchronous() -> None:
    one = pace(BarrierSnapshot(batches=2, asynchronous=False), MiniBatch())
    chosen(one, 0, must=True)
    assert [chosen(one, batch) for batch in range(1, 5)] == [(False, True), (True, False), (False, True), (True, False)]


def test_the_first_operator_that_is_due_makes_a_barrier_for_all() -> None:
    one = pace(BarrierSnapshot(batches=2), BarrierSnapshot(batches=3))
    chosen(one, 0, must=True)
    assert [chosen(one, batch)[0] for batch in range(1, 7)] == [False, True] * 3


def test_one_operator_that_goes_back_takes_all() -> None:
    assert pace(MiniBatch(), BarrierSnapshot(recovery="full")).takes_all_back
    assert not pace(MiniBatch(), BarrierSnapshot()).takes_all_back


def test_an_interval_may_be_longer_than_what_is_replayed_else() -> None:
    """Two of them: the snapshot of the last barrier may be on its way for as long as the next one takes."""
    one = pace(BarrierSnapshot(interval=60.0), most=10.0)
    one.cover(0)
    one.ended(1, 119.0)
    assert not one.is_late(2)
    one.ended(2, 2.0)
    assert one.is_late(3)


def test_a_barrier_is_the_first_batch_that_will_end_after_the_interval() -> None:
    one = pace(BarrierSnapshot(interval=3.0))
    one.passed(10.0, 0, 0)
    found = []
    for batch in range(1, 5):
        began = 10.0 + 1.25 * (batch - 1)
        one.choose(began, batch, 0, under_way=False, must=False)
        found.append(one.barrier)
        one.ended(batch, 1.25)
    assert found == [False, False, True, True], "the third one ends 3.75 seconds after the last barrier"


def due_after(one: CommitPace, seconds: float = 0.0, batches: int = 1) -> bool:
    return one.is_record_due(seconds=seconds, batches=batches)


def test_not_every_barrier_has_a_record() -> None:
    one = CommitPace([MiniBatch()], replayable=True, max_replay_seconds=10.0, record_seconds=0.5)
    assert not due_after(one, 0.4) and due_after(one, 0.5)
    assert due_after(pace(MiniBatch())), "unless they are to be no seconds apart"


def test_records_are_at_most_a_part_of_the_replay_apart() -> None:
    one = CommitPace([MiniBatch()], replayable=True, max_replay_seconds=2.0, record_seconds=1.0)
    assert not due_after(one, 0.1) and due_after(one, 0.2)
    most = MOST_BATCHES // RECORDS_IN_REPLAY
    assert not due_after(one, batches=most) and due_after(one, batches=most + 1)
    forgetful = CommitPace([MiniBatch()], replayable=True, max_replay_seconds=2.0, record_seconds=1.0, offsets_kept=3)
    assert due_after(forgetful), "Spark remembers next to nothing"


KEPT = 1000


def keeping() -> CommitPace:
    return CommitPace([MiniBatch()], replayable=True, max_replay_seconds=10.0, record_seconds=1.0, max_kept_bytes=KEPT)


def test_a_record_is_due_when_workers_keep_much_for_others() -> None:
    one = keeping()
    one.ended(1, 0.1, KEPT // RECORDS_IN_KEPT - 1)
    assert not due_after(one)
    one.ended(2, 0.1, 1)
    assert due_after(one)
    one.cover(1)
    assert not due_after(one)


def test_a_batch_waits_for_a_record_when_workers_keep_as_much_for_others_as_they_may() -> None:
    one = keeping()
    one.ended(1, 0.1, KEPT - 1)
    assert not one.is_late(2)
    one.ended(2, 0.1, 1)
    assert one.is_late(3)
    one.cover(1)
    assert not one.is_late(3)


def test_what_workers_may_keep_brings_the_next_barrier_forward() -> None:
    one = CommitPace([BarrierSnapshot(interval=60.0)], replayable=True, max_replay_seconds=1000.0, max_kept_bytes=KEPT)
    one.passed(0.0, 0, 0)
    one.choose(1.0, 1, 0, under_way=False, must=False)
    assert not one.barrier
    one.ended(1, 0.1, KEPT)
    one.choose(2.0, 2, 0, under_way=False, must=False)
    assert one.barrier


def test_nothing_gathers_where_nothing_is_replayed() -> None:
    """No record covers the batches of a query that keeps none."""
    one = pace(replayable=False)
    one.ended(1, 2.5, 100)
    assert one.replay_seconds == 0.0


def test_snapshots_are_apart_already() -> None:
    one = CommitPace([MiniBatch(), BarrierSnapshot()], replayable=True, max_replay_seconds=10.0, record_seconds=1.0)
    assert due_after(one)
