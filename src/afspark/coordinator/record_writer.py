"""Commit records on their way to the store, behind the batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from afspark.cluster.cluster import Cluster
from afspark.coordinator.recovery.replay_check import ReplayCheck
from afspark.coordinator.snapshots import LOSS, Snapshots
from afspark.coordinator.worker_state import Covered
from afspark.errors import CheckpointError
from afspark.numbers import Batch
from afspark.store import CommitRecord, RecordLog
from afspark.store.effect_log import BatchEffects, EffectLog
from afspark.task.backup_writes import BackgroundWrite


class RecordWriter:
    """Writes one record at a time. ``covered``: what is known to be durable.

    A record may be written when the store has all backups that it names, and is when it is due. Of several the newest
    one is written, and the older ones are left out: each says all that is known. ``effects``: where to put what the
    batches of a record have done, if somewhere.
    """

    def __init__(
        self,
        cluster: Cluster,
        log: RecordLog,
        snapshots: Snapshots,
        check: ReplayCheck,
        effects: EffectLog | None,
    ) -> None:
        self._cluster, self._log, self._snapshots = cluster, log, snapshots
        self._check, self._effects = check, effects
        #: how many durable records stay in the store; None: as the log's own rule says
        self.kept: int | None = None
        self.covered = Covered()
        #: since when, in seconds since 1970
        self.covered_at = 0.0
        self._under_way: tuple[CommitRecord, BackgroundWrite] | None = None
        self._offered: list[CommitRecord] = []
        self._pending: frozenset[str] = frozenset()
        self._durable_at = 0.0
        #: the batch whose record was begun last, and when, by the monotonic clock; None: the next one is due at once
        self.begun: tuple[Batch, float] | None = None

    @property
    def newest(self) -> CommitRecord | None:
        """The newest record that was offered and is not known to be durable."""
        return self._offered[-1] if self._offered else self._under_way[0] if self._under_way else None

    def write(self, record: CommitRecord, pending: Iterable[str]) -> None:
        """Makes a record durable before this returns; `CheckpointError` if a backup that it names is ``pending``."""
        replaced, self._offered = self._offered, []
        self.wait()
        self._forsake(replaced)
        refuse_if_incomplete(record, pending)
        record = self._begun(record)
        try:
            self._job(record)()
        except BaseException:
            self._snapshots.fail(record.batch)
            raise
        self._ended(record)

    def offer(self, record: CommitRecord, pending: Iterable[str], *, due: bool = True) -> None:
        """Has a record written when it can be. ``pending``: the backups that the store may not have yet. ``due``: if
        not, it waits for the next one, which takes its place, or until somebody waits for it.
        """
        self._offered.append(record)
        self.hear(pending, due=due)

    def hear(self, pending: Iterable[str], *, due: bool = True) -> None:
        """What of the backups the store may not have yet; starts what can be written, if a record is ``due``."""
        self._pending = frozenset(pending)
        self._snapshots.hear(self._pending)
        self.go_on(due=due)

    def stop(self) -> None:
        """Before a loss is declared: ends the write under way, and forgets what was offered after it.

        A backup that those name may be lost before the store has it. And what becomes durable later must not name a
        state from before the loss: it would be counted with another one than it is restored from.
        """
        dropped, self._offered = self._offered, []
        self.wait()
        self.begun = None
        self._snapshots.abandon(LOSS)
        # Whoever survives goes on from its own part, and the next record names that.
        self._forsake(dropped)

    def go_on(self, seconds: float | None = 0.0, *, due: bool = True) -> bool:
        """Starts the next write if one is ``due``, after so many seconds at most for the one under way; whether none is
        under way.

        Raises what a write has failed with.
        """
        if self._under_way is not None:
            record, write = self._under_way
            if not write.wait(seconds):
                return False
            self._under_way = None
            if write.failure is not None:
                self._snapshots.fail(record.batch)
                raise write.failure
            self._ended(record)
        if not due:
            return True
        complete = [record for record in self._offered if self._pending.isdisjoint(record.references())]
        if not complete:
            return True
        record = self._begun(complete[-1])
        self._forsake([earlier for earlier in self._offered if earlier.batch < record.batch])
        self._offered = [later for later in self._offered if later.batch > record.batch]
        self._under_way = (record, self._cluster.in_background(self._job(record)))
        return self._under_way[1].wait(0.0) and self.go_on()

    def wait(self) -> None:
        """Until every record is durable that can be."""
        while not self.go_on(None):
            pass

    def finish(self) -> None:
        """Until every record is durable that was offered; `CheckpointError` if a backup is still pending."""
        self.wait()
        for record in self._offered:
            refuse_if_incomplete(record, self._pending)

    def _forsake(self, records: Iterable[CommitRecord]) -> None:
        """These are never written. While none is under way: its end deletes what no record names that is written."""
        self._log.forsake(name for record in records for name in record.references())

    def _begun(self, record: CommitRecord) -> CommitRecord:
        """The record as it is written."""
        self.begun = (record.batch, self._cluster.clock.monotonic())
        return self._snapshots.recording(record, self._cluster.clock.time())

    def _ended(self, record: CommitRecord) -> None:
        self.covered, self.covered_at = Covered.by(record), self._durable_at
        self._snapshots.complete(record.batch)

    def _job(self, record: CommitRecord) -> Callable[[], None]:
        """What makes the record durable; what its batches have done is known now."""
        since = Batch(self.covered.batch + 1)
        return partial(self._put, record, self._check.to_record(since, record.batch) if self._effects else {})

    def _put(self, record: CommitRecord, done: Mapping[Batch, BatchEffects]) -> None:
        if self._effects and done:
            # Before the record: if that cannot be read some day, its batches are replayed.
            self._effects.write(record.batch, record.epoch, done)
            self._effects.prune(self._log.oldest)
        self._log.write(record)
        self._durable_at = self._cluster.clock.time()
        if self.kept is None:
            self._log.prune()
        else:
            self._log.prune(keep=self.kept, slack=0)


def refuse_if_incomplete(record: CommitRecord, pending: Iterable[str]) -> None:
    """`CheckpointError` if the store may lack a backup that ``record`` names: nobody could restore from it."""
    lacking = sorted(record.references() & set(pending))
    if lacking:
        raise CheckpointError(
            f"The record of batch {record.batch} names {len(lacking)} backups that the store does not have.",
            remedy="This is a defect of afspark; please report it.",
            batch=record.batch,
            lacking=lacking,
        )
