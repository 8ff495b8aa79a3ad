"""One DoPut: batches of one producer come in, acknowledgements go out.

If the stream's command names a session, all batches carry their numbers. If not, they are numbered here, in a session
that begins with the first of them and ends with the stream.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pyarrow as pa

from afspark.push.receiver.acks import Acks
from afspark.push.receiver.call_context import CallContext
from afspark.push.receiver.footprint import footprint, was_compressed
from afspark.push.receiver.lane_entries import ENTRY_BYTES, LaneItems
from afspark.push.receiver.lane_signals import GLANCE_SECONDS
from afspark.push.receiver.soundness import check_batch
from afspark.push.wire.field_checks import sequence_number
from afspark.push.wire.messages import BatchTag, PutHeader
from afspark.push.wire.push_errors import LimitExceeded, PushError, ReceiverStopped, SchemaMismatch, WireError

#: what a message may have besides its batch
_MESSAGE_BYTES = 1 << 16


class PutStream:
    """Reads a stream to its end. Whatever is wrong with it is raised, and concerns this producer alone."""

    def __init__(self, receiver: CallContext, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        self._receiver = receiver
        self._context = context
        self._reader = reader
        self._header = _header(descriptor)
        self._numbered = bool(self._header.session)
        self._next: dict[int, int] = {}
        self._acks = Acks(
            lambda data: writer.write(pa.py_buffer(data)),
            lambda lane, end: receiver.sessions.receipt(self._header.id, lane, end),
        )

    def run(self) -> None:
        self._check_schema()
        try:
            if self._numbered:
                self._connect()
            while (chunk := self._read()) is not None:
                self._take(chunk)
            self._see_off()
        finally:
            # No acknowledgement may be under way when Flight takes the stream down.
            self._receiver.registry.disconnect(self._header.id, self._acks)
            self._acks.close()
            self._finish_own(wait=False)

    def _alive(self) -> bool:
        return not (self._context.is_cancelled() or self._acks.closed)

    def _check_schema(self) -> None:
        expected, found = self._receiver.schema, self._reader.schema
        if not found.equals(expected):
            raise SchemaMismatch(
                f"The producer's columns are {_columns(found)}, the source's are {_columns(expected)}.",
                remedy="Send batches of exactly the source's names, types and order.",
                expected=expected.to_string(),
                found=found.to_string(),
            )

    def _connect(self) -> None:
        self._header = replace(self._header, session=self._receiver.enter(self._header))
        self._receiver.registry.connect(self._header.producer, self._header.id, self._acks)
        # What was acknowledged while the session was not connected.
        for number, lane in self._receiver.lanes.items():
            if end := lane.acked(self._header.id):
                self._acks.owe(number, end, from_reader=True)
        self._acks.flush()

    def _read(self) -> Any:
        if self._receiver.stopping.is_set():
            raise ReceiverStopped("The receiver stops.", remedy="Send again what was not acknowledged.")
        try:
            return self._reader.read_chunk()
        except StopIteration:
            return None

    def _take(self, chunk: Any) -> None:
        batch = chunk.data
        if batch is None:
            raise WireError("A message without a batch came.", what="batch")
        if was_compressed(batch):
            # Flight unpacks a message before anybody can look at it, whatever it unpacks to. So no second one is read.
            raise WireError(
                "A compressed batch came.",
                remedy="Send record batches without body compression.",
                what="compression",
            )
        nbytes = batch.get_total_buffer_size()
        held = footprint(batch)
        # Padding and a header belong to every message.
        if nbytes > self._receiver.largest_batch or held > 2 * self._receiver.largest_batch + _MESSAGE_BYTES:
            nbytes = max(nbytes, held)
            raise LimitExceeded(
                f"A batch of {nbytes} bytes came, {self._receiver.largest_batch} are allowed.",
                remedy="Send smaller batches, or raise the receiver's limits.",
                limit="message_bytes",
                allowed=self._receiver.largest_batch,
                found=nbytes,
            )
        number, record = self._record(batch, chunk.app_metadata)
        check_batch(batch, record.producer)
        lane = self._receiver.lane(number)
        delay = self._receiver.registry.delay(self._header.producer, batch.num_rows)
        if delay:
            self._receiver.pause(delay, self._alive)
        end = lane.put(record, held + ENTRY_BYTES, self._alive)
        if not self._numbered:
            self._next[number] = record.end
        self._acks.expect(number, record.end)
        if end:
            self._acks.owe(number, end, from_reader=True)
            self._acks.flush()

    def _record(self, batch: pa.RecordBatch, metadata: Any) -> tuple[int, LaneItems]:
        if (metadata is not None) != self._numbered:
            raise WireError(
                "A batch lacks its numbers." if self._numbered else "A batch with numbers came without a session.",
                remedy="Say hello, name the session in the stream's command, and send numbers with all batches.",
                what="metadata",
            )
        if not self._numbered:
            if not self._header.session:
                self._connect()
            lane = self._receiver.next_lane()
            return lane, LaneItems(self._header.id, self._next.setdefault(lane, 0), batch.num_rows, batch)
        tag = BatchTag.from_bytes(metadata)
        sequence_number(tag.start + max(1, batch.num_rows), "start")
        if tag.punctuation is None:
            return tag.lane, LaneItems(self._header.id, tag.start, batch.num_rows, batch)
        if batch.num_rows:
            raise WireError("A punctuation comes with a batch without rows.", what="punctuation")
        return tag.lane, LaneItems(self._header.id, tag.start, 1, punctuation=tag.punctuation)

    def _see_off(self) -> None:
        """Waits until everything was acknowledged to a producer that has sent all: only then the stream ends well."""
        while not self._acks.wait(GLANCE_SECONDS):
            if self._receiver.stopping.is_set():
                raise ReceiverStopped("The receiver stops.", remedy="Send again what was not acknowledged.")
            if not (self._alive() and self._receiver.registry.is_current(self._header.id, self._acks)):
                raise ReceiverStopped(
                    "The stream is gone, or another one of the same session has taken its acknowledgements.",
                    remedy="Use one stream at a time for a session.",
                )
        self._finish_own(wait=True)

    def _finish_own(self, *, wait: bool) -> None:
        ends, self._next = self._next, {}
        if not ends:
            return
        for number, lane in self._receiver.lanes.items():
            with contextlib.suppress(PushError):
                lane.finish(self._header.id, ends.get(number, 0), self._alive if wait else None)
        self._receiver.registry.leave(self._header.id)


def _header(descriptor: Any) -> PutHeader:
    command = descriptor.command
    return PutHeader.from_bytes(command) if command else PutHeader("plain")


def _columns(schema: pa.Schema, limit: int = 300) -> str:
    text = ", ".join(f"{column.name} {column.type}" for column in schema)
    return f"({text if len(text) <= limit else text[:limit] + '...'})"
