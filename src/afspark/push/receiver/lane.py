"""The queue of one worker: what has arrived, what is acknowledged, what must be backed up. Pure decisions.

No thread, no clock and no I/O: events go in with the time they happen, and the answers say what to acknowledge
and what to write. `backlog` has the rule that decides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from afspark.push.receiver.backlog import Backlog
from afspark.push.receiver.lane_entries import (
    ENTRY_BYTES,
    Handout,
    LaneCounters,
    LaneEntry,
    LaneItems,
    ProducerSession,
    in_order,
)
from afspark.push.receiver.lane_ownership import LaneOwnership
from afspark.push.receiver.log_objects import LogObjects
from afspark.push.receiver.session_listing import Listing
from afspark.push.wire.messages import Allowance, Positions
from afspark.push.wire.push_errors import OutOfOrder
from afspark.push.wire.worker_messages import NO_BACKUP, Attached, BackupNumber


class Lane:
    """Entries of one lane in order of arrival. ``listing``: which sessions its worker lists.

    ``logs``: there is an item log. Without it nothing is ever planned, and nothing waits for it.
    ``ack_when_confirmed``: the producer keeps an entry until the worker has confirmed it; nothing is logged.
    ``log_first``: everything is in the log before a worker gets it, and is acknowledged out of the log.
    """

    def __init__(
        self,
        number: int,
        allow: Allowance,
        capacity: int,
        *,
        logs: bool = True,
        ack_when_confirmed: bool = False,
        log_first: bool = False,
        listing: Listing | None = None,
    ) -> None:
        self.number = number
        self.counters = LaneCounters()
        self.pending_bytes = 0
        self.pending_items = 0
        self._capacity = capacity
        self._logs = logs and not ack_when_confirmed
        self._log_first = log_first and self._logs
        self.ownership = LaneOwnership(number)
        self._durable = NO_BACKUP
        self._order = 0
        self._sessions: dict[str, ProducerSession] = {}
        self.listing = listing or Listing()
        self._confirmed = self.listing.confirmed
        #: in order of arrival
        self._pending: dict[LaneEntry, None] = {}
        self._backlog = Backlog(allow, logs=self._logs, late_acks=ack_when_confirmed)
        self._objects = LogObjects()
        #: what its worker applies once more and waits for, if that was sent to another receiver before
        self.wanted: Positions = {}

    # --- what producers do

    def has_room(self, nbytes: int) -> bool:
        """Whether a batch fits the lane's share of memory; an empty lane takes any."""
        return not self.pending_bytes or self.pending_bytes + nbytes <= self._capacity

    def is_awaited(self, record: LaneItems) -> bool:
        """Whether the worker cannot go on without an entry. Such a one is taken even if others have filled the lane:
        nothing of theirs is released before the worker has it. It was in the lane before, within its share.
        """
        return record.start < self.wanted.get(record.producer, 0)

    def has_room_to_end(self, producer: str, end: int) -> bool:
        """Whether a session may end at ``end`` now; marks may go beyond the lane's share by an eighth."""
        if self.idle(producer) and end <= self._confirmed.get(producer, 0):
            return True
        return self.pending_bytes + ENTRY_BYTES <= self._capacity + self._capacity // 8

    def is_new(self, producer: str, end: int) -> bool:
        """Whether an entry up to ``end`` would be kept rather than recognised as sent before."""
        session = self._sessions.get(producer)
        return end > (self._confirmed.get(producer, 0) if session is None else session.end)

    def open(self, producer: str, now: float, *, begins: bool) -> None:
        """Lets a session send, and tells the worker of one that it may not know. ``begins``: it is a new one."""
        if self.listing.open(producer, begins=begins) and producer not in self._sessions:
            # It takes no room: there are no more of these than open sessions, which are limited.
            opening = LaneItems(producer, 0, 0, mark=True)
            self._append(self._session(producer), opening, 0, now, stays_open=False).acked = True

    def arrive(self, record: LaneItems, nbytes: int, now: float) -> bool:
        """Whether an entry is new, and taken. `OutOfOrder` if it overlaps or leaves a hole."""
        session = self._session(record.producer)
        if record.end <= session.end:
            self.counters.duplicates += record.span
            return False
        # What this receiver has not seen itself may be cut elsewhere, but none may be missing without a receipt.
        if record.start > session.end or (record.start < session.end and not session.fresh):
            raise OutOfOrder.of(record.producer, lane=self.number, expected=session.end, found=record.start)
        if not record.span:
            return False
        if record.punctuation is None:
            self.counters.accepted += record.span
        else:
            self.counters.punctuation += 1
        kept = record.above(session.end)
        session.end, session.fresh = record.end, False
        durable = self._log_first or (self._logs and record.punctuation is not None)
        entry = self._append(session, kept, nbytes, now, durable=durable)
        self._backlog.wait(entry)
        return True

    def mark(self, producer: str, start: int, now: float, *, final: bool = False) -> LaneEntry | None:
        """The entry which says that everything below ``start`` was acknowledged; None if nothing can be missing.

        A ``final`` mark ends the session, and is to be logged: nobody will say it again.
        """
        session = self._session(producer)
        session.over = session.over or final
        if final and session.pending and session.pending[-1].only_opens and not session.pending[-1].handed_out:
            # No worker has heard of the session, and none needs to.
            self._release(session.pending.pop())
        needed = start > (self._confirmed.get(producer, 0) if final else session.end)
        session.end, session.acked = max(session.end, start), max(session.acked, start)
        if not needed:
            self._forget(producer)
            return None
        self.counters.marks += 1
        record = LaneItems(producer, start, 0, mark=True)
        if not final and session.pending and session.pending[-1].is_said_again:
            # However often a session says hello, it has one of these.
            last = session.pending[-1]
            last.record, last.end, last.kept_out = record, start, False
            return last
        entry = self._append(session, record, ENTRY_BYTES, now, durable=final and self._logs, stays_open=final)
        entry.acked = True
        return entry

    def received(self, producer: str) -> int | None:
        """The next number expected of a session; None if the lane does not know it."""
        session = self._sessions.get(producer)
        return None if session is None else session.end

    def acked(self, producer: str) -> int:
        """Everything of the session below this was acknowledged."""
        session = self._sessions.get(producer)
        return 0 if session is None else session.acked

    # --- acknowledgements and the log

    def acknowledge(self, now: float) -> dict[str, int]:
        """What can be acknowledged now: per producer the end. Entries are acknowledged in order of arrival."""
        ends: dict[str, int] = {}
        for entry in self._backlog.acknowledged(now):
            self.counters.acknowledged += entry.span
            if (session := self._sessions.get(entry.producer)) is not None:
                session.acked = max(session.acked, entry.end)
                self._forget(entry.producer)
            ends[entry.producer] = entry.end
        return ends

    def plan(self, now: float) -> list[tuple[LaneEntry, LaneItems]]:
        """What must be written to the log now, as one object; empty if nothing, or while a write is under way.

        Answer with `written` or `failed`.
        """
        return self._planned(self._backlog.plan(now))

    def plan_all(self) -> list[tuple[LaneEntry, LaneItems]]:
        """Everything that is in no log, for an orderly end."""
        return self._planned(self._backlog.plan_all())

    def written(self, names: Mapping[LaneEntry, str]) -> None:
        """The planned entries are durable, each in the object of that name."""
        self._backlog.written(names)
        for entry, name in names.items():
            entry.object = name
            self._sessions[entry.producer].writing -= 1
            self.counters.logged += entry.span
        self._hold(names)

    def failed(self) -> None:
        """The planned entries could not be written; they are planned again."""
        for entry in self._backlog.failed():
            self._sessions[entry.producer].writing -= 1

    def due(self) -> float | None:
        """When something grows too old to stay out of the log; None: never."""
        return self._backlog.due()

    def take_garbage(self) -> list[str]:
        """Objects all of whose entries are released. Answer with `deleted`."""
        return self._objects.take_garbage()

    def deleted(self, names: Iterable[str]) -> None:
        for producer in self._objects.deleted(names):
            if (session := self._sessions.get(producer)) is not None:
                session.objects -= 1
                self._forget(producer)

    def restore(self, records: Iterable[tuple[str, LaneItems, int]]) -> None:
        """Entries found in the log (object, record, bytes), in the order they were written.

        A producer's come back by their numbers: punctuation may have been written before items that came earlier.
        """
        names: dict[LaneEntry, str] = {}
        needless: dict[str, None] = {}
        for name, record, nbytes in in_order(records):
            if self.listing.is_over(record.producer):
                needless[name] = None
                continue
            session = self._session(record.producer)
            session.over = session.over or record.mark
            if record.end <= session.end:
                needless[name] = None
                continue
            kept = record.above(session.end)
            session.end = session.acked = record.end
            entry = self._append(session, kept, nbytes, 0.0, stays_open=False)
            entry.acked = entry.logged = True
            entry.object = name
            names[entry] = name
            self.counters.restored += kept.span
        self._hold(names)
        self._objects.drop(needless)

    # --- what workers do

    def attach(self, positions: Positions) -> Attached:
        """What is known to be confirmed, and by which backup, for a worker whose state has ``positions``.

        What another worker was about to make final and is not below the positions counts as pending again.
        """
        self.confirm(positions)
        again = [entry for entry in self._pending if entry.kept_out]
        for entry in again:
            entry.kept_out = False
        self._backlog.take_back(again)
        return Attached(dict(self._confirmed), self._durable)

    def confirm(self, positions: Positions, durable: BackupNumber = NO_BACKUP) -> None:
        """Releases what is below the positions; ``durable`` is the newest backup of the state they belong to."""
        self._durable = max(self._durable, durable)
        for producer, position in positions.items():
            if position <= self._confirmed.get(producer, -1):
                continue
            self._confirmed.pop(producer, None)  # the one that was heard of last comes last
            self._confirmed[producer] = position
            session = self._sessions.get(producer)
            if session is None:
                continue
            if position > session.end:
                # The state has what this receiver has not seen (again); where it goes on may be cut elsewhere.
                session.end = session.acked = position
                session.fresh = True
            while session.pending and session.pending[0].end <= position:
                self._release(session.pending.popleft())
            if session.pending:
                self._cut(session.pending[0], position)
            self._forget(producer)
        self._backlog.trim()
        self.listing.advance()

    def stop_logging(self, positions: Positions) -> bool:
        """Whether any entry below the positions is in the log, to which none of them is written from now on."""
        logged = False
        for producer, position in positions.items():
            session = self._sessions.get(producer)
            for entry in session.pending if session is not None else ():
                if entry.end > position:
                    break
                entry.kept_out = True
                logged = logged or entry.logged or entry.writing
        self._backlog.leave_kept_out()
        return logged

    def handouts(self, after: Positions, nbytes: int, until: Positions | None = None) -> list[Handout]:
        """Pending entries above ``after``, the oldest first: as many as fit ``nbytes``, but at least one.

        ``until``: only those that have something below it, for whoever applies a batch once more.
        """
        found: list[Handout] = []
        size = 0
        for entry in self._pending:
            position = after.get(entry.producer, -1)
            if entry.record is None or entry.end <= position or not _is_below(entry.record, position, until):
                continue
            if self._is_held(entry):
                break
            if found and size + entry.nbytes > nbytes:
                break
            size += entry.nbytes
            entry.handed_out = True
            found.append(Handout(entry.record.above(position), entry.logged))
        return found

    def has_more(self, after: Positions, until: Positions | None = None) -> bool:
        """Whether `handouts` would give anything."""
        # What is held comes after all that is not; else the newest is the first to be found.
        entries = self._pending if self._log_first else reversed(self._pending)
        new = (
            entry
            for entry in entries
            if entry.record is not None
            and entry.end > (position := after.get(entry.producer, -1))
            and _is_below(entry.record, position, until)
        )
        first = next(new, None)
        return first is not None and not self._is_held(first)

    # --- what others look at

    @property
    def capacity(self) -> int:
        """Its share of memory, in bytes."""
        return self._capacity

    @property
    def allow(self) -> Allowance:
        """What may be acknowledged without being in the log."""
        return self._backlog.allow

    @allow.setter
    def allow(self, allow: Allowance) -> None:
        self._backlog.allow = allow

    @property
    def exposed(self) -> int:
        """Acknowledged items in no log object: what a failure now would lose."""
        return self._backlog.exposed

    @property
    def sessions(self) -> Mapping[str, ProducerSession]:
        return self._sessions

    @property
    def positions(self) -> Mapping[str, int]:
        return self._confirmed

    @property
    def pending_entries(self) -> int:
        return len(self._pending)

    @property
    def unacknowledged(self) -> int:
        """Entries that wait for their acknowledgement."""
        return self._backlog.unacknowledged

    def idle(self, producer: str) -> bool:
        """Whether nothing of the session is pending here or kept in the log."""
        session = self._sessions.get(producer)
        return session is None or not (
            session.pending or session.writing or session.objects or session.acked < session.end
        )

    def evict(self, producer: str) -> None:
        """Forgets an idle session; its confirmed position stays, so what it sends again is still recognised."""
        if self.idle(producer):
            self._sessions.pop(producer, None)

    # --- inside

    def _is_held(self, entry: LaneEntry) -> bool:
        """Whether it may not be handed out yet."""
        return self._log_first and entry.durable and not entry.logged

    def _session(self, producer: str) -> ProducerSession:
        session = self._sessions.get(producer)
        if session is None:
            known = self._confirmed.get(producer, 0)
            session = self._sessions[producer] = ProducerSession(known, known)
        return session

    def _append(
        self,
        session: ProducerSession,
        record: LaneItems,
        nbytes: int,
        now: float,
        *,
        durable: bool = False,
        stays_open: bool = True,
    ) -> LaneEntry:
        if session.pending and session.pending[-1].only_opens:
            self._release(session.pending.pop())
        entry = LaneEntry(record, record.producer, record.end, record.span, nbytes, now, self._order, durable)
        self._order += 1
        session.pending.append(entry)
        self._pending[entry] = None
        self.pending_bytes += nbytes
        self.pending_items += record.span
        if stays_open:
            self._backlog.open(entry)
        return entry

    def _planned(self, chosen: list[LaneEntry]) -> list[tuple[LaneEntry, LaneItems]]:
        for entry in chosen:
            self._sessions[entry.producer].writing += 1
        # Records do not change while they are written, entries do.
        return [(entry, entry.record) for entry in chosen if entry.record is not None]

    def _release(self, entry: LaneEntry) -> None:
        del self._pending[entry]
        entry.released = True
        entry.record = None
        self.pending_bytes -= entry.nbytes
        self.pending_items -= entry.span
        self.counters.released += entry.span
        self._backlog.released(entry, entry.span)
        if entry.object:
            self._objects.release(entry.object)

    def _cut(self, entry: LaneEntry, position: int) -> None:
        """The worker stopped inside an entry: what it has is gone, the rest stays."""
        if entry.record is None:
            return
        rest = entry.record.above(position)
        done = entry.span - rest.span
        entry.record, entry.span = rest, rest.span
        self.pending_items -= done
        self.counters.released += done
        self._backlog.released(entry, done)

    def _hold(self, names: Mapping[LaneEntry, str]) -> None:
        for producer in self._objects.hold(names):
            self._sessions[producer].objects += 1

    def _forget(self, producer: str) -> None:
        session = self._sessions.get(producer)
        if session is not None and session.over and self.idle(producer):
            del self._sessions[producer]
            self.listing.end(producer)


def _is_below(record: LaneItems, position: int, until: Positions | None) -> bool:
    """Whether some of what an entry has above ``position`` is below ``until``; a mark speaks of all below it."""
    if until is None:
        return True
    limit = until.get(record.producer, -1)
    return (position if record.mark else max(record.start, position)) < limit
