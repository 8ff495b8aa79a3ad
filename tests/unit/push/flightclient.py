"""A producer made of nothing but a Flight client: what any program could send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import flight

from afspark.push.wire import BYE, HELLO, Ack, BatchTag, Bye, Hello, Punctuation, PutHeader, Welcome

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
SESSION = "00112233"


def rows(start: int, count: int) -> pa.RecordBatch:
    numbers = range(start, start + count)
    return pa.record_batch([list(numbers), [f"item {number}" for number in numbers]], schema=SCHEMA)


class Client:
    """One session on one connection; every call is the protocol's own."""

    def __init__(self, address: str, name: str = "p", session: str = SESSION, **options: Any) -> None:
        headers, timeout = options.pop("headers", []), options.pop("timeout", 20)
        self.name, self.session = name, session
        self.id = f"{name}/{session}"
        self.flight = flight.connect(address, generic_options=[("grpc.use_local_subchannel_pool", 1)], **options)
        self.options = flight.FlightCallOptions(timeout=timeout, headers=headers)

    def act(self, kind: str, body: bytes) -> bytes:
        (result,) = self.flight.do_action(flight.Action(kind, body), self.options)
        return result.body.to_pybytes()

    def hello(self, acked: Mapping[int, int] | None = None) -> Welcome:
        return Welcome.from_bytes(self.act(HELLO, Hello(self.name, self.session, acked or {}).to_bytes()))

    def bye(self, ends: Mapping[int, int]) -> None:
        self.act(BYE, Bye(self.name, self.session, ends).to_bytes())

    def stream(self, schema: pa.Schema = SCHEMA, command: bytes | None = None) -> Stream:
        if command is None:
            command = PutHeader(self.name, self.session).to_bytes()
        return Stream(self.flight.do_put(flight.FlightDescriptor.for_command(command), schema, self.options))

    def close(self) -> None:
        self.flight.close()


class Stream:
    """An open DoPut."""

    def __init__(self, pair: tuple[Any, Any]) -> None:
        self.writer, self.reader = pair

    def send(self, start: int, count: int, lane: int = 0) -> None:
        self.writer.write_with_metadata(rows(start, count), BatchTag(lane, start).to_bytes())

    def punctuate(self, start: int, punctuation: Punctuation, lane: int = 0) -> None:
        self.writer.write_with_metadata(rows(0, 0), BatchTag(lane, start, punctuation).to_bytes())

    def ack(self) -> Ack:
        return Ack.from_bytes(self.reader.read())

    def ack_up_to(self, end: int, lane: int = 0) -> None:
        """Reads acknowledgements until one of that lane covers ``end``."""
        while True:
            ack = self.ack()
            if ack.lane == lane and ack.end >= end:
                return

    def end(self) -> None:
        self.writer.done_writing()

    def close(self) -> None:
        self.writer.close()
