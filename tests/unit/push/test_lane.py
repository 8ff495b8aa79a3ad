"""Decisions of a lane: what is acknowledged when, what is written, what is handed out."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from afspark.push.receiver.lane import Lane
from afspark.push.receiver.lane_entries import ENTRY_BYTES, Handout, LaneEntry, LaneItems, joined
from afspark.push.wire.messages import Allowance, PunctuationMark
from afspark.push.wire.push_errors import OutOfOrder, Superseded

A, B = "a/00000000", "b/00000000"


def items(producer: str, start: int, rows: int) -> LaneItems:
    return LaneItems(producer, start, rows, pa.record_batch({"n": pa.array(range(start, start + rows), pa.int64())}))


def lane_of(allowed: float, seconds: float | None = None, **options: bool) -> Lane:
    return Lane(0, Allowance(allowed, seconds), 1000, **options)


def send(lane: Lane, producer: str, start: int, rows: int, now: float = 0.0) -> dict[str, int]:
    assert lane.arrive(items(producer, start, rows), rows, now)
    return lane.acknowledge(now)


def write(lane: Lane, name: str = "object", now: float = 0.0) -> list[tuple[str, int]]:
    """Carries out what is planned; which entries that were."""
    planned = lane.plan(now)
    lane.written(dict.fromkeys((entry for entry, _ in planned), name))
    return [(record.producer, record.start) for _, record in planned]


def starts(lane: Lane, **after: int) -> list[tuple[str, int]]:
    positions = {f"{name}/00000000": end for name, end in after.items()}
    return [(handout.record.producer, handout.record.start) for handout in lane.handouts(positions, 10**9)]


def test_within_the_allowance_entries_are_acknowledged_at_once_and_not_written() -> None:
    lane = lane_of(10)
    assert send(lane, A, 0, 6) == {A: 6}
    assert send(lane, B, 0, 4) == {B: 4}
    assert lane.exposed == 10
    assert lane.plan(0.0) == []


def test_beyond_it_everything_pending_is_written_first() -> None:
    lane = lane_of(10)
    send(lane, A, 0, 6)
    assert send(lane, B, 0, 5) == {}
    assert write(lane) == [(A, 0), (B, 0)]
    assert lane.exposed == 0
    assert lane.acknowledge(0.0) == {B: 5}


def test_what_comes_during_a_write_waits_and_is_covered_by_the_next() -> None:
    lane = lane_of(10)
    send(lane, A, 0, 11)
    planned = lane.plan(0.0)
    assert send(lane, B, 0, 8) == {}
    assert send(lane, B, 8, 8) == {}
    assert lane.plan(0.0) == []
    lane.written({planned[0][0]: "first"})
    # The first of them fits again, the second does not.
    assert lane.acknowledge(0.0) == {A: 11, B: 8}
    assert write(lane, "second") == [(B, 0), (B, 8)]
    assert lane.acknowledge(0.0) == {B: 16}


def test_an_allowance_of_zero_writes_every_batch_and_an_infinite_one_none() -> None:
    exact, careless = lane_of(0), lane_of(math.inf)
    for start in range(3):
        assert send(exact, A, start, 1) == {}
        assert write(exact, f"object {start}") == [(A, start)]
        assert exact.acknowledge(0.0) == {A: start + 1}
        assert send(careless, A, start, 1) == {A: start + 1}
        assert careless.plan(0.0) == []


def test_a_failed_write_acknowledges_nothing_and_is_planned_again() -> None:
    lane = lane_of(0)
    send(lane, A, 0, 1)
    lane.plan(0.0)
    lane.failed()
    assert lane.acknowledge(0.0) == {}
    send(lane, A, 1, 1)
    assert write(lane) == [(A, 0), (A, 1)]


def test_a_lowered_allowance_counts_at_once() -> None:
    lane = lane_of(10)
    send(lane, A, 0, 8)
    lane.allow = Allowance(5)
    assert write(lane) == [(A, 0)]


def test_entries_kept_out_of_the_log_count_but_are_not_written() -> None:
    lane = lane_of(10)
    send(lane, A, 0, 8)
    assert lane.stop_logging({A: 8}) is False
    assert send(lane, A, 8, 3) == {}
    assert write(lane) == [(A, 8)]
    assert lane.acknowledge(0.0) == {A: 11}
    assert lane.exposed == 8
    lane.confirm({A: 8})
    assert lane.exposed == 0


def test_entries_kept_out_over_a_lowered_allowance_hold_acknowledgements_until_they_are_confirmed() -> None:
    lane = lane_of(10)
    send(lane, A, 0, 8)
    lane.stop_logging({A: 8})
    lane.allow = Allowance(5)
    assert send(lane, B, 0, 1) == {}
    assert write(lane) == [(B, 0)]
    assert lane.acknowledge(0.0) == {}
    lane.confirm({A: 8})
    assert lane.acknowledge(0.0) == {B: 1}


def test_stop_logging_tells_of_entries_in_the_log_or_on_the_way_there() -> None:
    lane = lane_of(0)
    send(lane, A, 0, 1)
    planned = lane.plan(0.0)
    assert lane.stop_logging({A: 1}) is True
    lane.written({planned[0][0]: "object"})
    assert lane.stop_logging({A: 1}) is True
    assert lane.stop_logging({A: 0}) is False


def test_a_new_worker_has_entries_logged_again() -> None:
    lane = lane_of(10)
    send(lane, A, 0, 4)
    send(lane, A, 4, 4)
    lane.stop_logging({A: 8})
    lane.ownership.claim(2, 0)
    assert lane.attach({A: 4}).positions == {A: 4}
    lane.allow = Allowance(0)
    assert write(lane) == [(A, 4)]


def test_old_entries_are_written_although_nothing_comes() -> None:
    lane = lane_of(math.inf, seconds=2.0)
    assert send(lane, A, 0, 5, now=10.0) == {A: 5}
    assert lane.due() == 12.0
    assert lane.plan(11.9) == []
    assert write(lane, now=12.0) == [(A, 0)]
    assert lane.due() is None


def test_nothing_is_acknowledged_while_something_is_too_old() -> None:
    lane = lane_of(math.inf, seconds=2.0)
    send(lane, A, 0, 5, now=10.0)
    assert send(lane, B, 0, 1, now=12.0) == {}
    planned = lane.plan(12.0)
    assert lane.acknowledge(12.5) == {}
    lane.written({entry: "object" for entry, _ in planned})
    assert lane.acknowledge(12.5) == {B: 1}


def test_punctuation_is_always_written_and_alone_if_the_rest_may_wait() -> None:
    lane = lane_of(math.inf)
    send(lane, A, 0, 5)
    lane.arrive(LaneItems(A, 5, 1, punctuation=PunctuationMark(time=1.0)), 0, 0.0)
    assert lane.acknowledge(0.0) == {}
    assert write(lane) == [(A, 5)]
    assert lane.acknowledge(0.0) == {A: 6}


def test_without_a_log_nothing_waits_for_it() -> None:
    lane = lane_of(math.inf, logs=False)
    lane.arrive(LaneItems(A, 0, 1, punctuation=PunctuationMark(end=True)), 0, 0.0)
    assert lane.acknowledge(0.0) == {A: 1}
    assert lane.plan(0.0) == []


def test_late_acknowledgements_wait_for_the_worker_and_need_no_log() -> None:
    lane = lane_of(0, ack_when_confirmed=True)
    assert send(lane, A, 0, 5) == {}
    assert send(lane, B, 0, 5) == {}
    assert lane.plan(0.0) == []
    assert starts(lane) == [(A, 0), (B, 0)]
    lane.confirm({A: 5})
    assert lane.acknowledge(0.0) == {A: 5}
    lane.confirm({A: 5, B: 5})
    assert lane.acknowledge(0.0) == {B: 5}


def test_with_a_log_in_front_nothing_is_handed_out_or_acknowledged_before_it_is_written() -> None:
    lane = lane_of(0, log_first=True)
    assert send(lane, A, 0, 5) == {} and send(lane, B, 0, 5) == {}
    assert starts(lane) == [] and not lane.has_more({})
    planned = lane.plan(0.0)
    assert send(lane, A, 5, 5) == {}
    lane.written(dict.fromkeys((entry for entry, _ in planned), "object"))
    assert lane.acknowledge(0.0) == {A: 5, B: 5}
    assert starts(lane) == [(A, 0), (B, 0)] and lane.has_more({})
    assert not lane.has_more({A: 5, B: 5})
    assert lane.stop_logging({A: 5, B: 5})
    lane.confirm({A: 5, B: 5})
    assert lane.take_garbage() == ["object"]
    assert write(lane) == [(A, 5)]
    assert lane.acknowledge(0.0) == {A: 10}
    assert lane.counters.logged == lane.counters.accepted == 15


def test_a_log_in_front_that_fails_holds_everything_back() -> None:
    lane = lane_of(math.inf, log_first=True)
    send(lane, A, 0, 5)
    lane.plan(0.0)
    lane.failed()
    assert lane.acknowledge(0.0) == {} and starts(lane) == []
    assert write(lane) == [(A, 0)]
    assert lane.acknowledge(0.0) == {A: 5} and starts(lane) == [(A, 0)]


def test_what_was_confirmed_before_it_was_written_is_acknowledged() -> None:
    lane = lane_of(0)
    send(lane, A, 0, 5)
    planned = lane.plan(0.0)
    lane.confirm({A: 5})
    assert lane.acknowledge(0.0) == {A: 5}
    lane.written({planned[0][0]: "object"})
    assert lane.take_garbage() == ["object"]
    assert lane.exposed == 0


def test_duplicates_are_dropped() -> None:
    lane = lane_of(100)
    send(lane, A, 0, 5)
    assert not lane.arrive(items(A, 0, 5), 5, 0.0)
    assert lane.counters.duplicates == 5
    assert starts(lane) == [(A, 0)]
    assert lane.acked(A) == 5


@pytest.mark.parametrize(("start", "rows"), [(4, 2), (6, 1), (0, 6)])
def test_holes_and_overlaps_are_refused(start: int, rows: int) -> None:
    lane = lane_of(100)
    send(lane, A, 0, 5)
    with pytest.raises(OutOfOrder) as caught:
        lane.arrive(items(A, start, rows), 1, 0.0)
    assert (caught.value.expected, caught.value.found) == (5, start)
    assert send(lane, A, 5, 1) == {A: 6}


def test_a_session_new_to_this_receiver_may_not_begin_above_what_is_proven() -> None:
    lane = lane_of(100)
    with pytest.raises(OutOfOrder) as caught:
        lane.arrive(items(A, 700, 5), 5, 0.0)
    assert (caught.value.expected, caught.value.found) == (0, 700)
    lane.mark(A, 700, 0.0)
    assert send(lane, A, 700, 5) == {A: 705}
    with pytest.raises(OutOfOrder):
        lane.arrive(items(A, 710, 5), 5, 0.0)


def test_what_the_worker_has_is_a_duplicate_also_for_a_new_receiver() -> None:
    lane = lane_of(100)
    lane.attach({A: 7})
    assert not lane.arrive(items(A, 0, 5), 5, 0.0)
    assert lane.acked(A) == 7
    assert send(lane, A, 5, 5) == {A: 10}
    assert starts(lane) == [(A, 7)]


def test_a_mark_shows_what_was_acknowledged_and_is_missing() -> None:
    lane = lane_of(100)
    assert lane.mark(A, 30, 0.0) is not None
    (handout,) = lane.handouts({}, 10**9)
    assert handout.record.mark and handout.record.start == 30
    assert send(lane, A, 30, 5) == {A: 35}
    lane.confirm({A: 30})
    assert starts(lane) == [(A, 30)]
    assert lane.mark(A, 35, 0.0) is None, "nothing is missing"


def test_hello_after_hello_leaves_one_mark() -> None:
    lane = lane_of(100)
    for start in range(1, 500):
        assert lane.mark(A, start, 0.0) is not None
    (handout,) = lane.handouts({}, 1 << 20)
    assert handout.record.start == 499
    assert lane.pending_bytes == ENTRY_BYTES
    lane.confirm({A: 499})
    assert lane.pending_bytes == 0


def test_sessions_that_only_end_wait_for_room_at_last() -> None:
    lane = Lane(0, Allowance(), 8 * ENTRY_BYTES)
    ended = 0
    while lane.has_room_to_end(f"{ended}/s", 5):
        lane.mark(f"{ended}/s", 5, 0.0, final=True)
        ended += 1
    assert ended == 9, "all of the share and an eighth"
    assert lane.has_room_to_end("another/s", 0), "it leaves nothing"
    lane.confirm({"3/s": 5})
    assert lane.has_room_to_end("another/s", 5)


def test_the_last_mark_is_written_and_the_session_forgotten_when_all_is_taken() -> None:
    lane = lane_of(100)
    send(lane, A, 0, 5)
    entry = lane.mark(A, 5, 0.0, final=True)
    assert isinstance(entry, LaneEntry)
    assert write(lane) == [(A, 5)]
    assert entry.logged
    lane.confirm({A: 5})
    assert A in lane.sessions, "an object of the log still holds it"
    lane.deleted(lane.take_garbage())
    assert A not in lane.sessions


def test_a_session_of_which_all_is_taken_ends_without_a_mark() -> None:
    lane = lane_of(100)
    send(lane, A, 0, 5)
    lane.confirm({A: 5})
    assert lane.mark(A, 5, 0.0, final=True) is None
    assert A not in lane.sessions


def test_a_pull_is_stateless_and_respects_what_is_in_hand() -> None:
    lane = lane_of(100)
    for start in (0, 10, 20):
        send(lane, A, start, 10)
    assert starts(lane) == starts(lane) == [(A, 0), (A, 10), (A, 20)]
    assert starts(lane, a=10) == [(A, 10), (A, 20)]
    assert starts(lane, a=15) == [(A, 15), (A, 20)]
    assert [handout.record.start for handout in lane.handouts({}, 15)] == [0]
    assert [handout.record.start for handout in lane.handouts({}, 1)] == [0], "at least one"
    assert not lane.has_more({A: 30}) and lane.has_more({A: 29})


def test_confirming_inside_an_entry_keeps_its_rest() -> None:
    lane = lane_of(100)
    send(lane, A, 0, 10)
    lane.confirm({A: 4})
    (handout,) = lane.handouts({}, 10**9)
    assert handout.record.start == 4
    assert handout.record.batch is not None
    assert handout.record.batch.column(0).to_pylist() == [4, 5, 6, 7, 8, 9]
    assert lane.exposed == lane.pending_items == 6
    lane.confirm({A: 10})
    assert lane.exposed == lane.pending_items == lane.pending_bytes == 0


def test_an_older_worker_is_turned_away() -> None:
    lane = lane_of(100)
    assert lane.ownership.claim(1, 5)
    assert not lane.ownership.claim(1, 5)
    assert lane.ownership.claim(2, 1)
    for older in ((1, 9), (2, 0)):
        with pytest.raises(Superseded):
            lane.ownership.claim(*older)


def test_room_is_bounded_but_an_empty_lane_takes_any_batch() -> None:
    lane = Lane(0, Allowance(math.inf), 100)
    assert lane.has_room(1000)
    lane.arrive(items(A, 0, 1), 60, 0.0)
    assert lane.has_room(40) and not lane.has_room(41)
    lane.confirm({A: 1})
    assert lane.has_room(41)


def test_restored_entries_are_logged_and_their_sessions_known() -> None:
    lane = lane_of(0)
    lane.restore([("one", items(A, 5, 5), 5), ("two", items(B, 0, 1), 1), ("two", items(A, 10, 5), 5)])
    assert starts(lane) == [(A, 5), (B, 0), (A, 10)]
    assert all(handout.logged for handout in lane.handouts({}, 10**9))
    assert (lane.received(A), lane.acked(A)) == (15, 15)
    assert not lane.arrive(items(A, 10, 5), 5, 0.0)
    # What was acknowledged after it and lost shows as a hole.
    lane.mark(A, 40, 0.0)
    assert lane.arrive(items(A, 40, 5), 5, 0.0)
    assert lane.plan(0.0) != []


def test_objects_go_when_all_their_entries_are_released() -> None:
    lane = lane_of(0)
    lane.restore([("one", items(A, 0, 5), 5), ("two", items(A, 5, 5), 5), ("two", items(B, 0, 5), 5)])
    lane.confirm({A: 10})
    assert lane.take_garbage() == ["one"]
    lane.confirm({B: 5})
    assert lane.take_garbage() == ["two"]


def test_an_object_found_twice_is_restored_once() -> None:
    lane = lane_of(0)
    lane.restore([("one", items(A, 0, 5), 5), ("again", items(A, 0, 5), 5)])
    assert starts(lane) == [(A, 0)]
    assert lane.take_garbage() == ["again"]


def test_an_idle_session_can_be_forgotten_and_is_still_recognised() -> None:
    lane = lane_of(100)
    send(lane, A, 0, 5)
    lane.evict(A)
    assert A in lane.sessions
    lane.confirm({A: 5})
    lane.evict(A)
    assert A not in lane.sessions
    assert not lane.arrive(items(A, 0, 5), 5, 0.0)


def test_many_small_entries_are_handed_out_as_few() -> None:
    handouts = [Handout(items(A, start, 2), logged=start >= 40) for start in range(0, 80, 2)]
    handouts.insert(10, Handout(LaneItems(B, 7, 1, punctuation=PunctuationMark(time=1.0)), logged=True))
    handouts.append(Handout(items(A, 90, 2), logged=True))
    found = joined(handouts)
    assert [(each.record.producer, each.record.start, each.record.end, each.logged) for each in found] == [
        (A, 0, 20, False),
        (B, 7, 8, True),
        (A, 20, 40, False),
        (A, 40, 80, True),
        (A, 90, 92, True),
    ]
    for each in found:
        if each.record.batch is not None:
            assert each.record.batch.column(0).to_pylist() == list(range(each.record.start, each.record.end))
    assert joined(handouts[:20]) == handouts[:20]


def test_punctuation_takes_what_waits_before_it_into_the_log() -> None:
    lane = lane_of(0)
    lane.arrive(LaneItems(A, 0, 1, punctuation=PunctuationMark(time=1.0)), 0, 0.0)
    assert send(lane, A, 1, 1) == {}
    lane.arrive(LaneItems(A, 2, 1, punctuation=PunctuationMark(time=2.0)), 0, 0.0)
    assert write(lane) == [(A, 0), (A, 1), (A, 2)]


def test_nothing_is_written_behind_an_unacknowledged_entry_that_stays_out() -> None:
    lane = lane_of(0)
    send(lane, A, 0, 1)
    lane.stop_logging({A: 1})
    send(lane, A, 1, 1)
    assert lane.plan(0.0) == [], "a later receiver would take the first for received"
    lane.ownership.claim(2, 0)
    lane.attach({})
    assert write(lane) == [(A, 0), (A, 1)]


def test_items_written_after_later_punctuation_are_restored_before_it() -> None:
    lane = lane_of(0)
    punctuation = LaneItems(A, 5, 1, punctuation=PunctuationMark(time=1.0))
    lane.restore([("one", punctuation, 0), ("one", items(B, 0, 1), 1), ("two", items(A, 0, 5), 5)])
    assert starts(lane) == [(A, 0), (B, 0), (A, 5)]


def test_a_failed_write_of_punctuation_does_not_overtake_items() -> None:
    lane = lane_of(10)
    send(lane, A, 0, 5)
    lane.arrive(LaneItems(A, 5, 1, punctuation=PunctuationMark(time=1.0)), 0, 0.0)
    lane.plan(0.0)
    lane.failed()
    lane.allow = Allowance(0)
    assert write(lane) == [(A, 0), (A, 5)]


def test_whoever_applies_a_batch_again_is_handed_its_items_only() -> None:
    lane = lane_of(100)
    send(lane, A, 0, 10)
    send(lane, B, 0, 10)
    send(lane, A, 10, 10)
    until = {A: 12, B: 0}
    found = lane.handouts({A: 4}, 1, until), lane.handouts({A: 10}, 10**9, until)
    assert [[(one.record.producer, one.record.start, one.record.end) for one in some] for some in found] == [
        [(A, 4, 10)],
        [(A, 10, 20)],
    ]
    assert lane.handouts({A: 12}, 10**9, until) == [] and not lane.has_more({A: 12}, until)
    assert lane.has_more({A: 11}, until) and lane.has_more({A: 12})


def test_a_mark_tells_whoever_applies_a_batch_again_what_never_comes() -> None:
    lane = lane_of(100)
    lane.mark(A, 5, 0.0)
    for until in (4, 5, 6):
        assert [one.record.end for one in lane.handouts({A: 2}, 10**9, {A: until})] == [5]
    assert lane.handouts({A: 4}, 10**9, {A: 4}) == [], "nothing is missing"


def test_what_a_worker_waits_for_is_taken_by_a_full_lane() -> None:
    """Others have sent more than before, and nothing is released before the worker has what it lacks."""
    lane = lane_of(2000)
    send(lane, A, 0, 1000)
    assert not lane.has_room(1)
    again, new = items(B, 0, 5), items(B, 5, 5)
    assert not lane.is_awaited(again)
    lane.wanted = {B: 5}
    assert lane.is_awaited(again) and not lane.is_awaited(new)
