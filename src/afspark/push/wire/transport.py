"""How a worker reaches its receiver, as the worker's code sees it: messages go out, and messages come back.

`wire.flight_connection` implements it with Arrow Flight. A simulation hands in a transport of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from afspark.push.wire.messages import Message
from afspark.push.wire.worker_messages import EntryTag, Pull

M = TypeVar("M", bound=Message)

Headers = Sequence[tuple[bytes, bytes]]


class Connection(Protocol):
    """Calls of one caller to one receiver. A call that fails, or takes longer than ``seconds``, raises `PushError`."""

    def act(self, kind: str, message: Message | None, answer: type[M], *, seconds: float) -> M:
        """The receiver's answer to one message."""

    def pull(self, ticket: Pull, *, seconds: float) -> list[tuple[pa.RecordBatch, EntryTag]]:
        """The entries that the receiver hands out for the ticket, in order."""

    def close(self) -> None: ...


class Transport(Protocol):
    """Makes connections."""

    def connect(self, address: str, *, root_certs: bytes | None, headers: Headers) -> Connection:
        """A connection to the receiver at ``address``; nothing is sent before its first call."""
