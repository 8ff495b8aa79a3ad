"""Spark's part of a checkpoint in a store that Spark cannot write to: a folder of the driver, and a copy in the store.

The copy is what counts. The folder is made from it with every start, wherever that is, so nothing has to be carried to
another host. What belongs to a batch is durable in the store before anything is done with the batch.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from afspark.errors import ObjectMissing
from afspark.numbers import Batch
from afspark.store import Store
from afspark.store.divided_store import DividedStore
from afspark.store.local import LocalStore
from afspark.store.naming import FOLDER
from afspark.store.spark_files import (
    COMMITS,
    OFFSETS,
    SOURCES,
    Files,
    PlannedBatch,
    PlannedBatches,
    numbers,
    own_files,
    spark_files,
)


class SparkCopies:
    """Copies what Spark writes to ``folder`` into the checkpoint at ``store``, for one start of a query."""

    def __init__(self, store: Store) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="afspark-spark-part-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._files = LocalStore(str(self.folder))
        self._store, self._log = store, PlannedBatches(store.below(FOLDER))
        self._epoch: Callable[[], str] = lambda: ""
        #: what Spark itself has left in the store, with a connector that it has no more
        self._own: Files = {}
        #: the files of sources that are kept, and of which batch the object is that has them
        self._sources: dict[str, Batch] = {}
        self._last: tuple[Batch, PlannedBatch] | None = None
        self._writing = threading.Lock()

    @property
    def checkpoint(self) -> DividedStore:
        """All of the checkpoint."""
        return DividedStore(self._store, self._files)

    def take_up(self, checkpoint: Store, epoch: Callable[[], str]) -> None:
        """From now on a driver runs the query, in the epoch that it says then, with this view of ``checkpoint``.

        It goes on from what the driver before has left.
        """
        self._store = checkpoint.store if isinstance(checkpoint, DividedStore) else checkpoint
        self._log, self._epoch = PlannedBatches(self._store.below(FOLDER)), epoch
        self.restore()

    def restore(self) -> None:
        """Makes the folder what the store says, whatever it was."""
        planned = self._log.read()
        self._own = own_files(self._store, self._own)
        for place in self.folder.iterdir():
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        for name, data in spark_files(self._own, planned).items():
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        self._sources = {name: batch for batch, one in sorted(planned.items()) for name in one.sources}
        self._last = None

    def keep(self, batch: Batch) -> None:
        """Makes durable what belongs to a batch that Spark has planned; one put."""
        with self._writing:
            known = [name for name, kept in self._sources.items() if kept < batch]
            planned = PlannedBatch.of(batch, self._files, known)
            self._log.write(batch, self._epoch(), planned)
            self._sources |= dict.fromkeys(planned.sources, batch)
            self._last = (batch, planned)
            self._prune()

    def keep_commit(self) -> None:
        """Makes durable that the last batch is done, if Spark has committed it and no batch follows that would say so;
        one put, once.
        """
        with self._writing:
            if self._last is None or self._last[1].commit is not None:
                return
            batch, planned = self._last
            try:
                commit = self._files.get(f"{COMMITS}/{batch}").decode()
            except ObjectMissing:
                return
            planned = replace(planned, commit=commit)
            self._log.write(batch, self._epoch(), planned)
            self._last = (batch, planned)

    def _prune(self) -> None:
        """What Spark has forgotten is forgotten in the store as well, now and then."""
        present = set(self._files.list(SOURCES))
        self._sources = {name: batch for name, batch in self._sources.items() if name in present}
        oldest = min(numbers(self._files.list(OFFSETS)), default=0)
        self._log.prune(Batch(oldest), set(self._sources.values()))


def hand_to_spark(store: Store) -> None:
    """Has Spark go on with what drivers have copied, now that it can write to the store itself."""
    log = PlannedBatches(store.below(FOLDER))
    planned = log.read()
    if not planned:
        return
    own = own_files(store, {})
    for name, data in spark_files(own, planned).items():
        if own.get(name) != data:
            store.put(name, data)
    log.clear()
