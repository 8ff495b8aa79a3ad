"""UDP datagrams. What the kernel had to drop is counted; nothing else is dropped."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from afspark.push.adapters.gathering import Listener

LARGEST = 65_536
KERNEL_BUFFER = 16 << 20
"""Asked for; the kernel gives what net.core.rmem_max allows."""

Datagram = tuple[bytes, tuple[Any, ...]]
"""What came, and the socket's address of its sender: host and port first."""


class Datagrams(Listener[list[Datagram]]):
    """Datagrams in order of arrival, many at a time."""

    kind = socket.SOCK_DGRAM

    def __init__(self, address: tuple[str, int], **options: Any) -> None:
        self._dropped = 0
        super().__init__(address, **options)

    @property
    def dropped(self) -> int | None:
        """Datagrams that came while the kernel's buffer was full; None where the system does not tell."""
        try:
            inode = os.fstat(self._socket.fileno()).st_ino
        except OSError:  # closed: what it was then
            return self._dropped
        for name in ("udp", "udp6"):
            try:
                lines = Path("/proc/net", name).read_text().splitlines()[1:]
            except OSError:
                return None
            for fields in map(str.split, lines):
                if fields[9] == str(inode):
                    self._dropped = int(fields[-1])
                    return self._dropped
        return None

    def close(self) -> None:
        _ = self.dropped
        super().close()

    def _prepare(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
        sock.settimeout(min(0.05, self._flush_seconds))

    def _chunks(self) -> Iterator[list[Datagram]]:
        receive, clock = self._socket.recvfrom, time.monotonic
        held: list[Datagram] = []
        size, due = 0, 0.0
        while not self._stop.is_set():
            try:
                datagram = receive(LARGEST)
            except TimeoutError:
                pass
            else:
                if not held:
                    due = clock() + self._flush_seconds
                held.append(datagram)
                size += len(datagram[0])
            if held and (size >= self._flush_bytes or clock() >= due):
                yield held
                held, size = [], 0
        if held:
            yield held
