"""From input to producer: paced, limited, in a thread of its own, so that Ctrl-C is heard while it waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa

from afspark.errors import InputError
from afspark.push.producer.fitting import Rows
from afspark.push.producer.producer import Producer, ProducerClosed
from afspark.push.producer.punctuating import Punctuator

PACES_A_SECOND = 20


class Pump(threading.Thread):
    """Sends all of ``source``. ``bad`` rows are counted, and raise InputError if ``stop_at_bad``."""

    def __init__(
        self,
        source: Iterator[Rows],
        producer: Producer,
        *,
        rate: float | None = None,
        limit: int | None = None,
        stop_at_bad: bool = False,
        punctuator: Punctuator | None = None,
    ) -> None:
        super().__init__(name="afspark-send", daemon=True)
        self._source, self._producer, self._punctuator = source, producer, punctuator
        self._rate, self._limit, self._stop_at_bad = rate, limit, stop_at_bad
        self._stopping = threading.Event()
        self._began = time.monotonic()
        self.rows = self.bad = self.read = 0
        self.example = ""
        self.error: BaseException | None = None

    def stop(self) -> None:
        """Sends nothing more after what it is sending now."""
        self._stopping.set()

    def run(self) -> None:
        try:
            for rows in self._source:
                self._take(rows)
                if self._stopping.is_set() or self._left() == 0:
                    return
        except ProducerClosed as error:
            self.error = None if self._stopping.is_set() else error
        except BaseException as error:  # noqa: BLE001 - whoever waits for the thread gets it
            self.error = error

    def _take(self, rows: Rows) -> None:
        self.read += rows.bytes
        if rows.bad:
            self.bad += rows.bad
            self.example = self.example or rows.example
            if self._stop_at_bad:
                raise InputError(
                    f"A row does not fit: {rows.example}.", remedy="Use --on-bad skip to go on without such rows."
                )
        batch = rows.batch.slice(0, self._left())
        pieces = [(batch, None)] if self._punctuator is None else self._punctuator.cut(batch)
        for piece, punctuation in pieces:
            for part in self._paced(piece):
                self._producer.send(part)
                self.rows += part.num_rows
            if punctuation is not None and not self._stopping.is_set():
                self._producer.punctuate(time=punctuation)

    def _left(self) -> int | None:
        return None if self._limit is None else self._limit - self.rows

    def _paced(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._rate is None:
            yield batch
            return
        some = max(1, int(self._rate / PACES_A_SECOND))
        for start in range(0, batch.num_rows, some):
            due = self._began + self.rows / self._rate
            if self._stopping.wait(max(0.0, due - time.monotonic())):
                return
            yield batch.slice(start, some)
