"""The thread that writes a lane's entries to its item log, and deletes what no worker needs any more.

The log is written without the lane's lock, so arrivals and pulls go on meanwhile; what arrives during a write and does
not fit the allowance waits, and all of it is covered by the next write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from afspark.clock import Clock
from afspark.errors import StoreError
from afspark.push.receiver.item_log import ItemLog
from afspark.push.receiver.lane import Lane
from afspark.push.receiver.lane_entries import LaneEntry, LaneItems
from afspark.push.receiver.lane_signals import LaneSignals
from afspark.push.receiver.threads import Threads
from afspark.push.wire.push_errors import Replaced

_RETRY_SECONDS = (0.05, 5.0)
_DELETE_SECONDS = 1.0
_LOOK_SECONDS = 0.005
_DELETE_BATCH = 64

#: entries that are written together, each with what it said when the write was planned
Planned = list[tuple[LaneEntry, LaneItems]]


@dataclass
class WriteCounters:
    """What was written to a log since it was opened."""

    objects: int = 0
    write_seconds: float = 0.0
    write_failures: int = 0
    last_failure: str = ""
    deleted: int = 0


class LogWriter:
    """Writes one lane's log. The lane's lock is not held when a method is called.

    ``acknowledged(ends)`` is called with what became acknowledged by a write, and ``on_replaced()`` when another
    receiver has taken the lane: nothing is taken or acknowledged any more.
    """

    def __init__(
        self,
        lane: Lane,
        log: ItemLog,
        signals: LaneSignals,
        clock: Clock,
        *,
        acknowledged: Callable[[dict[str, int]], None],
        on_replaced: Callable[[], None],
    ) -> None:
        self._lane, self.log, self._signals, self._clock = lane, log, signals, clock
        self._acknowledged, self._on_replaced = acknowledged, on_replaced
        self.counters = WriteCounters()
        self.torn: list[str] = []
        self.damaged: list[str] = []
        self._join: Callable[[], None] = lambda: None

    def start(self, threads: Threads) -> None:
        """Puts what the log holds into the lane, and begins to write."""
        loaded = self.log.load()
        self._lane.restore(loaded.records)
        self.torn, self.damaged = loaded.torn, loaded.damaged
        self._join = threads.start_loop(self._run, f"afspark-log-{self._lane.number}")

    def stop(self, *, save: bool) -> bool:
        """Waits for the end of the thread; then writes what was acknowledged and is in no log, if ``save`` says so.

        Whether all of that is durable.
        """
        self._join()
        saved = True
        if save:
            with self._signals.lock:
                planned = self._lane.plan_all()
            saved = not planned or self.write(planned)
        self.delete()
        return saved

    def plan(self) -> Planned:
        """What has to be written now; answer with `write`."""
        with self._signals.lock:
            return self._lane.plan(self._clock.monotonic())

    def write(self, planned: Planned) -> bool:
        """Whether the entries are durable now; if not, they will be planned again."""
        began = self._clock.monotonic()
        try:
            names = self.log.append([record for _, record in planned])
        except Exception as error:  # noqa: BLE001 (whatever it is, nothing is acknowledged, and it is tried again)
            self._failed(error)
            return False
        with self._signals.lock:
            self._lane.written({entry: name for (entry, _), name in zip(planned, names, strict=True)})
            self.counters.objects += len(set(names))
            now = self._clock.monotonic()
            self.counters.write_seconds += now - began
            acked = self._lane.acknowledge(now)
            self._signals.room.notify_all()
            self._signals.news.notify_all()
        self._acknowledged(acked)
        return True

    def delete(self) -> None:
        """Deletes the objects all of whose entries are released."""
        with self._signals.lock:
            garbage = self._lane.take_garbage()
        for begin in range(0, len(garbage), _DELETE_BATCH):
            names = garbage[begin : begin + _DELETE_BATCH]
            try:
                self.log.delete(names)
            except (StoreError, OSError) as error:
                # They stay; a later receiver finds them released by the worker's positions.
                with self._signals.lock:
                    self.counters.last_failure = str(error)
                return
            with self._signals.lock:
                self._lane.deleted(names)
                self.counters.deleted += len(names)

    def _failed(self, error: Exception) -> None:
        with self._signals.lock:
            self._lane.failed()
            self.counters.write_failures += 1
            self.counters.last_failure = str(error)
            replaced = isinstance(error, Replaced) and not self._signals.stopping
            if replaced:
                self._signals.end_waiting()
        if replaced:
            self._on_replaced()

    def _run(self) -> None:
        retry = 0.0
        deleted_at = self._clock.monotonic()
        while True:
            planned = self._next()
            if not planned and self._signals.stopping:
                return
            if planned and not self.write(planned):
                if self._signals.stopping:
                    return
                retry = min(max(2 * retry, _RETRY_SECONDS[0]), _RETRY_SECONDS[1])
                self._signals.halt.wait(retry)
                continue
            retry = 0.0
            if self._clock.monotonic() - deleted_at >= _DELETE_SECONDS:
                self.delete()
                deleted_at = self._clock.monotonic()

    def _next(self) -> Planned:
        """What has to be written; waits for it for a while."""
        with self._signals.lock:
            now = self._clock.monotonic()
            planned = self._lane.plan(now)
            if planned or self._signals.stopping:
                return planned
            due = self._lane.due()
            # What is due may have to wait for the worker; then it is looked at again and again.
            self._signals.work.wait(
                _DELETE_SECONDS if due is None else min(max(due - now, _LOOK_SECONDS), _DELETE_SECONDS)
            )
            return self._lane.plan(self._clock.monotonic())
