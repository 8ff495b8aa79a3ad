"""Commit records on their way to the store, behind the batches."""

from __future__ import annotations

from afspark.cluster.cluster import Cluster
from afspark.coordinator.worker_state import Covered
from afspark.store import CommitRecord, RecordLog
from afspark.task.backup_writes import BackgroundWrite


class RecordWriter:
    """Writes one record at a time. ``covered``: the newest one that is known to be durable.

    While one is under way the newest of those that follow waits; the ones between are left out, because each record
    says all that is known.
    """

    def __init__(self, cluster: Cluster, log: RecordLog) -> None:
        self._cluster, self._log = cluster, log
        self.covered = Covered()
        self._under_way: tuple[CommitRecord, BackgroundWrite] | None = None
        self._next: CommitRecord | None = None

    def write(self, record: CommitRecord) -> None:
        """Makes a record durable before this returns."""
        self._next = None
        self.wait()
        self._put(record)
        self.covered = Covered.by(record)

    def offer(self, record: CommitRecord) -> None:
        """Has a record written as soon as the one before it is durable."""
        self._next = record
        self.go_on()

    def go_on(self, seconds: float | None = 0.0) -> bool:
        """Starts what waits, after so many seconds at most for what is under way; whether nothing is under way.

        Raises what a write has failed with.
        """
        if self._under_way is not None:
            record, write = self._under_way
            if not write.wait(seconds):
                return False
            self._under_way = None
            if write.failure is not None:
                raise write.failure
            self.covered = Covered.by(record)
        if self._next is not None:
            record, self._next = self._next, None
            self._under_way = (record, self._cluster.in_background(lambda: self._put(record)))
            return self._under_way[1].wait(0.0) and self.go_on()
        return True

    def wait(self) -> None:
        """Until every record that was offered last is durable."""
        while not self.go_on(None):
            pass

    def _put(self, record: CommitRecord) -> None:
        self._log.write(record)
        self._log.prune()
