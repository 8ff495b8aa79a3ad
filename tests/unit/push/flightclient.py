"""A producer made of nothing but a Flight client: what any program could send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import flight

from afspark.push.wire.messages import BYE, HELLO, Ack, BatchTag, Bye, Hello, PunctuationMark, PutHeader, Welcome

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def rows(start: int, count: int) -> pa.RecordBatch:
    numbers = range(start, start + count)
    return pa.record_batch([list(numbers), [f"item {number}" for number in numbers]], schema=SCHEMA)


class Client:
    """One session on one connection; every call is the protocol's own."""

    def __init__(self, address: str, name: str = "p", session: str = "", **options: Any) -> None:
        headers, timeout = options.pop("headers", []), options.pop("timeout", 20)
        self.address, self.name, self.session = address, name, session
        #: of each lane, what the newest acknowledgement said
        self.acked: dict[int, int] = {}
        self.receipts: dict[int, str] = {}
        self.flight = flight.connect(address, generic_options=[("grpc.use_local_subchannel_pool", 1)], **options)
        self.options = flight.FlightCallOptions(timeout=timeout, headers=headers)

    @property
    def id(self) -> str:
        return f"{self.name}/{self.session}"

    def again(self, address: str) -> Client:
        """The same session on another connection."""
        other = Client(address, self.name, self.session)
        other.acked, other.receipts = self.acked, self.receipts
        return other

    def act(self, kind: str, body: bytes) -> bytes:
        (result,) = self.flight.do_action(flight.Action(kind, body), self.options)
        return result.body.to_pybytes()

    def hello(self, acked: Mapping[int, int] | None = None) -> Welcome:
        """Says hello with what was acknowledged, or with what is given as such."""
        hello = Hello(self.name, self.session, self.acked if acked is None else acked, self.receipts)
        welcome = Welcome.from_bytes(self.act(HELLO, hello.to_bytes()))
        self.session = welcome.session
        return welcome

    def bye(self, ends: Mapping[int, int]) -> None:
        self.act(BYE, Bye(self.name, self.session, ends, self.receipts).to_bytes())

    def stream(self, schema: pa.Schema = SCHEMA, command: bytes | None = None) -> Stream:
        """A stream of the session, which it begins if need be; or one with another command."""
        if command is None:
            if not self.session:
                self.hello()
            command = PutHeader(self.name, self.session, self.acked, self.receipts).to_bytes()
        return Stream(self, self.flight.do_put(flight.FlightDescriptor.for_command(command), schema, self.options))

    def close(self) -> None:
        self.flight.close()


class Stream:
    """An open DoPut."""

    def __init__(self, client: Client, pair: tuple[Any, Any]) -> None:
        self.client = client
        self.writer, self.reader = pair

    def send(self, start: int, count: int, lane: int = 0) -> None:
        self.writer.write_with_metadata(rows(start, count), BatchTag(lane, start).to_bytes())

    def punctuate(self, start: int, punctuation: PunctuationMark, lane: int = 0) -> None:
        self.writer.write_with_metadata(rows(0, 0), BatchTag(lane, start, punctuation).to_bytes())

    def ack(self) -> Ack:
        ack = Ack.from_bytes(self.reader.read())
        self.client.acked[ack.lane], self.client.receipts[ack.lane] = ack.end, ack.receipt
        return ack

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
