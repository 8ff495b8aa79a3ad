"""Random histories of a lane and its log, with crashes: what is promised about loss, order and repetition holds.

The model stands for producers that keep what is unacknowledged, a worker whose state survives the receiver's
crashes, a driver that drops positions of sessions that are over, and a store that may tear the write during which the
receiver dies. Sessions that have ended come back and send everything again.
"""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from afspark.push.receiver.backlog import Backlog
from afspark.push.receiver.item_log import ItemLog
from afspark.push.receiver.lane import Lane
from afspark.push.receiver.lane_entries import LaneEntry, LaneItems
from afspark.push.receiver.session_listing import Listing
from afspark.push.receiver.sessions import Sessions
from afspark.push.wire.messages import Allowance, PunctuationMark
from afspark.push.wire.push_errors import SessionOver
from afspark.push.wire.worker_messages import NO_BACKUP, Attached, BackupNumber
from tests.property.store.faulty_store import MemoryStore

SCHEMA = pa.schema([("n", pa.int64())])
NAMES = ["a", "b", "c"]
NAME = st.sampled_from(NAMES)


class LaneHistory(RuleBasedStateMachine):
    """Producers, one lane with its log, one worker."""

    lane_class: type[Lane] = Lane
    listing_class: type[Listing] = Listing
    #: sessions that are recognised although they are not at work
    keep = 1

    @initialize(
        items=st.sampled_from([0, 3, 10, float("inf")]),
        seconds=st.sampled_from([None, None, 2.0]),
        late=st.sampled_from([False, False, False, True]),
        first=st.sampled_from([False, False, True]),
    )
    def open(self, items: float, seconds: float | None, late: bool, first: bool) -> None:
        self.store = MemoryStore()
        self.allow = Allowance(items, seconds)
        self.late, self.first = late, first and not late
        self.exact = items == 0
        self.now = 0.0
        #: of each producer: what it has sent in all, and what it was told is acknowledged
        self.sent: dict[str, list[LaneItems]] = defaultdict(list)
        self.acked: dict[str, int] = defaultdict(int)
        #: of the worker: its position, the numbers it has applied, those it found missing
        self.positions: dict[str, int] = {}
        self.applied: dict[str, list[int]] = defaultdict(list)
        self.missing: dict[str, int] = defaultdict(int)
        #: of the driver: the positions in the record
        self.recorded: dict[str, int] = {}
        #: the session of each producer that has one, and those that are over
        self.sessions: dict[str, str] = {}
        self.ended: list[str] = []
        #: those that were refused while they had something under way: it may be there or not
        self.refused: set[str] = set()
        self.allowed_loss = 0.0
        self.writing: list[tuple[LaneEntry, LaneItems]] = []
        self.start_receiver()

    def start_receiver(self) -> None:
        self.log = ItemLog(self.store, 0, SCHEMA)
        loaded = self.log.load()
        assert loaded.damaged == []
        self.names = Sessions.open(self.store)
        self.lane = self.lane_class(
            0,
            self.allow,
            10**9,
            ack_when_confirmed=self.late,
            log_first=self.first,
            listing=self.listing_class(self.names.start, self.recorded, self.keep),
        )
        self.lane.restore(loaded.records)
        self.writing = []
        self.connected: set[str] = set()

    # --- producers

    def deliver(self) -> None:
        for producer, end in self.lane.acknowledge(self.now).items():
            assert end >= self.acked[producer]
            self.acked[producer] = end
            # The promise, at the moment of the acknowledgement.
            if not self.late:
                assert self.lane.exposed <= self.lane.allow.items

    def give(self, record: LaneItems) -> None:
        self.lane.arrive(record, 10 * record.span, self.now)
        self.deliver()
        # What was sent again is acknowledged again, if it was before.
        self.acked[record.producer] = max(self.acked[record.producer], self.lane.acked(record.producer))

    def connect(self, name: str) -> str:
        """After a crash a producer says hello and sends what is not acknowledged before anything else; its session."""
        if name in self.sessions and self.sessions[name] not in self.connected:
            self.resend(name)
        if name not in self.sessions:
            self.sessions[name] = producer = f"{name}/{self.names.begin(name)}"
            self.lane.open(producer, self.now, begins=True)
            self.connected.add(producer)
        return self.sessions[name]

    @rule(name=NAME, rows=st.integers(1, 6))
    def send(self, name: str, rows: int) -> None:
        producer = self.connect(name)
        start = self.end_of(producer)
        batch = pa.record_batch([pa.array(range(start, start + rows), pa.int64())], schema=SCHEMA)
        self.sent[producer].append(LaneItems(producer, start, rows, batch))
        self.give(self.sent[producer][-1])

    @rule(name=NAME)
    def punctuate(self, name: str) -> None:
        producer = self.connect(name)
        self.sent[producer].append(
            LaneItems(producer, self.end_of(producer), 1, punctuation=PunctuationMark(time=self.now))
        )
        self.give(self.sent[producer][-1])

    @rule(name=NAME)
    def connect_again(self, name: str) -> None:
        self.resend(name)

    @rule(name=NAME)
    def forgotten(self, name: str) -> None:
        """A receiver forgets an idle session for the sake of others; only its position is kept, for a while."""
        producer = self.sessions.get(name, "")
        self.lane.evict(producer)
        if self.lane.received(producer) is None:
            self.connected.discard(producer)

    @precondition(lambda self: self.ended)
    @rule(draw=st.randoms(use_true_random=False))
    def ghost(self, draw: random.Random) -> None:
        """A session that is over sends everything again, with its receipts."""
        producer = draw.choice(self.ended)
        try:
            self.enter(producer)
        except SessionOver:
            return
        for record in self.sent[producer]:
            self.give(record)

    @rule(name=NAME)
    def finish(self, name: str) -> None:
        """A producer to which all was acknowledged says bye; once that is safe it is never heard of again."""
        producer = self.connect(name)
        if self.acked[producer] < self.end_of(producer):
            return
        entry = self.lane.mark(producer, self.end_of(producer), self.now, final=True)
        for _ in range(2):
            if entry is not None and not self.writing:
                self.begin_write()
            if self.writing:
                self.end_write()
        if entry is None or entry.logged or entry.released:
            self.ended.append(self.sessions.pop(name))

    def resend(self, name: str) -> None:
        """A producer connects again: it says hello and sends all that is not acknowledged."""
        producer = self.sessions.get(name)
        if producer is None:
            return
        try:
            self.enter(producer)
        except SessionOver:
            self.refused.add(producer)
            self.ended.append(self.sessions.pop(name))
            return
        self.connected.add(producer)
        for record in self.sent[producer]:
            if record.end > self.acked[producer]:
                self.give(record)

    def enter(self, producer: str) -> None:
        """What a hello with receipts does."""
        if self.lane.received(producer) is None:
            self.lane.listing.check(producer)
        self.lane.open(producer, self.now, begins=False)
        if self.acked[producer]:
            self.lane.mark(producer, self.acked[producer], self.now)

    def end_of(self, producer: str) -> int:
        return self.sent[producer][-1].end if self.sent[producer] else 0

    # --- the log

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: not self.writing)
    @rule()
    def begin_write(self) -> None:
        self.writing = self.lane.plan(self.now)

    @precondition(lambda self: self.writing)
    @rule()
    def end_write(self) -> None:
        names = self.log.append([record for _, record in self.writing])
        self.lane.written({entry: name for (entry, _), name in zip(self.writing, names, strict=True)})
        self.writing = []
        self.deliver()

    @precondition(lambda self: self.writing)
    @rule()
    def fail_write(self) -> None:
        self.lane.failed()
        self.writing = []
        self.deliver()

    @rule()
    def truncate(self) -> None:
        garbage = self.lane.take_garbage()
        self.log.delete(garbage)
        self.lane.deleted(garbage)

    @rule(items=st.sampled_from([0, 1, 5]))
    def lower(self, items: float) -> None:
        self.allow = Allowance(min(items, self.allow.items), self.allow.seconds)
        self.lane.allow = self.allow
        self.deliver()

    # --- the worker

    @rule(nbytes=st.sampled_from([1, 60, 10**6]), confirms=st.booleans())
    def pull(self, nbytes: int, confirms: bool) -> None:
        for handout in self.lane.handouts(self.positions, nbytes):
            record = handout.record
            position = self.positions.get(record.producer, 0)
            assert record.start >= position or record.mark, "handed out again although it was had"
            if record.start > position:
                self.missing[record.producer] += record.start - position
            if record.batch is not None:
                assert record.batch.column(0).to_pylist() == list(range(record.start, record.end))
                self.applied[record.producer] += range(record.start, record.end)
            elif record.punctuation is not None:
                self.applied[record.producer].append(record.start)
            self.positions[record.producer] = max(position, record.end)
        if confirms:
            self.confirm()

    @rule()
    def stop_logging(self) -> None:
        self.lane.stop_logging(self.positions)

    @rule()
    def confirm(self) -> None:
        self.lane.confirm(self.positions)
        self.deliver()

    @rule()
    def commit(self) -> None:
        """The end of a batch: its record, and what the next one begins with."""
        self.confirm()
        over = self.lane.listing.forgettable(self.positions, self.lane.sessions)
        kept = {name: end for name, end in self.positions.items() if name not in over}
        self.positions = kept | self.lane.listing.starts
        self.recorded = dict(self.positions)
        self.lane.listing.forget(self.positions)

    @rule()
    def attach(self) -> None:
        known = self.lane.attach(self.positions).positions
        assert all(known[name] >= end for name, end in self.positions.items())
        self.deliver()

    # --- failures

    @rule(torn=st.sampled_from([None, 0.0, 0.5, 1.0]))
    def crash(self, torn: float | None) -> None:
        """The receiver dies, perhaps in the middle of its write, and another takes its place."""
        self.allowed_loss += self.lane.exposed
        if self.writing and torn is not None:
            before = set(self.store.objects)
            self.log.append([record for _, record in self.writing])
            for name in set(self.store.objects) - before:
                data = self.store.objects[name]
                self.store.objects[name] = data[: int(torn * len(data))]
        self.start_receiver()

    # --- what always holds

    @invariant()
    def counters_agree(self) -> None:
        if not hasattr(self, "lane"):
            return
        assert self.lane.exposed >= 0 and self.lane.pending_bytes >= 0
        given = self.lane.handouts({}, 10**9)
        assert self.lane.has_more({}) == bool(given)
        if self.first:
            assert all(handout.logged or handout.record.mark for handout in given), "handed out before it was logged"
        else:
            assert self.lane.pending_items == sum(handout.record.span for handout in given), (
                "pending items are what a pull without positions gives"
            )

    @invariant()
    def nothing_is_applied_twice_or_out_of_order(self) -> None:
        for applied in getattr(self, "applied", {}).values():
            assert all(earlier < later for earlier, later in pairwise(applied))

    def teardown(self) -> None:
        """Everybody finishes: what is missing then is what crashes were allowed to lose, and it is known."""
        if not hasattr(self, "lane"):
            return
        for name in NAMES:
            self.resend(name)
        for _ in range(20):
            if not self.writing:
                self.begin_write()
            if self.writing:
                self.end_write()
            self.pull(10**9, confirms=True)
        lost = 0
        for producer in list(self.sent):
            promised = self.acked[producer] if producer in self.refused else self.end_of(producer)
            wanted = set(range(promised))
            absent = wanted - set(self.applied[producer])
            assert len(absent) == self.missing[producer], "the worker knows what it misses"
            lost += len(absent)
            assert self.acked[producer] == promised
            for record in self.sent[producer]:
                if record.punctuation is not None:
                    assert record.start not in absent, "punctuation is never lost"
        assert lost <= self.allowed_loss
        if self.late or self.exact or self.first:
            assert lost == 0
        assert self.lane.pending_items == self.lane.exposed == 0
        self.truncate()
        assert [name for name in self.store.objects if name.startswith("lane-")] == []


