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

from afspark.push.receiver.answers import Unserved, answering
from afspark.push.receiver.call_context import CallContext
from afspark.push.receiver.directory import flight_info
from afspark.push.receiver.lane_entries import Handout
from afspark.push.receiver.put_stream import PutStream
from afspark.push.wire.batches import no_rows
from afspark.push.wire.messages import (
    ATTACH,
    BYE,
    CONFIRM,
    HELLO,
    SETTLE,
    STATS,
    WAITING,
    Bye,
    Hello,
    Welcome,
    producer_id,
)
from afspark.push.wire.push_errors import SessionOver, WireError
from afspark.push.wire.security import Role, check_role
from afspark.push.wire.worker_messages import Attach, Confirm, EntryTag, Pull, Settled, StopLogging

_ACTIONS = {
    HELLO: "a producer introduces itself",
    BYE: "a producer's session is over",
    WAITING: "whether there is anything for workers",
    ATTACH: "a worker takes a lane",
    SETTLE: "a worker is about to make entries final",
    CONFIRM: "entries are final",
    STATS: "counters as JSON",
}
_FOR_PRODUCERS = (HELLO, BYE)
_FOR_WORKERS = (ATTACH, SETTLE, CONFIRM, STATS)


class FlightEndpoint(Unserved):
    """Serves a hub. It listens as soon as it is made; every call runs in a thread of Flight's."""

    def __init__(
        self, context: CallContext, location: str, stats: Callable[[], dict[str, Any]], **options: Any
    ) -> None:
        super().__init__(location, **options)
        self._hub = context
        self._stats = stats
        self._empty = no_rows(context.schema)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._answering(), self._hub.stream():
            check_role(context, Role.PRODUCER)
            PutStream(self._hub, context, descriptor, reader, writer).run()

    def do_get(self, context: Any, ticket: Any) -> Any:
        with self._answering():
            check_role(context, Role.WORKER)
            message = Pull.from_bytes(ticket.ticket)
            handouts = self._hub.lane(message.lane).pull(message, lambda: not context.is_cancelled())
            return flight.GeneratorStream(self._hub.schema, self._stream(handouts))
        raise AssertionError  # _answering never swallows

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """No other place: whoever asks sends here."""
        with self._answering():
            return flight_info(self._hub.schema, descriptor, ())
        raise AssertionError  # _answering never swallows

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """The schema that producers must send; for clients that want to know."""
        return flight.SchemaResult(self._hub.schema)

    def do_action(self, context: Any, action: Any) -> list[Any]:
        with self._answering():
            if action.type in _FOR_PRODUCERS:
                check_role(context, Role.PRODUCER)
            if action.type in _FOR_WORKERS:
                check_role(context, Role.WORKER)
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
            stop_logging = StopLogging.from_bytes(body)
            return Settled(self._hub.lane(stop_logging.lane).stop_logging(stop_logging)).to_bytes()
        if kind == CONFIRM:
            confirm = Confirm.from_bytes(body)
            return self._hub.lane(confirm.lane).confirm(confirm).to_bytes()
        if kind == STATS:
            return json.dumps(self._stats()).encode()
        if kind == WAITING:
            return json.dumps({"waiting": any(lane.waits() for lane in self._hub.lanes.values())}).encode()
        raise WireError(f"There is no action {kind[:40]!r}.", what="action")

    def _hello(self, hello: Hello) -> Welcome:
        context = self._hub
        session = context.enter(hello)
        ends = {number: lane.received(producer_id(hello.producer, session)) for number, lane in context.lanes.items()}
        received = {number: end for number, end in ends.items() if end}
        return Welcome(session, tuple(sorted(context.lanes)), context.unacked, context.largest_batch, received)

    def _bye(self, bye: Bye, alive: Callable[[], bool]) -> None:
        try:
            self._hub.enter(bye)
        except SessionOver:
            return  # it has said so before, and did not hear the answer
        # It ends on all lanes, also on those it does not name.
        for number, lane in self._hub.lanes.items():
            lane.finish(bye.id, bye.acked.get(number, 0), alive)
        self._hub.registry.leave(bye.id)

    def _stream(self, handouts: list[Handout]) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        for handout in handouts:
            record = handout.record
            tag = EntryTag(record.producer, record.start, handout.logged, record.punctuation, record.mark)
            yield self._empty if record.batch is None else record.batch, tag.to_bytes()

    def _answering(self) -> contextlib.AbstractContextManager[None]:
        return answering(self._hub.count_refusal)


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
