"""A receiver that does what a test tells it: withholds acknowledgements, forgets sessions, refuses.

As a program (``python -m tests.unit.push.fake_receiver PORT LOG``) it writes what it accepted to a file before it
acknowledges, so that a test can kill it at any moment and see what it had.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from afspark.push.wire.addresses import join_address
from afspark.push.wire.messages import Ack, BatchTag, Bye, Done, Hello, PutHeader, Welcome
from afspark.push.wire.push_errors import NotAllowed, SchemaMismatch, to_flight

SCHEMA = pa.schema([("n", pa.int64())])


class FakeReceiver(flight.FlightServerBase):
    """Keeps what came per session and lane; acknowledges while ``open`` is set."""

    def __init__(
        self,
        port: int = 0,
        *,
        schema: pa.Schema = SCHEMA,
        lanes: tuple[int, ...] = (0,),
        unacked: float = math.inf,
        max_bytes: int = 1 << 26,
        token: str | None = None,
        log: Path | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.host = host
        super().__init__(f"grpc://{join_address(host, port)}")
        self.schema, self.lanes, self.unacked, self.max_bytes, self.token = schema, lanes, unacked, max_bytes, token
        self.log = None if log is None else log.open("a")
        self.open = threading.Event()
        self.open.set()
        self.lock = threading.Condition()
        self.rows: list[dict[str, Any]] = []
        self.tags: list[BatchTag] = []
        self.sizes: list[int] = []
        self.received: dict[tuple[str, int], int] = {}
        self.hellos: list[Hello] = []
        self.byes: list[Bye] = []
        self.smaller: float | None = None
        self.held = self.most_held = 0

    @property
    def address(self) -> str:
        return join_address(self.host, self.port)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        return flight.SchemaResult(self.schema)

    def do_action(self, context: Any, action: Any) -> Any:
        with self.lock:
            if action.type == "bye":
                self.byes.append(Bye.from_bytes(action.body))
                return [Done().to_bytes()]
            hello = Hello.from_bytes(action.body)
            if hello.producer == "refused":
                raise to_flight(NotAllowed("The token is wrong.", remedy="Give the right one."))
            self.hellos.append(hello)
            received = {lane: end for (who, lane), end in self.received.items() if who == hello.id}
            session = hello.session or secrets.token_hex(16)
            return [Welcome(session, self.lanes, self.unacked, self.max_bytes, received).to_bytes()]

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        header = PutHeader.from_bytes(descriptor.command)
        if not reader.schema.equals(self.schema):
            raise to_flight(SchemaMismatch("The columns are wrong.", expected="", found=""))
        acks: list[tuple[Ack, int]] = []
        over = threading.Event()

        def acknowledge() -> None:
            while not over.is_set() or acks:
                if not self.open.wait(0.05):
                    continue
                with self.lock:
                    self.lock.wait_for(lambda: acks, 0.02)
                    if not self.open.is_set():
                        continue
                    mine, acks[:] = acks[:], []
                    self.held -= sum(span for _, span in mine)
                with contextlib.suppress(OSError, pa.ArrowException):  # the producer has gone
                    for ack, _ in mine:
                        writer.write(ack.to_bytes())

        thread = threading.Thread(target=acknowledge, daemon=True)
        thread.start()
        for chunk in reader:
            tag = BatchTag.from_bytes(chunk.app_metadata)
            span = 1 if tag.punctuation else chunk.data.num_rows
            with self.lock:
                key = (header.id, tag.lane)
                duplicate = tag.start + span <= self.received.get(key, 0)
                assert duplicate or tag.start == self.received.get(key, tag.start)
                if not duplicate:
                    self.received[key] = tag.start + span
                    self.tags.append(tag)
                    self.sizes.append(chunk.data.num_rows)
                    self.rows += chunk.data.to_pylist()
                    self.held += span
                    self.most_held = max(self.most_held, self.held)
                    if self.log is not None:
                        self.log.write(json.dumps([tag.lane, tag.start, chunk.data.column(0).to_pylist()]) + "\n")
                        self.log.flush()
                acks.append((Ack(tag.lane, tag.start + span, self.smaller), 0 if duplicate else span))
                self.lock.notify_all()
        over.set()
        thread.join()


if __name__ == "__main__":
    server = FakeReceiver(int(sys.argv[1]), lanes=(0, 1), log=Path(sys.argv[2]))
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.serve()
