"""Sessions that are over leave the positions, and nothing of them is taken again."""

from __future__ import annotations

import tracemalloc

import pytest

from afspark.push.receiver.lane import Lane
from afspark.push.receiver.lane_entries import LaneItems
from afspark.push.receiver.session_listing import KEPT_AWAY, KEPT_STARTS, Listing, is_receiver_start, start_name
from afspark.push.receiver.sessions import Sessions
from afspark.push.wire.messages import Allowance
from afspark.push.wire.push_errors import SessionOver
from tests.property.store.faulty_store import MemoryStore
from tests.unit.push.test_lane import items

Positions = dict[str, int]


class Query:
    """A lane with a worker and a driver: what is taken is confirmed once it is in the record, ``positions``."""

    def __init__(self, store: MemoryStore, positions: Positions | None = None) -> None:
        self.sessions = Sessions.open(store)
        self.positions: Positions = dict(positions or {})
        self.lane = Lane(0, Allowance(), 1 << 30, listing=Listing(self.sessions.start, self.positions))
        self.counted: dict[str, int] = {}
        self.gaps: dict[str, int] = {}

    def begin(self, name: str = "p") -> str:
        producer = f"{name}/{self.sessions.begin(name)}"
        self.lane.open(producer, 0.0, begins=True)
        return producer

    def come_back(self, producer: str, acked: int = 0) -> None:
        """What a hello does."""
        if self.lane.received(producer) is None:
            self.lane.listing.check(producer)
        self.lane.open(producer, 0.0, begins=False)
        if acked:
            self.lane.mark(producer, acked, 0.0)

    def send(self, producer: str, rows: int = 1) -> None:
        self.lane.arrive(items(producer, self.lane.received(producer) or 0, rows), 100, 0.0)
        self.lane.acknowledge(0.0)

    def end(self, producer: str) -> None:
        self.lane.mark(producer, self.lane.received(producer) or 0, 0.0, final=True)

    def batch(self) -> None:
        """A tick, its record, and what follows it."""
        positions = dict(self.positions)
        self.lane.listing.forget(positions)
        positions |= self.lane.attach(positions).positions
        for handout in self.lane.handouts(positions, 1 << 30):
            record = handout.record
            at = positions.get(record.producer, 0)
            if record.start > at:
                self.gaps[record.producer] = self.gaps.get(record.producer, 0) + record.start - at
            self.counted[record.producer] = self.counted.get(record.producer, 0) + record.span
            positions[record.producer] = max(at, record.end)
        self.lane.confirm(positions)
        over = self.lane.listing.forgettable(positions, self.lane.sessions)
        kept = {name: end for name, end in positions.items() if name not in over}
        self.positions = kept | self.lane.listing.starts


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def listed(query: Query) -> list[str]:
    return [name for name in query.positions if not is_receiver_start(name)]


def test_positions_of_ended_sessions_are_dropped_everywhere(store: MemoryStore) -> None:
    query = Query(store)
    alive = query.begin("alive")
    for _ in range(100):
        for _ in range(50):
            producer = query.begin()
            query.send(producer)
            query.end(producer)
        query.send(alive)
        query.batch()
    query.batch()
    query.batch()
    assert sum(query.counted.values()) == 5100
    assert listed(query) == [alive] and query.positions[alive] == 100
    assert len(query.lane.positions) == 2 and list(query.lane.sessions) == [alive]


def test_sessions_that_send_nothing_leave_nothing_while_no_worker_comes(store: MemoryStore) -> None:
    query = Query(store)

    def come_and_go(times: int) -> str:
        """Sessions, of which two are open at any time, and the last one stays."""
        current = query.begin()
        for _ in range(times):
            following = query.begin()
            query.end(current)
            current = following
        return current

    ended = query.begin()
    query.end(ended)
    first = come_and_go(500)
    tracemalloc.start()
    last = come_and_go(3000)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 100_000
    assert list(query.lane.sessions) == [first, last] and query.lane.pending_entries == 2
    for _ in range(3):
        with pytest.raises(SessionOver):
            query.come_back(ended)
        query.batch()
    assert listed(query) == [first, last] and query.lane.listing.starts == {start_name(query.sessions.start): 3503}


def test_a_session_that_ends_while_a_worker_lists_it_is_over_as_well(store: MemoryStore) -> None:
    query = Query(store)
    producer = query.begin()
    (handout,) = query.lane.handouts({}, 1 << 30)
    query.end(producer)
    query.lane.confirm({handout.record.producer: handout.record.end})
    with pytest.raises(SessionOver):
        query.come_back(producer)
    query.batch()
    query.batch()
    assert listed(query) == [] and not query.lane.sessions


