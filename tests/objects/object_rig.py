"""A query without a JVM whose checkpoint is on S3, and whose Spark cannot write there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.batch_progress import BatchProgress
from afspark.coordinator.run_options import RunOptions
from afspark.coordinator.spark_copies import SparkCopies
from afspark.store import claim, open_store
from tests.unit.runtime.sparkless import RUN_OPTIONS, SUCCESSION, Hosts, Rig


class ObjectRig(Rig):
    """Every driver has a new folder for Spark's part, as one on a host of its own would have."""

    def __init__(self, root: Path, hosts: Hosts, address: str, **settings: Any) -> None:
        super().__init__(root, hosts, **settings)
        self.address = address
        self.copies: SparkCopies | None = None
        self.progress: list[BatchProgress] = []

    def start(self, **changes: Any) -> Coordinator:
        self.settings |= changes
        chosen = SUCCESSION | {key: value for key, value in self.settings.items() if key in RUN_OPTIONS}
        run = RunOptions(checkpoint=self.address, segments=str(self.segments), **chosen)
        pipeline, store = self.pipeline, open_store(self.address)
        identity = claim(store.below("afspark"), pipeline.fingerprint(), pipeline.settings())
        self.copies = copies = SparkCopies(store)
        copies.restore()
        self.checkpoint = copies.folder
        self.engine = engine = Coordinator(self.hosts, pipeline, run, identity, copies.checkpoint)
        engine.take_lease()
        copies.take_up(engine.checkpoint, lambda: engine.log.epoch)
        run_batch = engine.run

        def run_and_keep(*given: Any) -> BatchProgress:
            self.progress.append(run_batch(*given))
            return self.progress[-1]

        engine.run = run_and_keep  # type: ignore[method-assign]
        return engine

    def _frame(self, batch: int) -> Any:
        """What `Query.run_batch` does before a batch."""
        assert self.copies is not None
        self.copies.keep(batch)

    def stop(self) -> None:
        """An orderly end, without a last snapshot."""
        assert self.copies is not None
        self.copies.keep_commit()
        self.driver.close()

    def on_another_host(self) -> None:
        """The driver is dead; the next one finds nothing where it was but what workers and the store have."""
        self.engine = self.copies = None


Making = Callable[..., ObjectRig]
