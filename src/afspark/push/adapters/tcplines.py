"""Lines over TCP, from any number of connections. A sender that is too fast waits."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from afspark.push.adapters.gathering import Listener

READ_BYTES = 1 << 18
MAX_LINE_BYTES = 1 << 20
MAX_CONNECTIONS = 1000


@dataclass(slots=True)
class _Half:
    """What a connection has sent of a line; ``skipping`` the rest of one that is too long."""

    start: bytes = b""
    skipping: bool = False


class TcpLines(Listener[bytes]):
    """Blocks of whole lines; lines of one connection keep their order.

    ``too_long`` counts lines above the limit, which are left out. A last line without end counts as a line. More
    connections than the limit wait to be accepted.
    """

    kind = socket.SOCK_STREAM

    def __init__(self, address: tuple[str, int], *, max_line_bytes: int = MAX_LINE_BYTES, **options: Any) -> None:
        self._max_line_bytes = max_line_bytes
        self.too_long = 0
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
        selector.register(connection, selectors.EVENT_READ, _Half())
        return b""

    def _take(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> bytes:
        connection, half = key.fileobj, key.data
        assert isinstance(connection, socket.socket)
        try:
            data = connection.recv(READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError:  # reset: what came before it counts
            data = b""
        return self._lines(half, data) if data else self._close(selector, key)

    def _lines(self, half: _Half, data: bytes) -> bytes:
        if half.skipping:
            _, end, data = data.partition(b"\n")
            half.skipping = not end
        text = half.start + data
        cut = text.rfind(b"\n") + 1
        half.start = text[cut:]
        if len(half.start) > self._max_line_bytes:
            half.start, half.skipping = b"", True
            self.too_long += 1
        return text[:cut]

    def _close(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> bytes:
        connection, half = key.fileobj, key.data
        assert isinstance(connection, socket.socket)
        selector.unregister(connection)
        connection.close()
        return half.start + b"\n" if half.start else b""
