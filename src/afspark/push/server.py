"""The Flight side of a receiver: calls become messages, errors become answers, and none of them ends the server."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from afspark.errors import AfsparkError
from afspark.push.directory import flight_info
from afspark.push.entries import Handout
from afspark.push.errors import PushError, WireError, to_flight
from afspark.push.hub import Hub
from afspark.push.putstream import PutStream
from afspark.push.wire import (
    ATTACH,
    BYE,
    CONFIRM,
    HELLO,
    SETTLE,
    STATS,
    Attach,
    Bye,
    Confirm,
    EntryTag,
    Hello,
    Pull,
    Settle,
    Settled,
    Welcome,
)

_ACTIONS = {
    HELLO: "a producer introduces itself",
    BYE: "a producer's session is over",
    ATTACH: "a worker takes a lane",
    SETTLE: "a worker is about to make entries final",
    CONFIRM: "entries are final",
    STATS: "counters as JSON",
}


class FlightEndpoint(flight.FlightServerBase):  # type: ignore[misc]
    """Serves a hub. It listens as soon as it is made; every call runs in a thread of Flight's."""

    def __init__(self, hub: Hub, location: str, stats: Callable[[], dict[str, Any]], **options: Any) -> None:
        super().__init__(location, **options)
        self._hub = hub
        self._stats = stats
        self._empty = _empty(hub.schema)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._answering(), self._hub.stream():
            PutStream(self._hub, context, descriptor, reader, writer).run()

    def do_get(self, context: Any, ticket: Any) -> Any:
        with self._answering():
            message = Pull.from_bytes(ticket.ticket)
            handouts = self._hub.lane(message.lane).pull(message, lambda: not context.is_cancelled())
            return flight.GeneratorStream(self._hub.schema, self._stream(handouts))
        raise AssertionError  # _answering never swallows

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """No other place: whoever asks sends here."""
        return flight_info(self._hub.schema, descriptor, ())

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """The schema that producers must send; for clients that want to know."""
        return flight.SchemaResult(self._hub.schema)

    def do_action(self, context: Any, action: Any) -> list[Any]:
        with self._answering():
            body = b"" if action.body is None else action.body.to_pybytes()
            answer = self._act(action.type, body, lambda: not context.is_cancelled())
            return [flight.Result(pa.py_buffer(answer))]
        raise AssertionError  # _answering never swallows

    def list_actions(self, context: Any) -> list[Any]:
        return list(_ACTIONS.items())

    def _act(self, kind: str, body: bytes, alive: Callable[[], bool]) -> bytes:
        if kind == HELLO:
            return self._hello(Hello.from_bytes(body)).to_bytes()
        if kind == BYE:
            self._bye(Bye.from_bytes(body), alive)
            return b"{}"
        if kind == ATTACH:
            attach = Attach.from_bytes(body)
            return self._hub.lane(attach.lane).attach(attach).to_bytes()
        if kind == SETTLE:
            settle = Settle.from_bytes(body)
            return Settled(self._hub.lane(settle.lane).settle(settle)).to_bytes()
        if kind == CONFIRM:
            confirm = Confirm.from_bytes(body)
            self._hub.lane(confirm.lane).confirm(confirm)
            return b"{}"
        if kind == STATS:
            return json.dumps(self._stats()).encode()
        raise WireError(f"There is no action {kind[:40]!r}.", what="action")

    def _hello(self, hello: Hello) -> Welcome:
        hub = self._hub
        hub.registry.admit(hello.producer, hello.id)
        for number, end in hello.acked.items():
            if end and number in hub.lanes:
                hub.lanes[number].mark(hello.id, end)
        ends = {number: lane.received(hello.id) for number, lane in hub.lanes.items()}
        received = {number: end for number, end in ends.items() if end}
        return Welcome(tuple(sorted(hub.lanes)), hub.unacked, hub.largest_batch, received)

    def _bye(self, bye: Bye, alive: Callable[[], bool]) -> None:
        # It ends on all lanes, also on those it does not name.
        for number, lane in self._hub.lanes.items():
            if number in bye.ends or lane.received(bye.id) is not None:
                lane.finish(bye.id, bye.ends.get(number, 0), alive)
        self._hub.registry.leave(bye.id)

    def _stream(self, handouts: list[Handout]) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        for handout in handouts:
            record = handout.record
            tag = EntryTag(record.producer, record.start, handout.logged, record.punctuation, record.mark)
            yield self._empty if record.batch is None else record.batch, tag.to_bytes()

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except AfsparkError as error:
            self._hub.count_refusal(type(error).__name__)
            raise to_flight(error) from error
        except UnicodeDecodeError as error:
            # Flight leaves the names of columns and actions to be decoded when they are looked at.
            self._hub.count_refusal(WireError.__name__)
            raise to_flight(WireError("A name is not UTF-8.", what="utf-8")) from error
        except (pa.ArrowException, OSError):
            # The connection broke, or Flight could not make sense of what came.
            self._hub.count_refusal("broken")
            raise
        except Exception as error:
            self._hub.count_refusal("internal")
            raise to_flight(PushError(f"The receiver failed: {type(error).__name__}: {error}.")) from error


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], column.type) for column in schema], schema=schema)


def sever(port: int) -> int:
    """Shuts down this process's connections that were accepted on ``port``; how many.

    Flight's own shutdown waits for every call to end, and a producer that has nothing to say never ends its own.
    """
    severed = 0
    for name in os.listdir("/dev/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            connection = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with connection, contextlib.suppress(OSError):
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] == port:
                connection.getpeername()
                connection.shutdown(socket.SHUT_RDWR)
                severed += 1
    return severed