LaneHistory.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestLaneHistory = LaneHistory.TestCase


class Hasty(Backlog):
    def _may_ack(self, entry: LaneEntry, now: float) -> bool:
        return True


class AcknowledgesBeforeTheLog(Lane):
    """The mistake the rule is about: what does not fit is acknowledged while it is still to be written."""

    def __init__(self, number: int, allow: Allowance, capacity: int, **options: Any) -> None:
        super().__init__(number, allow, capacity, **options)
        self._backlog = Hasty(allow, logs=self._logs, late_acks=options["ack_when_confirmed"])


class LogsButForgetsTheWaiting(Lane):
    """A write is taken to cover what arrived while it was under way."""

    def written(self, names: dict[LaneEntry, str]) -> None:  # type: ignore[override]
        name = next(iter(names.values()))
        super().written(names)
        for entry in self._backlog._open:
            entry.logged = True
            entry.object = name
        self._backlog._reopen([])


class ForgetsConfirmed(Lane):
    """What was confirmed is handed out again if it is sent again."""

    def is_new(self, producer: str, end: int) -> bool:
        return True

    def attach(self, positions: dict[str, int]) -> Attached:  # type: ignore[override]
        return Attached(dict(positions))

    def confirm(self, positions: dict[str, int], durable: BackupNumber = NO_BACKUP) -> None:  # type: ignore[override]
        for producer in list(positions):
            super().confirm({producer: max(0, positions[producer] - 1)})


class ThinksNobodyOver(Listing):
    """A session whose position was dropped is taken for one that lost everything, and what it sends again for new."""

    def is_over(self, producer: str) -> bool:
        return False


class ForgetsWithoutCounting(Listing):
    """Positions are dropped before it is known which sessions are over without them."""

    def _is_done(self, producer: str) -> bool:
        return producer in self._over

    def _count(self, producer: str) -> None:
        if producer not in self._over:
            super()._count(producer)


@pytest.mark.parametrize(
    "mistake",
    [
        AcknowledgesBeforeTheLog,
        LogsButForgetsTheWaiting,
        ForgetsConfirmed,
        ThinksNobodyOver,
        ForgetsWithoutCounting,
    ],
)
def test_a_mistake_is_found(mistake: type[Lane] | type[Listing]) -> None:
    class Mistaken(LaneHistory):
        lane_class = mistake if issubclass(mistake, Lane) else Lane
        listing_class = mistake if issubclass(mistake, Listing) else Listing

    # The first history that shows it will do; a short one is not looked for.
    once = settings(
        max_examples=1000,
        stateful_step_count=40,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=[Phase.generate],
    )
    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(Mistaken, settings=once)
