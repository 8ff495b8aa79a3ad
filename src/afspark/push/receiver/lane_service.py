"""A lane at work: its queue behind a lock, and a thread that writes to the item log.

The log is written without the lock, so arrivals and pulls go on meanwhile; what arrives during a write and does
not fit the allowance waits, and all of it is covered by the next write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from afspark.errors import StoreError
from afspark.push.receiver.item_log import ItemLog
from afspark.push.receiver.lane import Lane
from afspark.push.receiver.lane_entries import Handout, LaneEntry, LaneItems, joined
from afspark.push.wire.messages import Allowance, Positions
from afspark.push.wire.push_errors import LimitExceeded, ReceiverStopped, Replaced
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

#: how often a waiting call looks whether its caller is still there
GLANCE_SECONDS = 0.1

_RETRY_SECONDS = (0.05, 5.0)
_DELETE_SECONDS = 1.0
_LOOK_SECONDS = 0.005
_DELETE_BATCH = 64
_PULLS_AT_ONCE = 64

Deliver = Callable[[int, dict[str, int]], None]
Alive = Callable[[], bool]


class LaneService:
    """``deliver(lane, {producer: end})`` is called without the lock, from any thread, with what is acknowledged.

    ``on_replaced()`` is called when another receiver has taken the lane: nothing is taken or acknowledged any more.
    """

    def __init__(
        self, lane: Lane, log: ItemLog | None, deliver: Deliver, on_replaced: Callable[[], None] = lambda: None
    ) -> None:
        self._on_replaced = on_replaced
        self.damaged: list[str] = []
        self.torn: list[str] = []
        self._lane = lane
        self._log = log
        self._deliver = deliver
        lock = threading.Lock()
        self._lock = lock
        self._room = threading.Condition(lock)
        self._news = threading.Condition(lock)
        self._work = threading.Condition(lock)
        self._pulls = 0
        self._blocked_now = 0
        self._stopping = False
        self._halt = threading.Event()
        self._blocked_seconds = 0.0
        self._writes: dict[str, Any] = {
            "objects": 0,
            "write_seconds": 0.0,
            "write_failures": 0,
            "last_failure": "",
            "deleted": 0,
        }
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Loads the log and begins to write."""
        if self._log is None:
            return
        loaded = self._log.load()
        self._lane.restore(loaded.records)
        self.torn, self.damaged = loaded.torn, loaded.damaged
        self._thread = threading.Thread(target=self._keep_log, name=f"afspark-log-{self._lane.number}", daemon=True)
        self._thread.start()

    def stop(self, *, save: bool) -> None:
        """Ends all waiting; ``save``: what was acknowledged and is in no log is written first."""
        with self._lock:
            self._end_waiting()
        if self._thread is not None:
            self._thread.join()
        if save and self._log is not None:
            with self._lock:
                planned = self._lane.plan_all()
            if planned:
                self._write(planned)
        if self._log is not None:
            self._delete()

    # --- producers

    def check_open(self, producer: str) -> None:
        """`SessionOver` if nothing of the session may be taken any more."""
        with self._lock:
            if self._lane.received(producer) is None:
                self._lane.listing.check(producer)

    def open(self, producer: str, *, begins: bool) -> None:
        """Lets a session send; ``begins``: it is a new one."""
        with self._lock:
            self._lane.open(producer, time.monotonic(), begins=begins)
            self._news.notify_all()

    def put(self, record: LaneItems, nbytes: int, alive: Alive) -> int:
        """Takes an entry, waiting for room while ``alive``. The end up to which its session is acknowledged."""
        lane = self._lane
        with self._lock:
            if not lane.has_room(nbytes) and lane.is_new(record.producer, record.end):
                self._wait_for_room(nbytes, alive)
            if self._stopping:
                raise _stopped()
            now = time.monotonic()
            arrived = lane.arrive(record, nbytes, now)
            acked = lane.acknowledge(now)
            if arrived:
                if self._pulls:
                    self._news.notify_all()
                if lane.unacknowledged or lane.allow.seconds is not None:
                    self._work.notify()
            end = lane.acked(record.producer)
        others = {producer: end for producer, end in acked.items() if producer != record.producer}
        if others:
            self._deliver(lane.number, others)
        return end

    def mark(self, producer: str, start: int) -> int:
        """Notes what was acknowledged to a producer; the next number expected of it."""
        with self._lock:
            if self._lane.mark(producer, start, time.monotonic()) is not None:
                self._news.notify_all()
            return self._lane.received(producer) or 0

    def finish(self, producer: str, end: int, alive: Alive | None) -> None:
        """Ends a session; returns when that is durable, at once without ``alive``."""
        with self._lock:
            while alive is not None and not self._lane.has_room_to_end(producer, end):
                if self._stopping or not alive():
                    raise _stopped()
                self._room.wait(GLANCE_SECONDS)
            entry = self._lane.mark(producer, end, time.monotonic(), final=True)
            if entry is None:
                return
            self._news.notify_all()
            self._work.notify()
            while alive is not None and not self._is_safe(entry):
                if self._stopping or not alive():
                    raise _stopped()
                self._room.wait(GLANCE_SECONDS)

    def received(self, producer: str) -> int | None:
        with self._lock:
            return self._lane.received(producer)

    def acked(self, producer: str) -> int:
        with self._lock:
            return self._lane.acked(producer)

    def idle(self, producer: str) -> bool:
        with self._lock:
            return self._lane.idle(producer)

    def evict(self, producer: str) -> None:
        with self._lock:
            self._lane.evict(producer)

    # --- workers

    def attach(self, message: Attach) -> Attached:
        with self._lock:
            self._claim(message, takes_over=True)
            if message.positions is not None:
                self._lane.listing.forget(message.positions)
            attached = self._lane.attach(message.positions or {})
            self._set_allow(message.allow)
            acked = self._after_release()
            self._news.notify_all()
        self._deliver(self._lane.number, acked)
        return attached

    def pull(self, ticket: Pull, alive: Alive) -> list[Handout]:
        """Releases what is confirmed, then waits for entries above ``after`` and ``confirmed``."""
        with self._lock:
            acked = self._confirm(ticket, ticket.confirmed, ticket.durable)
            self._set_allow(ticket.allow)
        self._deliver(self._lane.number, acked)
        above = dict(self._lane_positions(ticket))
        deadline = time.monotonic() + ticket.wait
        with self._lock:
            if self._pulls >= _PULLS_AT_ONCE:
                raise LimitExceeded(
                    f"{self._pulls} pulls wait at lane {self._lane.number} already.",
                    remedy="A lane has one worker; end the others.",
                    limit="pulls",
                    allowed=_PULLS_AT_ONCE,
                    found=self._pulls + 1,
                )
            self._pulls += 1
            try:
                while not self._lane.has_more(above):
                    remaining = deadline - time.monotonic()
                    if remaining <= 0 or not alive():
                        return []
                    self._news.wait(min(remaining, GLANCE_SECONDS))
                    self._claim(ticket)
                    if self._stopping:
                        raise _stopped()
            finally:
                self._pulls -= 1
            handouts = self._lane.handouts(above, ticket.bytes)
        return joined(handouts)

    def stop_logging(self, message: StopLogging) -> bool:
        with self._lock:
            self._claim(message)
            return self._lane.stop_logging(message.positions)

    def confirm(self, message: Confirm) -> Confirmed:
        """Releases what is confirmed; which of the positions need not be kept for the next batch."""
        with self._lock:
            acked = self._confirm(message, message.positions, message.durable)
            listing = self._lane.listing
            answer = Confirmed(tuple(listing.forgettable(message.positions, self._lane.sessions)), listing.tenures)
        self._deliver(self._lane.number, acked)
        return answer

    def waits(self) -> bool:
        """Whether there is anything for a worker."""
        with self._lock:
            return self._lane.pending_entries > 0

    def stats(self) -> dict[str, Any]:
        """Counters of the lane; items unless the name says otherwise."""
        with self._lock:
            lane = self._lane
            return {
                **asdict(lane.counters),
                **self._writes,
                "pending_items": lane.pending_items,
                "pending_entries": lane.pending_entries,
                "pending_bytes": lane.pending_bytes,
                "exposed_items": lane.exposed,
                "unacknowledged_entries": lane.unacknowledged,
                "blocked_seconds": self._blocked_seconds,
                "blocked_producers": self._blocked_now,
                "allow": lane.allow.to_json(),
                "sessions": sorted(lane.sessions),
                "positions": dict(lane.positions),
                "received": {producer: lane.received(producer) or 0 for producer in lane.sessions},
                "torn": list(self.torn),
                "damaged": list(self.damaged),
            }

    # --- inside; the lock is held unless said otherwise

    def _end_waiting(self) -> None:
        self._stopping = True
        self._halt.set()
        for condition in (self._room, self._news, self._work):
            condition.notify_all()

    @staticmethod
    def _lane_positions(ticket: Pull) -> Positions:
        if not ticket.after:
            return ticket.confirmed
        above = dict(ticket.confirmed)
        for producer, end in ticket.after.items():
            above[producer] = max(end, above.get(producer, 0))
        return above

    def _claim(self, claim: Claim, *, takes_over: bool = False) -> bool:
        return self._lane.ownership.claim(claim.incarnation, claim.fence, claim.owner, takes_over=takes_over)

    def _confirm(self, claim: Claim, positions: Positions, durable: BackupNumber) -> dict[str, int]:
        if self._claim(claim):
            self._news.notify_all()
        self._lane.confirm(positions, durable)
        return self._after_release()

    def _after_release(self) -> dict[str, int]:
        self._room.notify_all()
        if self._lane.unacknowledged:
            self._work.notify()
        return self._lane.acknowledge(time.monotonic())

    def _set_allow(self, allow: Allowance | None) -> None:
        if allow is not None and allow != self._lane.allow:
            self._lane.allow = allow
            self._work.notify()

    def _wait_for_room(self, nbytes: int, alive: Alive) -> None:
        began = time.monotonic()
        self._blocked_now += 1
        try:
            while not self._lane.has_room(nbytes):
                if self._stopping or not alive():
                    raise _stopped()
                self._room.wait(GLANCE_SECONDS)
        finally:
            self._blocked_now -= 1
            self._blocked_seconds += time.monotonic() - began

    def _is_safe(self, entry: LaneEntry) -> bool:
        return entry.logged or entry.released or not entry.durable

    # --- the thread of the log; the lock is not held

    def _keep_log(self) -> None:
        retry = 0.0
        deleted_at = time.monotonic()
        while True:
            with self._lock:
                planned = self._lane.plan(time.monotonic())
                if not planned:
                    if self._stopping:
                        return
                    due = self._lane.due()
                    now = time.monotonic()
                    # What is due may have to wait for the worker; then it is looked at again and again.
                    self._work.wait(
                        _DELETE_SECONDS if due is None else min(max(due - now, _LOOK_SECONDS), _DELETE_SECONDS)
                    )
                    planned = self._lane.plan(time.monotonic())
            if planned and not self._write(planned):
                if self._stopping:
                    return
                retry = min(max(2 * retry, _RETRY_SECONDS[0]), _RETRY_SECONDS[1])
                self._halt.wait(retry)
                continue
            retry = 0.0
            if time.monotonic() - deleted_at >= _DELETE_SECONDS:
                self._delete()
                deleted_at = time.monotonic()

    def _write(self, planned: list[tuple[LaneEntry, LaneItems]]) -> bool:
        assert self._log is not None
        began = time.monotonic()
        try:
            names = self._log.append([record for _, record in planned])
        except Exception as error:  # noqa: BLE001 (whatever it is, nothing is acknowledged, and it is tried again)
            with self._lock:
                self._lane.failed()
                self._writes["write_failures"] += 1
                self._writes["last_failure"] = str(error)
                replaced = isinstance(error, Replaced) and not self._stopping
                if replaced:
                    self._end_waiting()
            if replaced:
                self._on_replaced()
            return False
        with self._lock:
            self._lane.written({entry: name for (entry, _), name in zip(planned, names, strict=True)})
            self._writes["objects"] += len(set(names))
            self._writes["write_seconds"] += time.monotonic() - began
            acked = self._lane.acknowledge(time.monotonic())
            self._room.notify_all()
            self._news.notify_all()
        self._deliver(self._lane.number, acked)
        return True

    def _delete(self) -> None:
        assert self._log is not None
        with self._lock:
            garbage = self._lane.take_garbage()
        for begin in range(0, len(garbage), _DELETE_BATCH):
            names = garbage[begin : begin + _DELETE_BATCH]
            try:
                self._log.delete(names)
            except (StoreError, OSError) as error:
                # They stay; a later receiver finds them released by the worker's positions.
                with self._lock:
                    self._writes["last_failure"] = str(error)
                return
            with self._lock:
                self._lane.deleted(names)
                self._writes["deleted"] += len(names)


def _stopped() -> ReceiverStopped:
    return ReceiverStopped(
        "The receiver stops, or the call was given up.", remedy="Send again what was not acknowledged."
    )
