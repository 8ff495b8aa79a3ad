"""Where a worker's state lives, as its task sees it: what a segment offers, without saying that it is one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from afspark.model.states import Columns
from afspark.runtime.lifecycle import Found, Identity, Present

T = TypeVar("T")


class Residence(Protocol):
    """One worker's resident state; see `segment.Segment` for the order of calls."""

    @property
    def columns(self) -> Any: ...

    def found(self) -> Present: ...

    def lock(self, timeout_seconds: float) -> AbstractContextManager[Any]: ...

    def attach(self, key: str, make: Callable[[Any], T]) -> T: ...

    def raise_fence(self, fence: int) -> None: ...

    def restored(self, version: int) -> None: ...

    def begin(self, batch: int) -> None: ...

    def keep(self, batch: int, port: str, data: bytes) -> None: ...

    def kept(self, batch: int, port: str) -> bytes | None: ...

    def note(self, text: str | None) -> None: ...

    def noted(self) -> str | None: ...

    def finish(self, batch: int, report: bytes) -> None: ...

    def clear_mark(self) -> None: ...

    def step_back(self, batch: int) -> None: ...

    def report(self, batch: int) -> bytes: ...


class Address(Protocol):
    """Where the residence of one worker is or will be."""

    def examine(self) -> Found: ...

    def create(self, identity: Identity, incarnation: int) -> AbstractContextManager[Residence]: ...

    def open(self) -> Residence | None: ...


__all__ = ["Address", "Columns", "Residence"]
