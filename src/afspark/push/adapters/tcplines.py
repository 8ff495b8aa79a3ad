"""Messages over TCP, from any number of connections. A sender that is too fast waits."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from typing import Any

from afspark.push.adapters.framing import MAX_MESSAGE_BYTES, FrameCounts, Framing, LineFrames, NewFraming
from afspark.push.adapters.gathering import Listener

READ_BYTES = 1 << 18
MAX_CONNECTIONS = 1000


class TcpLines(Listener[bytes]):
    """Blocks of whole lines, a message each; those of one connection keep their order.

    ``counts`` has the messages above the limit, which are left out, and the malformed frames; a connection whose
    framing is broken is closed, so that its sender begins anew. More connections than the limit wait to be accepted.
    """

    kind = socket.SOCK_STREAM

    def __init__(
        self,
        address: tuple[str, int],
        *,
        framing: NewFraming = LineFrames,
        max_line_bytes: int = MAX_MESSAGE_BYTES,
        **options: Any,
    ) -> None:
        self._framing, self._max_line_bytes = framing, max_line_bytes
        self.counts = FrameCounts()
        super().__init__(address, **options)

    def _prepare(self, sock: socket.socket) -> None:
        sock.listen(128)
        sock.setblocking(False)

    def _chunks(self) -> Iterator[bytes]:
        held: list[bytes] = []
        size, due = 0, 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ, None)
            while not self._stop.is_set():
                for key, _ in selector.select(min(0.05, self._flush_seconds)):
                    block = self._accept(selector) if key.data is None else self._take(selector, key)
                    if block:
                        due = due if held else time.monotonic() + self._flush_seconds
                        held.append(block)
                        size += len(block)
                    if size >= self._flush_bytes:
                        yield b"".join(held)
                        held, size = [], 0
                if held and time.monotonic() >= due:
                    yield b"".join(held)
                    held, size = [], 0
            for key in list(selector.get_map().values()):
                if key.data is not None:
                    held.append(self._close(selector, key))
        if any(held):
            yield b"".join(held)

    def _accept(self, selector: selectors.BaseSelector) -> bytes:
        if len(selector.get_map()) > MAX_CONNECTIONS:
            return b""
        try:
            connection, _ = self._socket.accept()
        except OSError:  # gone before it was accepted
            return b""
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, self._framing(self.counts, self._max_line_bytes))
        return b""

    def _take(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> bytes:
        connection, framing = _parts(key)
        try:
            data = connection.recv(READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError:  # reset: what came before it counts
            data = b""
        if not data:
            return self._close(selector, key)
        block = framing.take(data)
        return block + self._close(selector, key) if framing.broken else block

    def _close(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> bytes:
        connection, framing = _parts(key)
        selector.unregister(connection)
        connection.close()
        return framing.end()


def _parts(key: selectors.SelectorKey) -> tuple[socket.socket, Framing]:
    connection = key.fileobj
    assert isinstance(connection, socket.socket)
    return connection, key.data
