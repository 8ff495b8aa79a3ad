"""Acknowledgements on their way back over one put stream.

They are cumulative, so only the newest end of each lane is kept. The thread that reads the stream sends what it
caused itself; what others caused (the item log, a worker's confirmation) is sent by a thread of the stream's own,
so that a producer that does not read its acknowledgements holds up nobody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from afspark.push.wire.messages import Ack


class Acks:
    """``write`` sends one message; ``receipt`` proves the acknowledgement of a lane up to an end."""

    def __init__(self, write: Callable[[bytes], None], receipt: Callable[[int, int], str]) -> None:
        self._receipt = receipt
        self._write = write
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._owed: dict[int, int] = {}
        self._sent: dict[int, int] = {}
        self._expected: dict[int, int] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def expect(self, lane: int, end: int) -> None:
        """The stream brought something whose acknowledgement up to ``end`` is still to come."""
        with self._changed:
            self._expected[lane] = max(end, self._expected.get(lane, 0))

    def owe(self, lane: int, end: int, *, from_reader: bool = False) -> None:
        """An acknowledgement is to be sent: by the reading thread's `flush`, or else by the stream's own."""
        with self._changed:
            if self._closed:
                return
            self._owed[lane] = max(end, self._owed.get(lane, 0))
            if not from_reader:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="afspark-acks", daemon=True)
                    self._thread.start()
                self._changed.notify_all()

    def flush(self) -> None:
        """Sends what is owed."""
        with self._sending:
            with self._changed:
                # Two threads tell of ends; the lower one may come last, when the higher one is sent already.
                owed = {lane: max(end, self._sent.get(lane, 0)) for lane, end in self._owed.items()}
                self._owed = {}
            for lane, end in owed.items():
                self._write(Ack(lane, end, receipt=self._receipt(lane, end)).to_bytes())
            with self._changed:
                self._sent |= owed
                self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Whether everything expected was sent; waits for it, unless nothing more can be sent."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._is_done(), seconds)
            return self._is_done()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Ends the thread; nothing is written after this returns."""
        with self._changed:
            self._closed = True
            self._owed.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        with self._sending:
            pass

    def _is_done(self) -> bool:
        return all(self._sent.get(lane, 0) >= end for lane, end in self._expected.items())

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._owed or self._closed)
                if self._closed:
                    return
            try:
                self.flush()
            except (pa.ArrowException, OSError):
                # The producer has gone; it will say hello again.
                with self._changed:
                    self._closed = True
                    self._changed.notify_all()
                return
