"""What of a lane waits for its acknowledgement or for the log, and the rule of the allowance. Pure decisions.

The rule: when an entry is acknowledged, it is in the item log, or the acknowledged items of the lane that are in no
log, this entry included, are within the allowance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from afspark.push.receiver.lane_entries import LaneEntry
from afspark.push.wire.messages import Allowance


class Backlog:
    """The unacknowledged and the unlogged entries of one lane, each in order of arrival.

    ``logs``: there is an item log. Without it nothing is ever planned, and nothing waits for it.
    ``late_acks``: an entry is acknowledged when the worker has confirmed it, and not before.
    """

    def __init__(self, allow: Allowance, *, logs: bool, late_acks: bool) -> None:
        self.allow = allow
        #: acknowledged items in no log object: what a failure now would lose
        self.exposed = 0
        self._logs, self._late_acks = logs, late_acks
        self._waiting: deque[LaneEntry] = deque()
        #: neither logged nor being written nor kept out of the log
        self._open: deque[LaneEntry] = deque()
        self._urgent = 0
        self._writing: list[LaneEntry] = []

    @property
    def unacknowledged(self) -> int:
        """How many entries wait for their acknowledgement."""
        return len(self._waiting)

    def wait(self, entry: LaneEntry) -> None:
        """Adds an entry that is to be acknowledged."""
        self._waiting.append(entry)

    def open(self, entry: LaneEntry) -> None:
        """Adds an entry that may have to be logged."""
        if self._logs:
            self._open.append(entry)
            self._urgent += entry.durable

    def acknowledged(self, now: float) -> Iterator[LaneEntry]:
        """The entries that are acknowledged now, in order of arrival."""
        while self._waiting and self._may_ack(self._waiting[0], now):
            entry = self._waiting.popleft()
            entry.acked = True
            if not (entry.logged or entry.released):
                self.exposed += entry.span
            yield entry

    def plan(self, now: float) -> list[LaneEntry]:
        """What must be written now, as one object; empty if nothing, or while a write is under way."""
        if not self._logs or self._writing:
            return []
        self.trim()
        if self._overdrawn(now):
            return self._take(self._loggable())
        if self._urgent:
            candidates = self._loggable()
            last = max((entry.order for entry in candidates if entry.durable), default=-1)
            return self._take(
                [entry for entry in candidates if entry.durable or (entry.order < last and not entry.acked)]
            )
        return []

    def plan_all(self) -> list[LaneEntry]:
        """Everything that is in no log, for an orderly end."""
        return [] if not self._logs or self._writing else self._take(self._loggable())

    def written(self, entries: Iterable[LaneEntry]) -> None:
        """The planned entries are durable."""
        for entry in entries:
            entry.writing = False
            entry.logged = True
            if entry.acked and not entry.released:
                self.exposed -= entry.span
        self._writing = []

    def failed(self) -> list[LaneEntry]:
        """The entries that were planned and could not be written; they are planned again."""
        failed, self._writing = self._writing, []
        for entry in failed:
            entry.writing = False
        self._reopen([*(entry for entry in failed if not entry.kept_out), *self._open])
        return failed

    def due(self) -> float | None:
        """When something grows too old to stay out of the log; None: never."""
        self.trim()
        if not self._logs or self.allow.seconds is None or not self._open:
            return None
        return self._open[0].arrived + self.allow.seconds

    def released(self, entry: LaneEntry, items: int) -> None:
        """Notes that so many items of an entry are confirmed: a failure does not lose them any more."""
        if entry.acked and not entry.logged:
            self.exposed -= items

    def trim(self) -> None:
        """Forgets entries that were released before they were logged."""
        while self._open and self._open[0].released:
            self._urgent -= self._open.popleft().durable

    def leave_kept_out(self) -> None:
        """Drops the entries that are kept out of the log from what may be logged."""
        self._reopen(entry for entry in self._open if not entry.kept_out)

    def take_back(self, entries: Iterable[LaneEntry]) -> None:
        """Entries that were kept out of the log may be logged again."""
        again = [
            entry for entry in entries if self._logs and not (entry.logged or entry.writing) and entry.belongs_in_log
        ]
        self._reopen([*self._open, *again])

    def _loggable(self) -> list[LaneEntry]:
        """What may be written now: all that is open, if no entry before it could turn up as missing.

        A later receiver takes what is below the end of a session's log for received. So nothing is written that
        comes after an unacknowledged entry which is kept out of the log.
        """
        missing = next(
            (
                entry.order
                for entry in self._waiting
                if entry.kept_out and not (entry.logged or entry.writing or entry.released)
            ),
            None,
        )
        return [
            entry
            for entry in self._open
            if not entry.released and (entry.acked or missing is None or entry.order < missing)
        ]

    def _reopen(self, entries: Iterable[LaneEntry]) -> None:
        self._open = deque(sorted(entries, key=lambda entry: entry.order))
        self._urgent = sum(entry.durable for entry in self._open)

    def _take(self, chosen: list[LaneEntry]) -> list[LaneEntry]:
        self._writing = chosen
        for entry in chosen:
            entry.writing = True
        self._reopen(entry for entry in self._open if not entry.writing)
        return chosen

    def _may_ack(self, entry: LaneEntry, now: float) -> bool:
        if entry.released:
            return True
        if self._late_acks:
            return False
        if entry.logged:
            # Only entries that are kept out can hold the lane over a lowered allowance now; they are confirmed soon.
            return self.exposed <= self.allow.items
        return not entry.durable and self._fits(entry, now)

    def _fits(self, entry: LaneEntry, now: float) -> bool:
        if self.exposed + entry.span > self.allow.items:
            return False
        if self.allow.seconds is None or not self._logs:
            return True
        self.trim()
        oldest = min((group[0].arrived for group in (self._writing, self._open) if group), default=entry.arrived)
        return now - oldest < self.allow.seconds

    def _overdrawn(self, now: float) -> bool:
        if not self._open:
            return False
        if self.exposed > self.allow.items:
            return True
        if self.allow.seconds is not None and now - self._open[0].arrived >= self.allow.seconds:
            return True
        if not self._waiting:
            return False
        head = self._waiting[0]
        return not (head.released or head.logged or head.durable) and not self._fits(head, now)
