"""The Flight side of a receiver: calls become messages, errors become answers, and none of them ends the server."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
from typing import Any

import pyarrow as pa
from pyarrow import flight

from afspark.push.receiver.answers import Unserved, answering
from afspark.push.receiver.calls import ACTIONS, ReceiverCalls, action_of
from afspark.push.receiver.directory import flight_info
from afspark.push.receiver.put_stream import PutStream
from afspark.push.wire.security import Role, Security, check_role
from afspark.push.wire.worker_messages import Pull

_SEVER_SECONDS = 0.2


class FlightEndpoint(Unserved):
    """Serves a receiver's calls. It listens as soon as it is made; every call runs in a thread of Flight's."""

    def __init__(self, calls: ReceiverCalls, location: str, security: Security, worker_secret: str) -> None:
        super().__init__(
            location, tls_certificates=security.certificates(), middleware=security.middleware(worker_secret)
        )
        self._calls = calls
        self._context = calls.context

    def stop(self, timeout: float) -> None:
        """Stops listening, and ends all calls within ``timeout`` seconds."""
        shutting = threading.Thread(target=self.shutdown, name="afspark-receiver-stop", daemon=True)
        shutting.start()
        deadline = time.monotonic() + timeout
        shutting.join(_SEVER_SECONDS)
        while shutting.is_alive() and time.monotonic() < deadline:
            sever(self.port)
            shutting.join(_SEVER_SECONDS)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._answering(), self._context.stream():
            check_role(context, Role.PRODUCER)
            PutStream(self._context, context, descriptor, reader, writer).run()

    def do_get(self, context: Any, ticket: Any) -> Any:
        with self._answering():
            check_role(context, Role.WORKER)
            pulled = self._calls.pull(Pull.from_bytes(ticket.ticket), lambda: not context.is_cancelled())
            return flight.GeneratorStream(self._context.schema, ((batch, tag.to_bytes()) for batch, tag in pulled))
        raise AssertionError  # _answering never swallows

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """No other place: whoever asks sends here."""
        with self._answering():
            return flight_info(self._context.schema, descriptor, ())
        raise AssertionError  # _answering never swallows

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """The schema that producers must send; for clients that want to know."""
        return flight.SchemaResult(self._context.schema)

    def do_action(self, context: Any, action: Any) -> list[Any]:
        with self._answering():
            expected = action_of(action.type)
            if expected.role is not None:
                check_role(context, expected.role)
            body = b"" if action.body is None else action.body
            message = None if expected.message is None else expected.message.from_bytes(body)
            answer = self._calls.act(action.type, message, lambda: not context.is_cancelled())
            return [flight.Result(pa.py_buffer(answer.to_bytes()))]
        raise AssertionError  # _answering never swallows

    def list_actions(self, context: Any) -> list[Any]:
        return [(kind, action.about) for kind, action in ACTIONS.items()]

    def _answering(self) -> contextlib.AbstractContextManager[None]:
        return answering(self._context.count_refusal)


def sever(port: int) -> int:
    """How many of this process's connections were accepted on ``port``; they are shut down.

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
