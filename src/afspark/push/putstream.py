"""One DoPut: batches of one producer come in, acknowledgements go out."""

from __future__ import annotations

import contextlib
import secrets
from typing import Any

import pyarrow as pa

from afspark.push.acks import Acks
from afspark.push.entries import ENTRY_BYTES, Record
from afspark.push.errors import LimitExceeded, PushError, ReceiverStopped, SchemaMismatch, WireError
from afspark.push.fields import sequence_number
from afspark.push.footprint import footprint
from afspark.push.hub import Hub
from afspark.push.service import GLANCE_SECONDS
from afspark.push.soundness import check_batch
from afspark.push.wire import BatchTag, PutHeader

#: what a message may have besides its batch
_MESSAGE_BYTES = 1 << 16


class PutStream:
    """Reads a stream to its end. Whatever is wrong with it is raised, and concerns this producer alone."""

    def __init__(self, hub: Hub, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        self._hub = hub
        self._context = context
        self._reader = reader
        header = _header(descriptor)
        # Batches without numbers are numbered here, in a session that ends with the stream.
        self._own = PutHeader(header.producer if header else "plain", secrets.token_hex(8))
        self._header = header
        self._numbered: bool | None = None
        self._next: dict[int, int] = {}
        self._acks = Acks(lambda data: writer.write(pa.py_buffer(data)), lambda: hub.unacked)

    def run(self) -> None:
        self._check_schema()
        try:
            if self._header is not None:
                self._connect(self._header)
            while (chunk := self._read()) is not None:
                self._take(chunk)
            self._see_off()
        finally:
            # No acknowledgement may be under way when Flight takes the stream down.
            for header in (self._header, self._own):
                if header is not None:
                    self._hub.registry.disconnect(header.id, self._acks)
            self._acks.close()
            self._finish_own(wait=False)

    def _alive(self) -> bool:
        return not (self._context.is_cancelled() or self._acks.closed)

    def _check_schema(self) -> None:
        expected, found = self._hub.schema, self._reader.schema
        if not found.equals(expected):
            raise SchemaMismatch(
                f"The producer's columns are {_columns(found)}, the source's are {_columns(expected)}.",
                remedy="Send batches of exactly the source's names, types and order.",
                expected=expected.to_string(),
                found=found.to_string(),
            )

    def _connect(self, header: PutHeader) -> None:
        self._hub.registry.connect(header.producer, header.id, self._acks)
        # What was acknowledged while the session was not connected.
        for number, lane in self._hub.lanes.items():
            if end := lane.acked(header.id):
                self._acks.owe(number, end, from_reader=True)
        self._acks.flush()

    def _read(self) -> Any:
        if self._hub.stopping.is_set():
            raise ReceiverStopped("The receiver stops.", remedy="Send again what was not acknowledged.")
        try:
            return self._reader.read_chunk()
        except StopIteration:
            return None

    def _take(self, chunk: Any) -> None:
        batch = chunk.data
        if batch is None:
            raise WireError("A message without a batch came.", what="batch")
        nbytes = batch.get_total_buffer_size()
        held = footprint(batch)
        # Padding and a header belong to every message.
        if nbytes > self._hub.largest_batch or held > 2 * self._hub.largest_batch + _MESSAGE_BYTES:
            nbytes = max(nbytes, held)
            raise LimitExceeded(
                f"A batch of {nbytes} bytes came, {self._hub.largest_batch} are allowed.",
                remedy="Send smaller batches, or raise the receiver's limits.",
                limit="message_bytes",
                allowed=self._hub.largest_batch,
                found=nbytes,
            )
        number, record = self._record(batch, chunk.app_metadata)
        check_batch(batch, record.producer)
        lane = self._hub.lane(number)
        delay = self._hub.registry.delay(self._own.producer, batch.num_rows)
        if delay:
            self._hub.pause(delay, self._alive)
        end = lane.put(record, held + ENTRY_BYTES, self._alive)
        if self._numbered is False:
            self._next[number] = record.end
        self._acks.expect(number, record.end)
        if end:
            self._acks.owe(number, end, from_reader=True)
            self._acks.flush()

    def _record(self, batch: pa.RecordBatch, metadata: Any) -> tuple[int, Record]:
        numbered = metadata is not None
        if self._numbered is None:
            self._numbered = numbered
            if not numbered:
                self._hub.registry.connect(self._own.producer, self._own.id, self._acks)
        if numbered != self._numbered:
            raise WireError("Either all batches of a stream carry metadata or none.", what="metadata")
        if not numbered:
            lane = self._hub.next_lane()
            return lane, Record(self._own.id, self._next.get(lane, 0), batch.num_rows, batch)
        if self._header is None:
            raise WireError(
                "Batches with numbers need a producer.",
                remedy='Give the stream the command {"version":1,"producer":...,"session":...}.',
                what="producer",
            )
        tag = BatchTag.from_bytes(metadata)
        sequence_number(tag.start + max(1, batch.num_rows), "start")
        if tag.punctuation is None:
            return tag.lane, Record(self._header.id, tag.start, batch.num_rows, batch)
        if batch.num_rows:
            raise WireError("A punctuation comes with a batch without rows.", what="punctuation")
        return tag.lane, Record(self._header.id, tag.start, 1, punctuation=tag.punctuation)

    def _see_off(self) -> None:
        """The producer has sent all it wants to; it still gets its acknowledgements."""
        mine = self._own if self._numbered is False else self._header
        while not self._acks.wait(GLANCE_SECONDS):
            if self._hub.stopping.is_set():
                raise ReceiverStopped("The receiver stops.", remedy="Send again what was not acknowledged.")
            if not self._alive() or (mine is not None and not self._hub.registry.is_current(mine.id, self._acks)):
                return
        if self._alive():
            self._finish_own(wait=True)

    def _finish_own(self, *, wait: bool) -> None:
        ends, self._next = self._next, {}
        for number, end in ends.items():
            with contextlib.suppress(PushError):
                self._hub.lanes[number].finish(self._own.id, end, self._alive if wait else None)
        if ends:
            self._hub.registry.leave(self._own.id)


def _header(descriptor: Any) -> PutHeader | None:
    command = descriptor.command
    return PutHeader.from_bytes(command) if command else None


def _columns(schema: pa.Schema, limit: int = 300) -> str:
    text = ", ".join(f"{column.name} {column.type}" for column in schema)
    return f"({text if len(text) <= limit else text[:limit] + '...'})"
