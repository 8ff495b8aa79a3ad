"""The worker's side of a receiver: takes items off its lane for the length of a batch, each once.

A lane hands out what has not been confirmed, from the oldest; after a failure also what the state has already.
Sequence numbers tell: what is below the position of its producer is left out, what is missing above it is a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from afspark.clock import Clock, SystemClock
from afspark.errors import BackupLost, SegmentError
from afspark.push.receiver.session_listing import is_receiver_start
from afspark.push.wire.messages import PunctuationMark as Mark
from afspark.push.wire.worker_messages import NO_BACKUP, Attached, BackupNumber
from afspark.store.itemlosses import Gap
from afspark.store.lane_order import LaneOrder
from afspark.task.first_order import FirstOrder, LanePiece, Portion, portion_of
from afspark.task.step_progress import Positions, StepProgress

#: How long a worker waits for items before it looks at the clock again.
WAIT_SECONDS = 0.05

#: How long a worker that has to be restored waits for its receiver to answer.
CLAIM_SECONDS = 5.0

#: How long a worker that applies a batch once more waits for those who have to send its items again.
RESEND_SECONDS = 60.0

#: How much is taken at once: a step is small enough to be confirmed often, and large enough for the kernels.
PORTION_BYTES = 16_000_000


class PulledEntry(Protocol):
    """An entry of a lane."""

    @property
    def producer(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def batch(self) -> pa.RecordBatch | None: ...
    @property
    def end(self) -> int: ...
    @property
    def punctuation(self) -> Mark | None: ...
    @property
    def mark(self) -> bool: ...


class LaneConnection(Protocol):
    """What a worker asks of its receiver; `LaneAway` if nobody answers."""

    def attach(self, positions: Positions | None) -> Attached: ...
    def pull(
        self,
        after: Positions,
        confirmed: Positions,
        durable: BackupNumber,
        *,
        size: int,
        wait: float,
        until: Positions | None = None,
    ) -> Sequence[PulledEntry]: ...
    def stop_logging(self, positions: Positions) -> bool: ...


class LaneAway(Exception):
    """The receiver does not answer."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """Where a worker takes up its lane in a batch."""

    #: the newest durable backup that is in the state
    durable: BackupNumber
    #: some of the batch is in the state already
    resumed: bool = False
    #: nothing of the batch has been applied to this state yet: all it has, it was restored with
    restored: bool = True
    #: a loss of state, in which confirmed items may have gone, is counted
    losses_counted: bool = False
    #: damaged objects were passed over while it was restored
    damaged: bool = False


class Intake:
    """One lane during one batch. ``progress`` tells what of it is in the state and closed.

    ``released``: what the receiver may forget, where that is not what the state has: the rest may have to be applied
    once more. ``until``: the batch is applied once more, and ended there; ``gone``: what was missing then; ``order``:
    how it was taken.
    """

    def __init__(
        self,
        lane: LaneConnection,
        *,
        seconds: float,
        size: int = PORTION_BYTES,
        clock: Clock | None = None,
        released: Positions | None = None,
        until: Positions | None = None,
        gone: Sequence[Gap] = (),
        order: LaneOrder = (),
    ) -> None:
        self._lane, self._seconds, self._size, self._clock = lane, seconds, size, clock or SystemClock()
        self._released, self._until, self._gone = released, until, gone
        self._again = FirstOrder(order, until or {})
        #: how the batch was taken, if it may have to be applied once more
        self.order = order
        self._deadline: float | None = None
        self._attached = False
        self._confirmed: Positions = {}
        self._durable = NO_BACKUP
        self._start: Start | None = None
        self.positions: dict[str, int] = {}
        self.gaps: tuple[Gap, ...] = ()
        self.bytes = 0
        #: items that the receiver has released and the state does not have: they went with an earlier incarnation
        self.behind = 0
        #: the state begins before a backup that was durable, and damage is the reason
        self.misses_backup = False
        #: items that the batch had when it was applied first, and that nobody has sent again
        self.unsent: tuple[Gap, ...] = ()
        self._answered = 0.0

    def claim(self) -> None:
        """Shuts out whoever has the lane, before anything is looked for in the store. `LaneAway` if nobody answers."""
        deadline = self._clock.monotonic() + CLAIM_SECONDS
        while True:
            try:
                self._lane.attach(None)
                return
            except LaneAway:
                if self._clock.monotonic() >= deadline:
                    raise
                self._clock.sleep(WAIT_SECONDS)

    def resume(self, progress: StepProgress, start: Start) -> None:
        """Goes on where ``progress`` says. A batch that was under way already takes no more than is waiting."""
        self.positions, self.gaps, self.bytes = dict(progress.positions), progress.gaps, progress.bytes
        self._confirmed, self._durable, self._start = dict(progress.positions), start.durable, start
        if self._released is not None:
            self._confirmed, self._durable = dict(self._released), NO_BACKUP
        self._deadline = self._clock.monotonic() + (0.0 if start.resumed else self._seconds)
        if self._until is not None:
            self._deadline = self._clock.monotonic() + RESEND_SECONDS
        self._answered = self._clock.monotonic()

    @property
    def over(self) -> bool:
        assert self._deadline is not None
        return self._clock.monotonic() >= self._deadline

    def portion(self, wait: float = WAIT_SECONDS) -> Portion | None:
        """The next items; None when the time of the batch is over. Empty if none came within ``wait`` seconds."""
        if self._until is not None:
            return self._portion_again(self._until, wait)
        if self.over:
            return None
        try:
            pieces = self._new(self._pull(wait))
        except LaneAway:
            self._attached = False
            self._clock.sleep(WAIT_SECONDS)
            return Portion()
        if pieces and self._released is not None:
            self.order = (*self.order, tuple((piece.producer, piece.end) for piece in pieces))
        return portion_of(pieces)

    def _portion_again(self, until: Positions, wait: float) -> Portion | None:
        """The next items of a batch that is applied once more; None when all are there, or nobody sends the rest."""
        if (ready := self._again.next(self.positions)) is not None:
            return ready
        lacking = [
            part
            for producer, end in until.items()
            if not is_receiver_start(producer) and self.positions.get(producer, 0) < end
            for part in Gap(producer, self.positions.get(producer, 0), end).beyond(self._gone)
        ]
        if not lacking or self.over:
            self.unsent = (*self.unsent, *lacking)
            self.positions = dict(until)
            return self._again.next(self.positions)
        now = self._clock.monotonic()
        try:
            pieces = self._new(self._pull(wait))
        except LaneAway as error:
            self._attached = False
            if now >= self._answered + RESEND_SECONDS:
                raise SegmentError("The receiver of items to be applied once more does not answer.") from error
            self._clock.sleep(WAIT_SECONDS)
            # Nobody can send anything while it is away.
            self._deadline = now + RESEND_SECONDS
            return Portion()
        self._answered = now
        if pieces:
            self._deadline = now + RESEND_SECONDS
        self._again.put(pieces)
        return self._again.next(self.positions) or Portion()

    def stop_logging(self) -> bool:
        """Has the receiver stop logging the step's items before the step is closed. Returns whether some are in the
        log, so that the step's end must be durable.
        """
        try:
            self._attach()
            return self._lane.stop_logging(self.positions)
        except LaneAway:
            # What it has logged it will hand out again, unless the position is durable.
            return True

    def confirm(self, positions: Positions, durable: BackupNumber) -> None:
        """What is below the positions is in the state for good; the receiver hears of it with the next pull."""
        if self._released is None:
            self._confirmed, self._durable = dict(positions), durable

    def _pull(self, wait: float) -> Sequence[PulledEntry]:
        self._attach()
        assert self._deadline is not None
        left = max(0.0, self._deadline - self._clock.monotonic())
        wait = min(wait, left)
        return self._lane.pull(
            self.positions, self._confirmed, self._durable, size=self._size, wait=wait, until=self._until
        )

    def _attach(self) -> None:
        if not self._attached:
            self._meet(self._lane.attach(self._confirmed))
            self._attached = True

    def _meet(self, known: Attached) -> None:
        """Compares what the receiver has released with what the state has.

        Whoever confirms items has a durable backup, or may lose them within its bound. So a state that was restored
        begins at the newest backup that anything was confirmed for, and what was confirmed beyond it is a loss of
        state that has been counted; anything else breaks the promise, and must not go on in silence. Under an exact
        policy nothing is confirmed beyond a backup.
        """
        start, behind = self._start, 0
        assert start is not None
        for producer, end in known.positions.items():
            at = self.positions.get(producer, 0)
            behind += 0 if is_receiver_start(producer) else max(0, end - at)
            self.positions[producer] = max(at, end)
        self._start = replace(start, restored=False)
        if not start.restored:
            if behind:
                raise BackupLost.of(f"it is older than {behind} confirmed items", known.durable, start.durable)
            return
        self.behind += behind
        if known.durable > start.durable or (behind and not start.losses_counted):
            if not start.damaged:
                raise BackupLost.of(f"{behind} items were confirmed that it lacks", known.durable, start.durable)
            self.misses_backup = True

    def _new(self, entries: Iterable[PulledEntry]) -> list[LanePiece]:
        pieces: list[LanePiece] = []
        for entry in entries:
            at = self.positions.get(entry.producer, 0)
            limit = entry.end if self._until is None else self._until.get(entry.producer, 0)
            end = min(entry.end, limit)
            if entry.start > at and self._until is None:
                self.gaps = (*self.gaps, Gap(entry.producer, at, entry.start))
            elif min(entry.start, limit) > at:
                # What the batch had of them when it was applied first was released since.
                self.unsent = (*self.unsent, *Gap(entry.producer, at, min(entry.start, limit)).beyond(self._gone))
            self.positions[entry.producer] = max(at, end)
            if end <= at:
                continue
            first = max(at, entry.start)
            if entry.punctuation is not None:
                pieces.append(LanePiece(entry.producer, first, punctuation=entry.punctuation))
            elif entry.batch is not None:
                fresh = entry.batch.slice(max(0, at - entry.start), end - first)
                self.bytes += fresh.nbytes
                pieces.append(LanePiece(entry.producer, first, fresh))
        return pieces
