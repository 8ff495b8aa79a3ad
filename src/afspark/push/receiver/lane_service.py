"""A lane at work: its queue behind a lock, for the threads of its callers and the one that writes its log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from afspark.clock import Clock
from afspark.push.receiver.item_log import ItemLog
from afspark.push.receiver.lane import Lane
from afspark.push.receiver.lane_entries import Handout, LaneEntry, LaneItems, joined
from afspark.push.receiver.lane_signals import GLANCE_SECONDS, LaneSignals, stopped
from afspark.push.receiver.log_writer import LogWriter, WriteCounters
from afspark.push.receiver.threads import Threads
from afspark.push.wire.messages import Allowance, Positions
from afspark.push.wire.push_errors import LimitExceeded
from afspark.push.wire.worker_messages import (
    Attach,
    Attached,
    BackupNumber,
    Claim,
    Confirm,
    Confirmed,
    Pull,
    StopLogging,
)

_PULLS_AT_ONCE = 64

Deliver = Callable[[int, dict[str, int]], None]
Alive = Callable[[], bool]


class LaneService:
    """``deliver(lane, {producer: end})`` is called without the lock, from any thread, with what is acknowledged.

    ``on_replaced()`` is called when another receiver has taken the lane: nothing is taken or acknowledged any more.
    """

    def __init__(
        self,
        lane: Lane,
        log: ItemLog | None,
        deliver: Deliver,
        on_replaced: Callable[[], None],
        *,
        clock: Clock,
        threads: Threads,
    ) -> None:
        self.lane = lane
        self._deliver, self._clock, self._threads = deliver, clock, threads
        self._signals = LaneSignals(threads)
        self._lock = self._signals.lock
        self._pulls = 0
        self._blocked_now = 0
        self._blocked_seconds = 0.0
        #: what writes the log; None where there is none
        self.writer: LogWriter | None = None
        if log is not None:
            self.writer = LogWriter(
                lane,
                log,
                self._signals,
                clock,
                acknowledged=lambda acked: deliver(lane.number, acked),
                on_replaced=on_replaced,
            )

    def start(self) -> None:
        """Loads the log and begins to write."""
        if self.writer is not None:
            self.writer.start(self._threads)

    def stop(self, *, save: bool) -> bool:
        """Ends all waiting; ``save``: what was acknowledged and is in no log is written first. Whether it is durable
        now.
        """
        with self._lock:
            self._signals.end_waiting()
        return self.writer is None or self.writer.stop(save=save)

    # --- producers

    def check_open(self, producer: str) -> None:
        """`SessionOver` if nothing of the session may be taken any more."""
        with self._lock:
            if self.lane.received(producer) is None:
                self.lane.listing.check(producer)

    def open(self, producer: str, *, begins: bool) -> None:
        """Lets a session send; ``begins``: it is a new one."""
        with self._lock:
            self.lane.open(producer, self._clock.monotonic(), begins=begins)
            self._signals.news.notify_all()

    def put(self, record: LaneItems, nbytes: int, alive: Alive) -> int:
        """The end up to which the entry's session is acknowledged, once the entry is taken; waits while ``alive``."""
        lane = self.lane
        with self._lock:
            if lane.is_new(record.producer, record.end):
                self._wait_for_room(record, nbytes, alive)
            if self._signals.stopping:
                raise stopped()
            now = self._clock.monotonic()
            arrived = lane.arrive(record, nbytes, now)
            acked = lane.acknowledge(now)
            if arrived:
                if self._pulls:
                    self._signals.news.notify_all()
                if lane.unacknowledged or lane.allow.seconds is not None:
                    self._signals.work.notify()
            end = lane.acked(record.producer)
        others = {producer: end for producer, end in acked.items() if producer != record.producer}
        if others:
            self._deliver(lane.number, others)
        return end

    def mark(self, producer: str, start: int) -> int:
        """The next number expected of a producer, to whom everything below ``start`` was acknowledged."""
        with self._lock:
            if self.lane.mark(producer, start, self._clock.monotonic()) is not None:
                self._signals.news.notify_all()
            return self.lane.received(producer) or 0

    def finish(self, producer: str, end: int, alive: Alive | None) -> None:
        """Ends a session; returns when that is durable, at once without ``alive``."""
        with self._lock:
            while alive is not None and not self.lane.has_room_to_end(producer, end):
                if self._signals.stopping or not alive():
                    raise stopped()
                self._signals.room.wait(GLANCE_SECONDS)
            entry = self.lane.mark(producer, end, self._clock.monotonic(), final=True)
            if entry is None:
                return
            self._signals.news.notify_all()
            self._signals.work.notify()
            while alive is not None and not self._is_safe(entry):
                if self._signals.stopping or not alive():
                    raise stopped()
                self._signals.room.wait(GLANCE_SECONDS)

    def received(self, producer: str) -> int | None:
        with self._lock:
            return self.lane.received(producer)

    def acked(self, producer: str) -> int:
        with self._lock:
            return self.lane.acked(producer)

    def idle(self, producer: str) -> bool:
        with self._lock:
            return self.lane.idle(producer)

    def evict(self, producer: str) -> None:
        with self._lock:
            self.lane.evict(producer)

    # --- workers

    def attach(self, message: Attach) -> Attached:
        with self._lock:
            self._claim(message, takes_over=True)
            if message.positions is not None:
                self.lane.listing.forget(message.positions)
            attached = self.lane.attach(message.positions or {})
            self._set_allow(message.allow)
            acked = self._after_release()
            self._signals.news.notify_all()
        self._deliver(self.lane.number, acked)
        return attached

    def pull(self, ticket: Pull, alive: Alive) -> list[Handout]:
        """Entries above ``after`` and ``confirmed``, for which it waits. What is confirmed is released first."""
        with self._lock:
            acked = self._confirm(ticket, ticket.confirmed, ticket.durable)
            self._set_allow(ticket.allow)
            self.lane.wanted = ticket.until or {}
        self._deliver(self.lane.number, acked)
        above = dict(self._lane_positions(ticket))
        deadline = self._clock.monotonic() + ticket.wait
        with self._lock:
            if self._pulls >= _PULLS_AT_ONCE:
                raise LimitExceeded(
                    f"{self._pulls} pulls wait at lane {self.lane.number} already.",
                    remedy="A lane has one worker; end the others.",
                    limit="pulls",
                    allowed=_PULLS_AT_ONCE,
                    found=self._pulls + 1,
                )
            self._pulls += 1
            try:
                while not self.lane.has_more(above, ticket.until):
                    remaining = deadline - self._clock.monotonic()
                    if remaining <= 0 or not alive():
                        return []
                    self._signals.news.wait(min(remaining, GLANCE_SECONDS))
                    self._claim(ticket)
                    if self._signals.stopping:
                        raise stopped()
            finally:
                self._pulls -= 1
            handouts = self.lane.handouts(above, ticket.bytes, ticket.until)
        return joined(handouts)

    def stop_logging(self, message: StopLogging) -> bool:
        """Whether some of the entries are in the log, to which none of them is written from now on."""
        with self._lock:
            self._claim(message)
            return self.lane.stop_logging(message.positions)

    def confirm(self, message: Confirm) -> Confirmed:
        """Which of the positions need not be kept for the next batch. What is confirmed is released."""
        with self._lock:
            acked = self._confirm(message, message.positions, message.durable)
            listing = self.lane.listing
            answer = Confirmed(tuple(listing.forgettable(message.positions, self.lane.sessions)), listing.starts)
        self._deliver(self.lane.number, acked)
        return answer

    def waits(self) -> bool:
        """Whether there is anything for a worker."""
        with self._lock:
            return self.lane.pending_entries > 0

    def stats(self) -> dict[str, Any]:
        """Counters of the lane; items unless the name says otherwise."""
        with self._lock:
            lane = self.lane
            return {
                **asdict(lane.counters),
                **asdict(WriteCounters() if self.writer is None else self.writer.counters),
                "pending_items": lane.pending_items,
                "pending_entries": lane.pending_entries,
                "pending_bytes": lane.pending_bytes,
                "capacity_bytes": lane.capacity,
                "exposed_items": lane.exposed,
                "unacknowledged_entries": lane.unacknowledged,
                "blocked_seconds": self._blocked_seconds,
                "blocked_producers": self._blocked_now,
                "allow": lane.allow.to_json(),
                "sessions": sorted(lane.sessions),
                "positions": dict(lane.positions),
                "received": {producer: lane.received(producer) or 0 for producer in lane.sessions},
                "torn": [] if self.writer is None else list(self.writer.torn),
                "damaged": [] if self.writer is None else list(self.writer.damaged),
            }

    # --- inside; the lock is held unless said otherwise

    @staticmethod
    def _lane_positions(ticket: Pull) -> Positions:
        if not ticket.after:
            return ticket.confirmed
        above = dict(ticket.confirmed)
        for producer, end in ticket.after.items():
            above[producer] = max(end, above.get(producer, 0))
        return above

    def _claim(self, claim: Claim, *, takes_over: bool = False) -> bool:
        return self.lane.ownership.claim(claim.incarnation, claim.fence, claim.owner, takes_over=takes_over)

    def _confirm(self, claim: Claim, positions: Positions, durable: BackupNumber) -> dict[str, int]:
        if self._claim(claim):
            self._signals.news.notify_all()
        self.lane.confirm(positions, durable)
        return self._after_release()

    def _after_release(self) -> dict[str, int]:
        self._signals.room.notify_all()
        if self.lane.unacknowledged:
            self._signals.work.notify()
        return self.lane.acknowledge(self._clock.monotonic())

    def _set_allow(self, allow: Allowance | None) -> None:
        if allow is not None and allow != self.lane.allow:
            self.lane.allow = allow
            self._signals.work.notify()

    def _wait_for_room(self, record: LaneItems, nbytes: int, alive: Alive) -> None:
        if self.lane.has_room(nbytes) or self.lane.is_awaited(record):
            return
        began = self._clock.monotonic()
        self._blocked_now += 1
        try:
            while not (self.lane.has_room(nbytes) or self.lane.is_awaited(record)):
                if self._signals.stopping or not alive():
                    raise stopped()
                self._signals.room.wait(GLANCE_SECONDS)
        finally:
            self._blocked_now -= 1
            self._blocked_seconds += self._clock.monotonic() - began

    def _is_safe(self, entry: LaneEntry) -> bool:
        return entry.logged or entry.released or not entry.durable
