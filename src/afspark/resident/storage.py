"""Where a worker's state lives, as its task sees it: what a segment offers, without saying that it is one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from afspark.model.states import Columns
from afspark.numbers import Batch, Fence, Incarnation, Step
from afspark.protocol.lifecycle import RESTORING, Found, Identity, Present
from afspark.protocol.operator_config import OperatorConfig
from afspark.resident.side_files import SideFiles
from afspark.resident.survivor import Survivor

T = TypeVar("T")


class StateStorage(Protocol):
    """One worker's resident state; see `segment.Segment` for the order of calls."""

    @property
    def columns(self) -> Any: ...

    def found(self) -> Present: ...

    def lock(self, timeout_seconds: float) -> AbstractContextManager[Any]: ...

    def attach(self, key: str, make: Callable[[Any], T]) -> T: ...

    def raise_fence(self, fence: Fence) -> None: ...

    def promote(self, incarnation: Incarnation) -> None: ...

    def restored(self, version: Batch, since: Batch = RESTORING) -> None: ...

    def begin(self, batch: Batch, covered: Batch | None = None) -> None: ...

    def keep(self, batch: Batch, port: str, data: bytes | memoryview) -> None: ...

    def kept(self, batch: Batch, port: str) -> bytes | memoryview | None: ...

    def spool(self, batch: Batch, name: str, data: bytes, spare: int = 0) -> None: ...

    def spooled(self) -> tuple[str, ...]: ...

    @property
    def side_files(self) -> SideFiles: ...

    def advance(self, batch: Batch, covered: Batch, *, alone: bool = False) -> None: ...

    def note(self, text: str | None) -> None: ...

    def noted(self) -> str | None: ...

    @property
    def step(self) -> Step: ...

    def close_step(self, batch: Batch, note: bytes) -> None: ...

    def step_note(self, batch: Batch) -> bytes | None: ...

    def restored_at(self, batch: Batch, note: bytes | None, backups: int) -> None: ...

    @property
    def backups(self) -> int: ...

    def number_backup(self) -> int: ...

    def finish(self, batch: Batch, report: bytes, covered: Batch | None = None) -> None: ...

    def clear_mark(self) -> None: ...

    def step_back(self, batch: Batch) -> None: ...

    def report(self, batch: Batch) -> bytes: ...


class StateAddress(Protocol):
    """Where the state of one worker is or will be."""

    def examine(self) -> Found: ...

    def create(
        self, identity: Identity, incarnation: Incarnation, *, secondary: bool = False
    ) -> AbstractContextManager[StateStorage]: ...

    def open(self) -> StateStorage | None: ...


class StateHost(Protocol):
    """The host that a task runs on, and the workers' states there."""

    @property
    def host(self) -> str: ...

    def address(self, config: OperatorConfig, worker: int) -> StateAddress: ...

    def survivors(self, config: OperatorConfig) -> list[Survivor]:
        """All states of the query on this host; those that nobody can want any more are removed on the way."""

    def drop_secondary(self, config: OperatorConfig, worker: int, incarnation: Incarnation) -> None:
        """Removes the state of a worker if it is a secondary of that incarnation: one that was promoted stays."""

    def drop_before(self, config: OperatorConfig, worker: int, incarnation: Incarnation) -> None:
        """Removes the state of a worker if it is of an incarnation before that one; `SegmentBusy` at once if somebody
        works on it.
        """

    def drop_others_in_number(self, config: OperatorConfig) -> None:
        """Removes the states of the operator's workers from a time when there were more or fewer of them."""

    def release(self, config: OperatorConfig) -> None:
        """Removes all states of the query from this host."""


__all__ = ["Columns", "StateAddress", "StateHost", "StateStorage"]
