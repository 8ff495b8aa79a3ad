"""One worker of an operator without Spark: its states live in memory, its backups in a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from afspark.bounds import Place
from afspark.model.operator import Operator, Share, WorkerContext
from afspark.model.states import HeapColumns
from afspark.policies import Tolerance
from afspark.protocol.parcels import Packet
from afspark.task.ingest import GivenPackets, Ingest


class Alone:
    """Applies batches as the runtime does, and can lose everything that was not backed up."""

    def __init__(
        self, operator: Operator, tolerance: Tolerance, *, worker: int = 0, workers: int = 1, losable_items: float = 0
    ) -> None:
        self.operator, self.tolerance, self.losable_items = operator, tolerance, losable_items
        self.worker, self.workers = worker, workers
        self.failures = self.batch = 0
        self.missing = dict.fromkeys(operator.states(), 0.0)
        self.backups: dict[str, list[pa.RecordBatch]] = {name: [] for name in operator.states()}
        self._open()

    def theta(self, name: str) -> float:
        spec = self.operator.states()[name]
        return self.tolerance.allowance(
            failures=self.failures,
            place=Place(workers=self.workers),
            divergence=spec.divergence,
            exact=spec.exact,
        )

    def apply(self, batches: Iterable[pa.RecordBatch]) -> None:
        for state in self.states.values():
            state.acknowledge()
            state.begin()
        context = WorkerContext(
            worker=self.worker,
            workers=self.workers,
            batch=self.batch,
            missing=self.missing,
            losable_items=self.losable_items,
        )
        self.operator.begin(self.states, context)
        for packet in Ingest(GivenPackets(map(Packet, batches)), (), self.operator.combiner):
            self.operator.process(packet.items, self.states)
        self.operator.finish(self.states)
        for name, state in self.states.items():
            state.update_drift()
            pairs = state.issue(self.theta(name))
            if pairs is not None:
                self.backups[name].append(pairs)
        self.batch += 1

    def fail(self) -> None:
        """The host is lost: only backups remain, and the threshold in force is what may be missing."""
        for name in self.missing:
            self.missing[name] += self.theta(name)
        self.failures += 1
        self._open()
        for name, state in self.states.items():
            state.restore(self.backups[name])

    def share(self) -> Share:
        cells = {name: state.export() for name, state in self.states.items()}
        return Share(worker=self.worker, cells=cells, missing=dict(self.missing))

    def _open(self) -> None:
        columns = HeapColumns()
        self.states: dict[str, Any] = {name: spec.open(columns, name) for name, spec in self.operator.states().items()}
