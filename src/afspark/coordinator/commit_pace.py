"""How far commits may be behind the batches. Pure.

Where lost workers can replay, nobody waits for the store: a batch ends, and its backups and its record become durable
behind the next ones. A batch that a record can name is a barrier. Every batch is one, unless an operator is backed up
at barriers only; then one comes when the first of those operators is due, and is one for all: what a record names is a
state of the whole query.

Not every barrier needs its record: the next one says all that it would have said, and until then lost workers replay.
So records are a part of what may be replayed apart, unless snapshots are apart already.
"""

from __future__ import annotations

from collections.abc import Sequence

from afspark.numbers import Batch
from afspark.policies import Tolerance

#: How many batches a record may be behind at most.
MOST_BATCHES = 49
#: How many records there are, at least, in the seconds that may be replayed, and in the batches.
RECORDS_IN_REPLAY = 10
#: How many bytes a worker may keep for others, because no record covers them.
MOST_KEPT_BYTES = 2**29
#: The next record is due when a worker keeps this part of what it may.
RECORDS_IN_KEPT = 8


class CommitPace:
    """Decides, before a batch begins, whether it is a ``barrier``, and whether its backups are ``behind`` it."""

    def __init__(
        self,
        tolerances: Sequence[Tolerance],
        *,
        replayable: bool,
        max_replay_seconds: float,
        record_seconds: float = 0.0,
        offsets_kept: int = 2 * MOST_BATCHES + 2,
        max_kept_bytes: int = MOST_KEPT_BYTES,
    ) -> None:
        # Spark forgets what belonged to older batches. The newest record may turn out to be unreadable: then all since
        # the one before it is replayed. And the first batch to be replayed needs the offsets before it.
        self._most_batches = min(MOST_BATCHES, (offsets_kept - 2) // 2)
        self._waiting = [one for one in tolerances if one.replays]
        self._replayable = replayable and (max_replay_seconds > 0 or bool(self._waiting))
        self._max_replay_seconds, self._record_seconds = max_replay_seconds, record_seconds
        self._max_kept_bytes = max_kept_bytes
        self._last = (0.0, Batch(-1), 0)
        self._spent: dict[Batch, float] = {}
        #: how long the last batch took: a barrier is where a batch ends, and it is chosen when one begins
        self._usual = 0.0
        self._kept: dict[Batch, int] = {}
        self._covered = Batch(-1)
        self.barrier = True
        self.behind = False
        #: barriers that were due since the last one, and skipped because a snapshot was on its way to the store
        self.skipped = 0
        #: the batch would have been a barrier, had there not been a snapshot on its way
        self.skips = False
        #: somebody asks for a barrier as soon as there can be one
        self.wanted = False

    def ask(self, tolerances: Sequence[Tolerance]) -> None:
        """From now on these say how far apart barriers are, if any do: workers may change theirs."""
        self._waiting = [one for one in tolerances if one.replays] or self._waiting

    @property
    def _limit(self) -> float:
        return max([self._max_replay_seconds, *(2 * one.barrier_seconds for one in self._waiting)])

    @property
    def takes_snapshots(self) -> bool:
        """Whether some operator is backed up at barriers only."""
        return bool(self._waiting)

    @property
    def records_kept(self) -> int | None:
        """How many of the newest records are kept, if some operator's policy says so."""
        return max((one.records_kept for one in self._waiting if one.records_kept is not None), default=None)

    @property
    def takes_all_back(self) -> bool:
        """Whether a loss takes all workers back to the last barrier."""
        return any(one.takes_all_back for one in self._waiting)

    def choose(
        self, now: float, batch: Batch, items: int, *, under_way: bool, must: bool, pressed: bool = False
    ) -> None:
        """Decides for ``batch``. ``must``: its record has to be durable when it ends. ``under_way``: an earlier one is
        on its way; ``pressed``: senders will have to wait until a record covers what they have sent; ``now`` and
        ``items``: the time, and what was taken so far.
        """
        due = pressed or self._is_due(now, batch, items)
        self.skips = due and under_way and bool(self._waiting) and not must and not self.is_late(batch)
        if self.skips:
            self.skipped += 1
            due = False
        self.barrier = due or must or self.is_late(batch)
        waits = self.barrier and any(one.waits_at_barriers for one in self._waiting)
        self.behind = self._replayable and not must and not waits

    def _is_due(self, now: float, batch: Batch, items: int) -> bool:
        seconds, batches, before = self._last
        return (
            not self._waiting
            or self.wanted
            or any(
                one.is_due(seconds=now + self._usual - seconds, batches=batch - batches, items=items - before)
                for one in self._waiting
            )
        )

    @property
    def record_seconds(self) -> float:
        """How far apart records are at least, where nobody waits for them."""
        return 0.0 if self._waiting else min(self._record_seconds, self._max_replay_seconds / RECORDS_IN_REPLAY)

    def is_record_due(self, *, seconds: float, batches: int) -> bool:
        """Whether a barrier so long after the one whose record was begun last needs its record."""
        return (
            seconds >= self.record_seconds
            or batches >= self._most_batches / RECORDS_IN_REPLAY
            or self._kept_bytes >= self._max_kept_bytes / RECORDS_IN_KEPT
        )

    def ended(self, batch: Batch, seconds: float, kept: int = 0) -> None:
        """A batch has taken so many seconds. ``kept``: how many bytes of it a worker keeps for others, at most."""
        self._usual = seconds
        if self._replayable:
            self._spent[batch], self._kept[batch] = seconds, kept

    def passed(self, now: float, batch: Batch, items: int) -> None:
        """``batch`` has ended as a barrier."""
        self._last, self.skipped, self.wanted = (now, batch, items), 0, False

    def cover(self, covered: Batch) -> None:
        """A record of ``covered`` is durable."""
        self._covered = covered
        self._spent = {batch: spent for batch, spent in self._spent.items() if batch > covered}
        self._kept = {batch: kept for batch, kept in self._kept.items() if batch > covered}

    @property
    def replay_seconds(self) -> float:
        """How long the batches took that no durable record covers."""
        return sum(self._spent.values())

    @property
    def _kept_bytes(self) -> int:
        """How much of the batches that no durable record covers a worker keeps for others, at most."""
        return sum(self._kept.values())

    def is_late(self, batch: Batch) -> bool:
        """Whether a worker that is lost in ``batch`` would have too much to replay, or others keep too much for it."""
        return self._replayable and (
            batch - self._covered > self._most_batches
            or self.replay_seconds > self._limit
            or self._kept_bytes >= self._max_kept_bytes
        )
