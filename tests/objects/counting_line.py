"""A line to a server that counts the requests on it, and that can be cut."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_REQUEST = re.compile(rb"(?:^|\n)(GET|PUT|HEAD|POST|DELETE) (\S+) HTTP/1\.1\r\n")


class CountingLine:
    """Passes on what comes to ``endpoint`` to another one."""

    def __init__(self, target: str) -> None:
        host, port = target.split(":")
        self._target = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._cut = False
        self._counts: Counter[str] = Counter()
        threading.Thread(target=self._accept, daemon=True).start()

    def taken(self) -> dict[str, int]:
        """The requests since this was asked last; a listing is a GET that names no object."""
        found, self._counts = self._counts, Counter()
        return dict(found)

    def cut(self, cut: bool) -> None:
        """Nobody gets through any more, or everybody again."""
        self._cut = cut
        for one in self._open if cut else ():
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut(True)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listening.accept()
                if self._cut:
                    one.close()
                    continue
                with suppress(OSError):
                    other = socket.create_connection(self._target)
                    self._open += [one, other]
                    for ends in ((one, other, True), (other, one, False)):
                        threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, asks: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                for method, path in _REQUEST.findall(data) if asks else ():
                    self._counts["LIST" if b"list-type=" in path else method.decode()] += 1
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def counting_line(target: str) -> Iterator[CountingLine]:
    line = CountingLine(target)
    try:
        yield line
    finally:
        line.close()
