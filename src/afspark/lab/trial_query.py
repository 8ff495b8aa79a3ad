"""One run of a pipeline in the one-process cluster, over recorded items: from the beginning, or from a kept state."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from afspark.api.result_shares import current_shares
from afspark.coordinator.offsets import newest_of
from afspark.graph.pipeline import Pipeline
from afspark.lab.state_digests import state_digest
from afspark.lab.troubled_store import StoreDelay, TroubledStore
from afspark.model.distances import Cells, cells_of
from afspark.model.operator import Share
from afspark.numbers import Batch
from afspark.resident.scratch_folders import scratch_folder, sweep_scratch
from afspark.sources.recorded_items import RecordedItems
from afspark.store import Store
from afspark.testing import LocalQuery

#: Before the number of the process that runs a trial.
_PREFIX = "afspark-lab-"

#: Seconds from the time of one batch to that of the next, for windows by processing time.
_BATCH_SECONDS = 1.0


class TrialQuery(LocalQuery):
    """A query over recorded items, which a trial takes batch by batch."""

    def __init__(self, folder: Path, pipeline: Pipeline, output: str, mode: str, hosts: int) -> None:
        self._delay = StoreDelay()
        super().__init__(folder, pipeline, (), hosts=hosts)
        self._sink, self._mode = output, mode
        begun = newest_of(self._checkpoint, "commits")
        self._begun = self._committed = Batch(-1 if begun is None else begun)

    @property
    def batch_number(self) -> int:
        """The batch that comes next."""
        return self._committed + 1

    def advance(self) -> pa.Table | None:
        """Runs the next batch; what it has given out."""
        batch = Batch(self._committed + 1)
        head = json.dumps({"batchTimestampMs": round((batch + 1) * _BATCH_SECONDS * 1000)})
        self._engine.checkpoint.put(f"offsets/{batch}", "\n".join(["v1", head, *self._offsets(batch)]).encode())
        self._begun = batch
        self._run(batch)
        return self._given()

    def finish(self) -> pa.Table | None:
        """Ends the stream; what has come out with it, or in complete mode all results."""
        if self._mode == "complete":
            return self.results(self._sink)
        if not any(node.window is not None for node in self._pipeline.nodes):
            return None
        self.end()
        return self._given()

    def _given(self) -> pa.Table | None:
        if self._mode == "complete":
            return None
        windowed = any(node.window is not None for node in self._pipeline.nodes if node.name == self._sink)
        kind = "rows" if self._mode == "update" else "windows" if windowed else "items"
        given = self._output(kind, self._sink)
        # Its memory is that of the workers, who will need it again.
        return None if given is None else given.take(pa.array(np.arange(given.num_rows)))

    def _offsets(self, batch: Batch) -> Iterator[str]:
        """Where the batch ends in every source, which is where one was recorded to end."""
        for source in self._pipeline.planned.values():
            assert isinstance(source, RecordedItems)
            yield json.dumps({"chunks": source.ends[batch]})

    def counts(self, injectors: Sequence[str]) -> dict[str, list[int]]:
        """How many items each worker of each injector has seen."""
        found = {}
        for name in injectors:
            shares = self._states(name)
            found[name] = [sum(share.cells["seen"].column("value").to_pylist()) for share in shares]
        return found

    def state_digest(self, operator: str) -> str:
        """What tells the states of an operator from others, if it has no window."""
        return state_digest(self._cluster, self._engine.run_of(operator))

    def cells(self, operator: str) -> dict[str, Cells]:
        """The cells of an operator by state, each with the worker that holds it."""
        found: dict[str, dict[Any, float]] = {}
        for share in self._states(operator):
            for state, exported in share.cells.items():
                own = {(share.worker, key): value for key, value in cells_of(exported).items()}
                found.setdefault(state, {}).update(own)
        return dict(found)

    def _states(self, node: str) -> list[Share]:
        """What every worker of a node holds."""
        return sorted(current_shares(self._cluster, self._engine.run_of(node)), key=lambda share: share.worker)

    def freeze_host(self, host: str) -> None:
        """The host does not answer until it is thawed; what is on it stays."""
        self._cluster.silent.add(host)

    def thaw_host(self, host: str) -> None:
        self._cluster.silent.discard(host)

    @contextmanager
    def slow_store(self, seconds: float) -> Iterator[None]:
        """Every request to the backup store takes so much longer."""
        self._delay.seconds = seconds
        try:
            yield
        finally:
            self._delay.seconds = 0.0

    def take_store_away(self) -> Callable[[], object]:
        """The backup store is gone until the function is called that this gives."""
        place = self._folder / "checkpoint"
        away = place.rename(place.with_suffix(".away"))
        return lambda: away.rename(place)

    def _opened(self, checkpoint: Path) -> Store:
        return TroubledStore(super()._opened(checkpoint), self._delay)

    def keep(self, place: Path) -> None:
        """Copies the query as it is between two batches, so that another can go on from there."""
        shutil.copytree(self._folder, place, ignore=shutil.ignore_patterns("*.lock"))


@contextmanager
def trial_query(
    pipeline: Pipeline, output: str, mode: str, *, start: Path | None = None, hosts: int = 1
) -> Iterator[TrialQuery]:
    """A query that begins where another was kept, or at the beginning; its folder is gone afterwards."""
    with scratch_folder(_PREFIX) as folder:
        if start is not None:
            shutil.copytree(start, folder, dirs_exist_ok=True)
        query = TrialQuery(folder, pipeline, output, mode, hosts)
        try:
            yield query
        finally:
            query.close()


def sweep() -> None:
    """Removes folders of trials whose processes are gone: they were killed."""
    sweep_scratch(_PREFIX)
