"""The place where a task runs, as the task sees it: a host with states, a clock, a way to write.

A cluster hands it to every task. It travels to Spark's tasks by pickling, so it holds next to nothing.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from afspark.clock import Clock, SystemClock
from afspark.numbers import Batch, Incarnation
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.operator_config import OperatorConfig
from afspark.resident import SegmentAddress, SegmentRoot, Survivor
from afspark.resident.spool import Uploaded, upload, uploads
from afspark.resident.storage import StateHost
from afspark.store import Store
from afspark.task.backup_writes import BackgroundWrite, threaded_write
from afspark.task.fault_injection import forget_injected, inject_failure


class TaskEnvironment(StateHost, Protocol):
    """What a task needs of the place where it runs."""

    @property
    def clock(self) -> Clock: ...

    def probe(self, config: OperatorConfig, worker: int, batch: Batch, phase: FaultPhase) -> None:
        """A moment at which a planned failure may hit the worker."""

    def start_write(self, store: Store, name: str, data: bytes) -> BackgroundWrite:
        """Begins to write an object while the worker goes on."""

    def start_upload(self, config: OperatorConfig, worker: int) -> None:
        """Begins to write what is spooled beside the worker's state, while the worker goes on or ends."""

    def upload(self, config: OperatorConfig, worker: int) -> None:
        """Writes what is spooled beside the worker's state before it returns."""

    def upload_all(self, config: OperatorConfig) -> int:
        """Writes what is spooled beside any state of the query on this host before it returns; how many bytes."""

    def uploaded(self, config: OperatorConfig, worker: int) -> Uploaded | None:
        """What this process has written of the worker's spool since it was asked last, if it knows."""


@dataclass(frozen=True, kw_only=True)
class SegmentEnvironment(ABC):
    """An environment whose states are segments: memory-mapped files of the host."""

    clock: Clock = SystemClock()  # noqa: RUF009 (it has no state)

    @property
    @abstractmethod
    def host(self) -> str: ...

    @property
    def process(self) -> int:
        """The process that a planned failure kills."""
        return os.getpid()

    def address(self, config: OperatorConfig, worker: int) -> SegmentAddress:
        return SegmentAddress(self._directory(config, worker), config.checkpoint)

    def survivors(self, config: OperatorConfig) -> list[Survivor]:
        root = self._root(config)
        root.clean()
        return root.survivors(config.query_id)

    def drop_others_in_number(self, config: OperatorConfig) -> None:
        """Removes the states of an operator's workers from the time when there were more or fewer of them."""
        for survivor in self._root(config).survivors(config.query_id):
            if survivor.operator == config.operator_name and survivor.workers != config.workers:
                self.address(config, survivor.worker).drop_others_in_number(config.workers)

    def drop_secondary(self, config: OperatorConfig, worker: int, incarnation: Incarnation) -> None:
        self.address(config, worker).drop_secondary(incarnation)

    def drop_before(self, config: OperatorConfig, worker: int, incarnation: Incarnation) -> None:
        self.address(config, worker).drop_before(incarnation)

    def release(self, config: OperatorConfig) -> None:
        forget_injected(self._directory(config, 0).parent)
        self._root(config).release(config.query_id)

    def probe(self, config: OperatorConfig, worker: int, batch: Batch, phase: FaultPhase) -> None:
        if config.faults.hits(config.operator_name, worker):
            inject_failure(config.faults, batch, phase, self._directory(config, worker), self.process)

    def start_write(self, store: Store, name: str, data: bytes) -> BackgroundWrite:
        return threaded_write(store, name, data)

    def start_upload(self, config: OperatorConfig, worker: int) -> None:
        uploads.start(self._directory(config, worker), config.store)

    def upload(self, config: OperatorConfig, worker: int) -> None:
        upload(self._directory(config, worker), config.store)

    def upload_all(self, config: OperatorConfig) -> int:
        survivors = self._root(config).survivors(config.query_id)
        return sum(upload(Path(survivor.directory), config.store) for survivor in survivors)

    def uploaded(self, config: OperatorConfig, worker: int) -> Uploaded | None:
        # Most batches upload nothing, and to find the folder takes longer than the answer.
        return uploads.taken(self._directory(config, worker)) if uploads.any else None

    def _root(self, config: OperatorConfig) -> SegmentRoot:
        return SegmentRoot(config.segments, self.host)

    def _directory(self, config: OperatorConfig, worker: int) -> Path:
        return self._root(config).directory(config.query_id, config.operator_name, worker)
