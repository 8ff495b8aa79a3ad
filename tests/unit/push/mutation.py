"""Seeded damage: to bytes, to JSON, to Arrow buffers, and to a connection while it is in use."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, Self

#: numbers that programs get wrong; the largest that fits is left out, as the honest worker claims its lane with it
NASTY = (-1, 0, 1, 7, 255, -(1 << 31), (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 2, -(1 << 63))

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
_FRAME = 9


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The same bytes with bits flipped, a piece cut out, doubled, or replaced by noise."""
    if not data:
        return rng.randbytes(rng.randint(1, 20))
    begin = rng.randrange(len(data))
    end = min(len(data), begin + rng.choice((1, 4, 8, 40, 400)))
    match rng.randrange(6):
        case 0 | 1:
            changed = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 8))):
                changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            return bytes(changed)
        case 2:
            return data[:begin] + data[end:]
        case 3:
            return data[:end] + data[begin:]
        case 4:
            return data[:begin] + rng.randbytes(end - begin) + data[end:]
        case _:
            return data[:begin]


def misnumbered(rng: random.Random, data: bytes) -> bytes:
    """One aligned word near the beginning, where Arrow's lengths, counts and offsets are, replaced by a nasty one."""
    if len(data) < 24:
        return damaged(rng, data)
    # Messages begin anywhere in a frame, so each alignment is as good as another.
    place = rng.randrange(min(len(data), 1500) - 8)
    return data[:place] + struct.pack("<q", rng.choice(NASTY)) + data[place + 8 :]


def noise(rng: random.Random) -> bytes:
    """What no HTTP/2 client sends: plain noise, or noise in frames after a valid beginning."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(rng.choice((1, 9, 100, 5000)))
    if kind == 1:
        return PREFACE + rng.randbytes(rng.choice((1, 9, 100, 5000)))
    frames = []
    for _ in range(rng.randint(1, 20)):
        body = rng.randbytes(rng.choice((0, 4, 8, 60, 300)))
        length = len(body) if kind == 2 else rng.choice((len(body), 0, 1 << 20, (1 << 24) - 1))
        stream = rng.choice((0, 1, 1, 3, (1 << 31) - 1))
        frames.append(
            length.to_bytes(3, "big")
            + bytes([rng.randrange(12), rng.randrange(256)])
            + stream.to_bytes(4, "big")
            + body
        )
    return PREFACE + _SETTINGS + b"".join(frames)


def random_json(rng: random.Random, depth: int = 3) -> Any:
    kind = rng.randrange(8 if depth else 6)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind in {1, 2}:
        return rng.choice(NASTY)
    if kind == 3:
        return rng.choice((0.5, -1.5, 1e300, 1e-300))
    if kind in {4, 5}:
        return rng.choice(("", "a", "0", "1", "x/00112233", "\u0000", "\ud800", "é" * 50, "9" * 30, "ab" * 200))
    if kind == 6:
        return [random_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {str(random_json(rng, 0)): random_json(rng, depth - 1) for _ in range(rng.randrange(4))}


def damaged_json(rng: random.Random, data: bytes) -> bytes:
    """A message with a field replaced, left out or added, or with its text damaged, or no message at all."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(
            (b"", b"{", b"[" * 200_000, b'{"a":' * 50_000, b"9" * 5000, b"NaN", b"null", b"\xff\xfe{\0}\0")
        )
    if kind == 1:
        return json.dumps(random_json(rng)).encode()
    if kind in {2, 3}:
        return damaged(rng, data)
    fields = json.loads(data) if data else {}
    if fields and kind != 4:
        name = rng.choice(sorted(fields))
        if kind == 5:
            del fields[name]
        else:
            fields[name] = random_json(rng)
    else:
        fields[str(random_json(rng, 0))] = random_json(rng)
    return json.dumps(fields).encode()


class MutatingProxy:
    """Passes connections on to ``port``; what clients send goes through ``mutate``, what they get back does not.

    ``mutate(data)`` sees bytes as they come, or with ``frames`` the content of one DATA frame at a time, whose
    length it may change: HTTP/2 stays valid and the damage reaches Flight's messages.
    """

    def __init__(self, port: int, mutate: Callable[[bytes], bytes], *, frames: bool) -> None:
        self._target, self._mutate, self._frames = port, mutate, frames
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self.address = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._sockets += [client, server]
            forth = self._pump_frames if self._frames else self._pump_bytes
            threading.Thread(target=_pump, args=(forth, client, server), daemon=True).start()
            threading.Thread(target=_pump, args=(_copy, server, client), daemon=True).start()

    def _pump_bytes(self, source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(1 << 16):
            target.sendall(self._mutate(data))

    def _pump_frames(self, source: socket.socket, target: socket.socket) -> None:
        waiting, begun = b"", False
        while data := source.recv(1 << 16):
            waiting += data
            if not begun and len(waiting) >= len(PREFACE):
                target.sendall(waiting[: len(PREFACE)])
                waiting, begun = waiting[len(PREFACE) :], True
            while begun and len(waiting) >= _FRAME:
                end = _FRAME + int.from_bytes(waiting[:3], "big")
                if len(waiting) < end:
                    break
                target.sendall(self._frame(waiting[:end]))
                waiting = waiting[end:]

    def _frame(self, frame: bytes) -> bytes:
        is_data = frame[3] == 0
        if not is_data or len(frame) == _FRAME:
            return frame
        body = self._mutate(frame[_FRAME:])[: (1 << 14)]
        return len(body).to_bytes(3, "big") + frame[3:_FRAME] + body


def _copy(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(1 << 16):
        target.sendall(data)


def _pump(how: Callable[[socket.socket, socket.socket], None], source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        how(source, target)
    for connection in (source, target):
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
