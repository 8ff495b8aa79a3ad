"""A process that forks others, made before anything in this one has threads.

The library behind Flight does not survive a fork. A driver that hosts a receiver must therefore not fork its tasks
itself: it sends them to a zygote.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle

from afspark.cluster.local.processes import forked

_LENGTH = struct.Struct("<Q")


class Zygote:
    """Runs tasks, each in a process of its own, side by side."""

    def __init__(self) -> None:
        self._mine, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self._mine.close()
            _serve(theirs)
        theirs.close()

    def run(self, *tasks: Callable[[], Any]) -> list[tuple[bool, Any]]:
        """Like `processes.forked`."""
        _send(self._mine, cloudpickle.dumps(tasks))  # type: ignore[no-untyped-call]
        answers: list[tuple[bool, Any]] = pickle.loads(_receive(self._mine))
        return answers

    def children(self) -> list[int]:
        """The processes at work now."""
        return children_of(self.pid)


def children_of(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def _serve(pipe: socket.socket) -> None:
    # Whoever is killed takes its zygote with it: the pipe ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            tasks = pickle.loads(_receive(pipe))
        except EOFError:
            os._exit(0)
        _send(pipe, pickle.dumps(forked(*tasks)))


def _send(pipe: socket.socket, data: bytes) -> None:
    pipe.sendall(_LENGTH.pack(len(data)) + data)


def _receive(pipe: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(pipe, _LENGTH.size))
    return _exactly(pipe, length)


def _exactly(pipe: socket.socket, length: int) -> bytes:
    parts: list[bytes] = []
    while length:
        part = pipe.recv(min(length, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
