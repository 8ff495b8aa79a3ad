"""Between a socket and a producer: a thread that takes what arrives, a bounded queue, chunks by size and time.

A full queue makes the thread wait and the kernel's buffer fill: a TCP sender then waits too; of UDP the kernel drops
datagrams and counts them. Nothing is dropped here.
"""

from __future__ import annotations

import queue
import socket
import threading
from abc import abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from afspark.errors import UsageError
from afspark.push.wire.addresses import join_address

FLUSH_SECONDS = 0.2
FLUSH_BYTES = 1 << 20
QUEUED_CHUNKS = 16

Chunk = TypeVar("Chunk")


class Listener(Generic[Chunk]):
    """Listens at ``address`` until it is closed; iterating gives chunks of what arrived, in time."""

    kind: socket.SocketKind

    def __init__(
        self,
        address: tuple[str, int],
        *,
        flush_bytes: int = FLUSH_BYTES,
        flush_seconds: float = FLUSH_SECONDS,
        queued: int = QUEUED_CHUNKS,
    ) -> None:
        self._flush_bytes, self._flush_seconds = flush_bytes, flush_seconds
        self._queue: queue.Queue[Chunk | BaseException | None] = queue.Queue(queued)
        self._stop = threading.Event()
        self._socket = bound(address, self.kind)
        self._prepare(self._socket)
        self._thread = threading.Thread(target=self._run, name="afspark-listener", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; the port the system chose if 0 was asked for."""
        name = self._socket.getsockname()
        return str(name[0]), int(name[1])

    def __iter__(self) -> Iterator[Chunk]:
        while (chunk := self._queue.get()) is not None:
            if isinstance(chunk, BaseException):
                raise chunk
            yield chunk

    def stop(self) -> None:
        """Takes nothing more; what has been taken can still be iterated over."""
        self._stop.set()

    def close(self) -> None:
        """Stops and frees the port. What nobody iterated over is gone."""
        self._stop.set()
        while self._thread.is_alive():
            try:
                self._queue.get(timeout=0.05)
            except queue.Empty:
                continue
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            for chunk in self._chunks():
                self._queue.put(chunk)
            self._queue.put(None)
        except Exception as error:  # noqa: BLE001 - belongs to whoever iterates
            self._queue.put(error)

    def _prepare(self, sock: socket.socket) -> None:
        """What a bound socket needs before anything can arrive."""

    @abstractmethod
    def _chunks(self) -> Iterator[Chunk]:
        """Runs in the thread, until ``_stop`` is set."""


def bound(address: tuple[str, int], kind: socket.SocketKind) -> socket.socket:
    """A socket bound to an address, or a UsageError that says why not. ``::`` takes IPv4 as well."""
    host, port = address
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(family, kind)
    except OSError as error:
        raise UsageError(f"{host!r} is no address of this machine: {error.strerror}.") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(kind is socket.SOCK_STREAM))
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(place)
    except OSError as error:
        sock.close()
        raise UsageError(
            f"Cannot listen at {join_address(host, port)}: {error.strerror}.", remedy="Choose another address or port."
        ) from error
    return sock