def test_a_session_that_has_ended_is_not_taken_again(store: MemoryStore) -> None:
    query = Query(store)
    producer = query.begin()
    query.send(producer, 5)
    query.end(producer)
    for _ in range(3):
        query.batch()
        with pytest.raises(SessionOver) as caught:
            query.come_back(producer, acked=5)
        assert caught.value.producer == producer
    later = Query(store, query.positions)
    with pytest.raises(SessionOver):
        later.come_back(producer, acked=5)


def test_sessions_that_vanish_are_remembered_up_to_a_number_and_then_refused(store: MemoryStore) -> None:
    query = Query(store)
    gone = []
    for _ in range(KEPT_AWAY + 20):
        gone.append(query.begin())
        query.send(gone[-1])
    query.batch()
    for producer in gone:
        query.lane.evict(producer)
    query.batch()
    query.batch()
    assert len(listed(query)) == KEPT_AWAY
    for forgotten in gone[:20]:
        with pytest.raises(SessionOver):
            query.come_back(forgotten, acked=1)
    for remembered in gone[20:]:
        query.come_back(remembered, acked=1)
        query.send(remembered)
    query.batch()
    assert not query.gaps
    assert sum(query.counted.values()) == KEPT_AWAY + 20 + KEPT_AWAY


def test_the_session_heard_of_last_is_forgotten_last(store: MemoryStore) -> None:
    query = Query(store)
    producers = [query.begin() for _ in range(KEPT_AWAY + 1)]
    query.batch()
    query.send(producers[0])
    query.batch()
    for producer in producers:
        query.lane.evict(producer)
    query.batch()
    query.batch()
    assert producers[0] in query.positions and producers[1] not in query.positions


def test_what_came_back_in_time_is_not_forgotten(store: MemoryStore) -> None:
    query = Query(store)
    producers = [query.begin() for _ in range(KEPT_AWAY + 1)]
    query.batch()
    for producer in producers:
        query.lane.evict(producer)
    # It is told to be over, and comes back before the next batch.
    query.batch()
    query.come_back(producers[0])
    query.send(producers[0])
    query.batch()
    assert query.counted[producers[0]] == 1 and query.positions[producers[0]] == 1


def test_a_session_all_of_which_was_lost_is_not_over(store: MemoryStore) -> None:
    """It was acknowledged, and its worker has never heard of it: that is a loss, and it is told."""
    query = Query(store)
    known, unknown = query.begin("known"), query.begin("unknown")
    query.send(known)
    query.batch()
    lost = query.begin("lost")
    query.send(lost, 7)
    later = Query(store, query.positions)
    later.positions = query.positions
    for producer, acked in ((lost, 7), (known, 1), (unknown, 0)):
        later.come_back(producer, acked)
    later.batch()
    assert later.gaps == {lost: 7}
    # Others that begin, end and are forgotten meanwhile do not change that.
    query = Query(store, query.positions)
    for _ in range(5):
        query.end(query.begin())
        query.batch()
    query.come_back(lost, 7)
    query.batch()
    assert query.gaps == {lost: 7}


def test_what_the_log_still_has_of_a_session_that_is_over_is_not_handed_out(store: MemoryStore) -> None:
    """Objects of the log are deleted late; a receiver that dies before leaves some behind."""
    query = Query(store)
    ended, alive = query.begin("ended"), query.begin("alive")
    query.send(ended, 5)
    query.end(ended)
    query.send(alive, 5)
    query.batch()
    query.batch()
    later = Query(store, query.positions)
    left: list[tuple[str, LaneItems, int]] = [("one", items(ended, 0, 5), 5), ("two", items(alive, 5, 5), 5)]
    later.lane.restore(left)
    assert later.lane.take_garbage() == ["one"]
    later.batch()
    assert later.counted == {alive: 5} and not later.gaps


def test_starts_are_forgotten_as_well_and_their_sessions_refused(store: MemoryStore) -> None:
    positions: Positions = {}
    first = None
    for _ in range(KEPT_STARTS + 5):
        query = Query(store, positions)
        producer = query.begin()
        first = first or producer
        query.end(producer)
        query.batch()
        query.batch()
        positions = query.positions
    assert len(positions) == KEPT_STARTS
    assert first is not None
    with pytest.raises(SessionOver):
        query.come_back(first)
