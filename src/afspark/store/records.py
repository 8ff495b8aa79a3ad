"""The log of commit records: what no record names does not exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from afspark.errors import UsageError
from afspark.numbers import Batch
from afspark.store.base import Store
from afspark.store.commits import CommitRecord
from afspark.store.compaction import garbage
from afspark.store.drivers import Driver, Notice, another_driver
from afspark.store.epochs import epoch_claims, read_history, seal_record, seal_start
from afspark.store.naming import (
    EPOCHS,
    OBJECTS,
    EpochEntry,
    EpochId,
    parse_object_name,
    record_name,
    start_name,
)
from afspark.store.reading import Damage

_LISTINGS = 3
"""How often a driver lists whether there is a newer one, before it goes by its guard: two that come at once delete each
other's guards only if they see each other, and a listing may be late."""


class RecordLog:
    """Commit records of one query, written by one driver at a time.

    Every driver opens an *epoch*: a folder of its own, named by its claim on the query, that fences off older drivers
    which may still be alive. A driver claims it before it reads the history, and looks for newer epochs after each
    record it has written, before Spark commits the batch. So of two drivers either the older one finds the newer epoch
    and its batch is not committed, or the newer one finds the older one's record.

    The store is listed when an epoch is opened, with its first record, and by `sweep`; all else is in memory. Whether
    there is a newer epoch is seen later by the guard of the own one, without a listing. ``damaged`` lists what the last
    `open_epoch` passed over to reach a sound record.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._epochs = epoch_claims(store)
        self._epoch: EpochId | None = None
        #: how often it was listed whether an epoch is newer than this one
        self._listed = 0
        self._records: dict[int, tuple[str, CommitRecord]] = {}
        self._replaced: list[tuple[str, CommitRecord | None]] = []
        self._attempts: dict[int, int] = {}
        #: objects that somebody is reading, and those that are to be deleted by the next `prune`
        self._pinned: list[frozenset[str]] = []
        self._deferred: set[str] = set()
        self.damaged: list[Damage] = []

    @property
    def epoch(self) -> str:
        """The epoch opened by this log, as object names and records carry it."""
        return str(self._opened())

    @property
    def epoch_number(self) -> int:
        """Higher than that of every driver that opened the query before."""
        return self._opened().number

    @property
    def is_open(self) -> bool:
        """Whether this log has an epoch."""
        return self._epoch is not None

    def announce(self, notice: Notice) -> None:
        """Takes a new epoch, above all others: from here on no older driver commits anything."""
        self._epoch, self._listed = self._epochs.take(notice.to_bytes()), 0

    def open_epoch(self, upto: int) -> CommitRecord | None:
        """Builds the epoch on the newest sound record with batch <= ``upto``; returns that record.

        ``upto`` is the last batch that Spark has committed (-1: none). A record of a later batch may exist if
        the driver died before that commit; the batch will run again, so the record is never used again.
        """
        if not self.is_open:
            self.announce(Notice(driver=Driver.here(), seconds=0.0))
        self.refuse_if_superseded()
        # Not before the announcement: what an older driver could still commit is in the store by now.
        history = read_history(self._store, upto)
        visible = [name for _, (name, _) in sorted(history.records.items())]
        self._store.put(start_name(self.epoch), seal_start(self._opened(), visible))
        self._records, self.damaged = history.records, history.damaged
        self._replaced, self._attempts = [], {}
        return self.newest()

    def newest(self, at_most: int | None = None) -> CommitRecord | None:
        """The record with the highest batch (<= ``at_most``) this epoch sees; from memory."""
        batches = [batch for batch in self._records if at_most is None or batch <= at_most]
        return self._records[max(batches)][1] if batches else None

    @property
    def oldest(self) -> Batch:
        """The lowest batch with a record that this epoch sees, from memory; 0 if there is none."""
        return Batch(min(self._records, default=0))

    def write(self, record: CommitRecord) -> None:
        """Makes a record durable. The newest batch may be written again, as after a failed attempt.

        `StoreNotWritable` if the store refuses: the record then counts as not written. `AnotherDriver` if another
        driver has opened the query since: the batch must not be committed then.
        """
        newest = self.newest()
        if record.epoch != self.epoch or record.batch < (newest.batch if newest else 0):
            raise UsageError(
                f"Record of batch {record.batch}, epoch {record.epoch} does not continue epoch {self.epoch}.",
                batch=record.batch,
                epoch=record.epoch,
            )
        # Every attempt has a name of its own: repeating one must not put a sound record at risk.
        attempt = self._attempts.get(record.batch, -1) + 1
        self._attempts[record.batch] = attempt
        name = record_name(self.epoch, record.batch, attempt)
        visible = [past for batch, (past, _) in sorted(self._records.items()) if batch < record.batch]
        try:
            self._store.put(name, seal_record(record, visible))
        except BaseException:
            self._replaced.append((name, None))
            raise
        if record.batch in self._records:
            self._replaced.append(self._records[record.batch])
        self._records[record.batch] = (name, record)
        self.refuse_if_superseded()

    def refuse_if_superseded(self) -> None:
        """`AnotherDriver`, naming it, if another driver has opened the query since; one look, at first a listing."""
        mine = self._opened()
        if self._listed >= _LISTINGS and self._epochs.is_guarded(mine):
            return
        newer = self._epochs.newer(mine)
        if newer is not None:
            raise another_driver(self._store, newer, expected=self.epoch)
        self._listed += 1

    @contextmanager
    def pinned(self, record: CommitRecord) -> Iterator[None]:
        """Within it nothing that ``record`` names is deleted, however old it becomes; the next `prune` makes up for it.

        For another thread than the one that writes records.
        """
        names = record.references()
        self._pinned = [*self._pinned, names]
        try:
            yield
        finally:
            self._pinned = [one for one in self._pinned if one is not names]

    def forsake(self, names: Iterable[str]) -> None:
        """Of these objects those are deleted by `prune` that no record written from now on names."""
        self._deferred |= frozenset(names)

    def prune(self, keep: int = 8, slack: int = 8) -> list[str]:
        """Deletes all but the ``keep`` newest records, and objects none of those names; returns their names.

        Does nothing, without any request, until more than ``keep + slack`` records have gathered. ``keep`` is
        at least 2, because the newest record is passed over when its batch runs again. `AnotherDriver` if
        another driver has opened the query since: its history shares objects with this one.
        """
        if keep < 2 or slack < 0:
            raise UsageError("prune needs keep >= 2 and slack >= 0.", keep=keep, slack=slack)
        if len(self._records) <= keep + slack:
            return []
        self.refuse_if_superseded()
        batches = sorted(self._records)
        dropped = [self._records.pop(batch) for batch in batches[:-keep]] + self._replaced
        self._replaced = []
        self._attempts = {batch: tried for batch, tried in self._attempts.items() if batch >= batches[-keep]}
        names = [name for name, _ in dropped]
        kept = [record for _, record in self._records.values()]
        objects = garbage((record for _, record in dropped if record is not None), kept, self._deferred)
        self._deferred = objects & frozenset[str]().union(*self._pinned)
        objects -= self._deferred
        # Records first: dying in between leaves orphans for the next sweep, not records without objects.
        self._store.delete(names)
        self._store.delete(sorted(objects))
        return [*names, *sorted(objects)]

    def sweep(self) -> list[str]:
        """Deletes what dead epochs and dead incarnations left behind; returns the names. For start-up.

        Kept: everything a record seen by this epoch names, all of this epoch except objects of incarnations
        that its newest record has left behind, and all of newer epochs. Where no record could be read
        although there were some, nothing is deleted.
        """
        self.refuse_if_superseded()
        if self.damaged and not self._records:
            return []
        records = {name for name, _ in self._records.values()}
        entries = [entry for name in self._store.list(EPOCHS) if (entry := EpochEntry.parse(name))]
        orphans = [entry.name for entry in entries if entry.epoch < self._opened() and entry.name not in records]
        needed = {name for _, record in self._records.values() for name in record.references()}
        orphans += [name for name in self._store.list(OBJECTS) if name not in needed and self._is_dead(name)]
        self._store.delete(orphans)
        return orphans

    def _is_dead(self, name: str) -> bool:
        origin = parse_object_name(name)
        epoch = EpochId.parse(origin.epoch) if origin else None
        if origin is None or epoch is None or epoch > self._opened():
            return False
        if epoch < self._opened():
            return True
        newest = self.newest()
        operator = newest.operators.get(origin.operator) if newest else None
        workers = operator.workers if operator else ()
        return any(one.worker == origin.worker and origin.incarnation < one.incarnation for one in workers)

    def _opened(self) -> EpochId:
        if self._epoch is None:
            raise UsageError("No epoch is open.", remedy="Call open_epoch first.")
        return self._epoch
