"""The producer's client: keeps what is unacknowledged, reconnects and sends again, tells what it has lost.

>>> with Producer("localhost:7000", "sensor-12", schema) as producer:  # doctest: +SKIP
...     for batch in batches:
...         producer.send(batch)
...     producer.end()

Calls only queue; a thread owns the connection and writes, another reads acknowledgements. So every call can be
interrupted, and a receiver that hangs cannot hang its producer beyond the time-outs given.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from afspark.errors import AfsparkError, UsageError
from afspark.push.producer.link import Dial
from afspark.push.producer.producer_connection import Outgoing, ProducerConnection
from afspark.push.producer.unacked import Lost, NotAcknowledged, Piece
from afspark.push.wire.batches import no_rows
from afspark.push.wire.messages import (
    PunctuationMark,
    PutHeader,
)
from afspark.push.wire.push_errors import (
    LimitExceeded,
    PushError,
    SchemaMismatch,
)

BATCH_ROWS = 65_536
UNACKED_BYTES = 64 << 20
GIVE_UP_SECONDS = 60.0


class ProducerClosed(PushError):
    """The producer was closed or aborted; nothing more can be sent with it."""


@dataclass(frozen=True, kw_only=True)
class ProducerCounters:
    """What a producer did so far, in rows; latency runs from writing a batch to its acknowledgement.

    ``taken``: rows that `Producer.send` has queued; those of a call that failed half way are not all among them.
    """

    taken: int
    sent: int
    acknowledged: int
    resent: int
    bytes: int
    reconnects: int
    blocked_seconds: float
    latency_p50: float | None
    latency_p99: float | None
    latency_max: float | None


class Producer:
    """Pushes record batches of one schema to one receiver, to its lanes in turn.

    At most γ items are unacknowledged: what the receiver asks for, or ``unacked`` if that is smaller; `send` blocks
    beyond that. With γ = 0 each batch is waited for. ``unacked_bytes`` bounds memory where γ does not. A receiver
    that cannot be reached for ``give_up`` seconds (None: for ever) makes every call fail, with the number of
    unacknowledged items. Calls may come from several threads.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of the user's, most with a default
        self,
        address: str,
        name: str,
        schema: pa.Schema,
        *,
        unacked: float | None = None,
        token: str | None = None,
        root_certificates: bytes | str | Path | None = None,
        batch_rows: int = BATCH_ROWS,
        unacked_bytes: int = UNACKED_BYTES,
        give_up: float | None = GIVE_UP_SECONDS,
    ) -> None:
        if batch_rows < 1 or unacked_bytes < 1 or (unacked is not None and unacked < 0):
            raise UsageError("batch_rows and unacked_bytes must be at least 1, unacked at least 0.")
        self._dial = Dial(address, token, root_certificates)
        header = PutHeader.from_bytes(PutHeader(name).to_bytes())
        self.schema = schema.remove_metadata()
        self._shared = Outgoing(header, math.inf if unacked is None else unacked)
        self._batch_rows, self._bytes_limit, self._give_up = batch_rows, unacked_bytes, give_up
        self._turn, self._ended, self._blocked = 0, False, 0.0
        self._thread = ProducerConnection(self._dial, self.schema, self._shared, give_up)
        self._thread.start()

    @property
    def id(self) -> str:
        """``name/session``, as receivers and ledgers call this producer; waits for the first connection."""
        with self._shared.changed:
            self._wait(lambda: self._shared.welcome is not None)
            return self._shared.header.id

    @property
    def counters(self) -> ProducerCounters:
        """How much was taken, sent and acknowledged so far."""
        with self._shared.changed:
            return ProducerCounters(
                taken=self._shared.unacked.rows,
                sent=self._shared.sent,
                acknowledged=self._shared.acknowledged,
                resent=self._shared.resent,
                bytes=self._shared.bytes,
                reconnects=self._shared.reconnects,
                blocked_seconds=self._blocked,
                latency_p50=self._shared.latencies.quantile(0.5),
                latency_p99=self._shared.latencies.quantile(0.99),
                latency_max=self._shared.latencies.longest if self._shared.latencies.count else None,
            )

    @property
    def unacknowledged(self) -> int:
        """How many sequence numbers are unacknowledged now."""
        with self._shared.changed:
            return self._shared.unacked.items

    @property
    def alive(self) -> bool:
        """Whether what is unacknowledged may still be acknowledged."""
        with self._shared.changed:
            return not (self._shared.done or self._shared.aborted or self._shared.failure is not None)

    @property
    def lost(self) -> Lost:
        """What is unacknowledged now; after `abort` or a failure: what was lost for good."""
        with self._shared.changed:
            return self._shared.unacked.lost()

    def send(self, data: pa.RecordBatch | pa.Table) -> None:
        """Queues rows; blocks while γ items are unacknowledged. Returns before they are, unless γ is 0."""
        for batch in data.to_batches() if isinstance(data, pa.Table) else (data,):
            batch = self._fitting(batch)  # noqa: PLW2901 - the same rows
            while batch.num_rows:
                batch = self._send_some(batch)  # noqa: PLW2901 - what is left of it

    def punctuate(self, time: float) -> None:
        """Says on every lane that the stream has reached ``time``."""
        self._mark(PunctuationMark(time=time))

    def end(self) -> None:
        """Says on every lane that the stream is over; nothing can be sent afterwards."""
        self._mark(PunctuationMark(end=True))
        self._ended = True

    def flush(self, timeout: float | None = None) -> None:
        """Returns when everything is acknowledged. NotAcknowledged after ``timeout`` seconds (None: wait)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._shared.changed:
            if not self._wait(lambda: not self._shared.unacked.items, deadline):
                raise self._not_acknowledged(f"within {timeout:g} s")

    def close(self, timeout: float | None = None) -> None:
        """Waits until everything is acknowledged, then says good-bye. NotAcknowledged after ``timeout`` seconds."""
        with self._shared.changed:
            if self._shared.aborted or (self._shared.done and self._shared.failure is None):
                return
            self._shared.closing = True
            self._shared.changed.notify_all()
            deadline = None if timeout is None else time.monotonic() + timeout
            try:
                finished = self._wait(lambda: self._shared.done, deadline)
                error: AfsparkError | None = None if finished else self._not_acknowledged(f"within {timeout:g} s")
            except AfsparkError as failure:
                error = failure
        if error is not None:
            self.abort()
            raise error

    def abort(self) -> Lost:
        """What was never acknowledged. The producer ends at once, and sends nothing afterwards."""
        with self._shared.changed:
            self._shared.aborted = True
            self._shared.queue.clear()
            self._shared.changed.notify_all()
            lost = self._shared.unacked.lost()
        if threading.current_thread() is not self._thread:
            self._thread.join(0.5)
        return lost

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close(self._give_up)
        except AfsparkError as failure:
            if failure is not error:
                error.add_note(str(failure))

    # --- under the lock ---

    def _fitting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self.schema, check_metadata=True):
            return batch
        if not batch.schema.equals(self.schema):
            raise SchemaMismatch(
                f"A batch has columns [{_text(batch.schema)}], the producer was made for [{_text(self.schema)}].",
                remedy="Select and cast the columns first.",
                expected=_text(self.schema),
                found=_text(batch.schema),
            )
        return pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    def _send_some(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        with self._shared.changed:
            self._check_open()
            self._wait(lambda: self._shared.welcome is not None)
            assert self._shared.welcome is not None
            rows = min(batch.num_rows, self._slice_rows())
            some, size = _at_most(batch.slice(0, rows), self._shared.welcome.max_bytes)
            self._wait(lambda: self._has_room(some.num_rows, size))
            if some.num_rows > self._slice_rows():  # γ has become smaller meanwhile
                return batch
            piece = self._give_out(some, size)
            if self._shared.limit < 1:
                self._wait(lambda: not self._shared.unacked.holds(piece))
        return batch.slice(some.num_rows)

    def _mark(self, punctuation: PunctuationMark) -> None:
        empty = no_rows(self.schema)
        with self._shared.changed:
            self._check_open()
            self._wait(lambda: self._shared.welcome is not None)
            assert self._shared.welcome is not None
            for lane in self._shared.welcome.lanes:
                self._wait(lambda: self._has_room(1, 0))
                self._give_out(empty, 0, punctuation, lane)

    def _check_open(self) -> None:
        if self._ended:
            raise UsageError("The stream was ended.", remedy="Send everything before end().")
        if self._shared.closing or self._shared.aborted:
            raise ProducerClosed("The producer is closed.")

    def _slice_rows(self) -> int:
        """Two slices fit under γ, so that one is on its way while the other is acknowledged."""
        if self._shared.limit < 1:
            return self._batch_rows
        return int(min(self._batch_rows, max(1.0, self._shared.limit / 2)))

    def _has_room(self, rows: int, size: int) -> bool:
        return self._shared.unacked.has_room(rows, items=self._shared.limit, size=size, bytes_limit=self._bytes_limit)

    def _give_out(
        self, batch: pa.RecordBatch, size: int, punctuation: PunctuationMark | None = None, lane: int | None = None
    ) -> Piece:
        assert self._shared.welcome is not None
        if lane is None:
            lane = self._shared.welcome.lanes[self._turn % len(self._shared.welcome.lanes)]
            self._turn += 1
        piece = self._shared.unacked.admit(lane, batch, size, punctuation)
        self._shared.queue.append(piece)
        self._shared.changed.notify_all()
        return piece

    def _wait(self, holds: Callable[[], bool], deadline: float | None = None) -> bool:
        """Waits under the lock until something holds; raises if it never will, False if time is up."""
        if self._shared.failure is None and not self._shared.aborted and holds():
            return True
        began = time.monotonic()
        try:
            while True:
                if self._shared.failure is not None:
                    raise self._shared.failure
                if self._shared.aborted:
                    raise ProducerClosed("The producer was aborted.")
                if holds():
                    return True
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._shared.changed.wait(left)
        finally:
            self._blocked += time.monotonic() - began

    def _not_acknowledged(self, when: str) -> NotAcknowledged:
        lost = self._shared.unacked.lost()
        return NotAcknowledged(
            f"{lost} were not acknowledged by {self._dial.address} {when}.",
            items=lost.items,
            lost=lost,
            address=self._dial.address,
        )


def _at_most(batch: pa.RecordBatch, limit: int) -> tuple[pa.RecordBatch, int]:
    """The first rows of a batch that make a message of at most ``limit`` bytes, and its size."""
    while (size := pa.ipc.get_record_batch_size(batch)) > limit - limit // 8:
        if batch.num_rows == 1:
            if size <= limit:
                break
            raise LimitExceeded(
                f"A row takes {size} bytes, the receiver allows {limit} in a message.",
                remedy="Let the receiver take larger messages.",
                limit="max_bytes",
                allowed=limit,
                found=size,
            )
        batch = batch.slice(0, max(1, min(batch.num_rows // 2, batch.num_rows * limit // (2 * size))))
    return batch, size


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema)
