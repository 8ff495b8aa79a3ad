"""Where a message ends in a stream of bytes: with its line, or after as many octets as it announces (RFC 6587)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

MAX_MESSAGE_BYTES = 1 << 20

# RFC 6587, section 3.4.1: MSG-LEN SP SYSLOG-MSG, and every SYSLOG-MSG begins with its priority.
_COUNTED = re.compile(rb"[1-9]\d{0,9} <")
_MAY_BE_COUNTED = re.compile(rb"[1-9]\d{0,9} ?")
# Some senders end a frame with a line feed that they do not count.
_LENGTH = re.compile(rb"\n?([1-9]\d{0,9}) ")
_MAY_BE_LENGTH = re.compile(rb"\n?(?:[1-9]\d{0,9})?")


@dataclass(slots=True)
class FrameCounts:
    """What was left out: messages above the limit, and frames that were broken or cut short."""

    too_long: int = 0
    malformed: int = 0


class Framing(Protocol):
    """The state of one connection."""

    @property
    def broken(self) -> bool:
        """Whether nothing can be made of what follows."""
        ...

    def take(self, data: bytes) -> bytes:
        """The messages that ``data`` completes, a line each."""
        ...

    def end(self) -> bytes:
        """What is left when the connection has ended."""
        ...


NewFraming = Callable[[FrameCounts, int], Framing]
"""Framing for a new connection, with a limit on the bytes of a message."""


class LineFrames:
    """Lines. A last one without end counts as a line."""

    broken = False

    def __init__(self, counts: FrameCounts, limit: int) -> None:
        self._counts, self._limit = counts, limit
        self._start = bytearray()
        self._skipping = False

    def take(self, data: bytes) -> bytes:
        if self._skipping:
            _, end, data = data.partition(b"\n")
            self._skipping = not end
        cut = data.rfind(b"\n") + 1
        whole = bytes(self._start) + data[:cut] if cut else b""
        if cut:
            self._start.clear()
        self._start += data[cut:]
        if len(self._start) > self._limit:
            self._start.clear()
            self._skipping = True
            self._counts.too_long += 1
        return whole

    def end(self) -> bytes:
        rest = bytes(self._start)
        return rest + b"\n" if rest else b""


class OctetFrames:
    """``LENGTH SP MESSAGE`` one after another. A frame without its length breaks the connection: the next cannot be
    found. A frame that the end of the connection cuts short is malformed, too."""

    def __init__(self, counts: FrameCounts, limit: int) -> None:
        self._counts, self._limit = counts, limit
        self._held = bytearray()
        self._needed = 0
        self._skip = 0
        self.broken = False

    def take(self, data: bytes) -> bytes:
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self._held += data[skipped:]
        if len(self._held) < self._needed:
            return b""
        text, at, lines = bytes(self._held), 0, []
        self._needed = 0
        while at < len(text):
            length = _LENGTH.match(text, at)
            if length is None:
                if not _MAY_BE_LENGTH.fullmatch(text, at):
                    self.broken = True
                    self._counts.malformed += 1
                    at = len(text)
                break
            end = length.end() + int(length[1])
            if end - length.end() > self._limit:
                self._counts.too_long += 1
                self._skip = max(0, end - len(text))
            elif end > len(text):
                self._needed = end - at
                break
            else:
                lines.append(as_line(text[length.end() : end]))
            at = end
        del self._held[:at]
        return b"".join(lines)

    def end(self) -> bytes:
        if self._held.strip():
            self._counts.malformed += 1
        return b""


class SyslogFrames:
    """Counted octets if the connection begins like that, else lines; a sender does not change its mind."""

    def __init__(self, counts: FrameCounts, limit: int) -> None:
        self._counts, self._limit = counts, limit
        self._start = b""
        self._chosen: Framing | None = None

    @property
    def broken(self) -> bool:
        return self._chosen is not None and self._chosen.broken

    def take(self, data: bytes) -> bytes:
        if self._chosen is None:
            data = self._start + data
            if _MAY_BE_COUNTED.fullmatch(data):
                self._start = data
                return b""
            kind = OctetFrames if _COUNTED.match(data) else LineFrames
            self._chosen = kind(self._counts, self._limit)
        return self._chosen.take(data)

    def end(self) -> bytes:
        if self._chosen is None:
            return self._start + b"\n" if self._start else b""
        return self._chosen.end()


def as_line(message: bytes) -> bytes:
    """A message that may have line feeds in it as one line.

    >>> as_line(b"one\\ntwo\\r\\n")
    b'one two\\n'
    """
    return message.rstrip(b"\r\n\0").replace(b"\n", b" ") + b"\n"
