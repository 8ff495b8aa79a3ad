"""The one client of Arrow Flight: producers and workers make their calls with it.

It sets the channel up, sends one message with each call and reads the answer, and turns whatever Flight raises into
an error of ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
from pyarrow import flight

from afspark.push.wire.messages import Message, PutHeader
from afspark.push.wire.push_errors import from_flight
from afspark.push.wire.transport import Headers, M
from afspark.push.wire.worker_messages import EntryTag, Pull

#: What Flight raises when a call fails.
FLIGHT_ERRORS = (pa.ArrowException, OSError)

_CHANNELS = {
    # A worker keeps its connection, and finds a receiver that was restarted again at once.
    True: [
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.use_local_subchannel_pool", 1),
    ],
    False: [
        # A channel of its own for every attempt: a shared one would keep gRPC's growing pauses between attempts.
        ("grpc.use_local_subchannel_pool", 1),
        # A host that vanished without a word is noticed after 20 s with data under way, else after some minutes;
        # servers refuse clients that ask more often.
        ("grpc.keepalive_time_ms", 310_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ],
}


class FlightConnection:
    """A client of the server at ``address``. ``headers`` go with every call.

    ``reconnects``: the connection is kept over restarts of the server. Otherwise it is one attempt, and whoever made
    it makes another one when it has failed.
    """

    def __init__(
        self, address: str, *, root_certs: bytes | None = None, headers: Headers = (), reconnects: bool = False
    ) -> None:
        self.address = address
        self._headers = list(headers)
        with self.translated():
            self._client = flight.connect(address, tls_root_certs=root_certs, generic_options=_CHANNELS[reconnects])

    def act(self, kind: str, message: Message | None, answer: type[M], *, seconds: float) -> M:
        action = flight.Action(kind, b"" if message is None else message.to_bytes())
        with self.translated():
            (result,) = self._client.do_action(action, self._options(seconds))
        return answer.from_bytes(result.body)

    def pull(self, ticket: Pull, *, seconds: float) -> list[tuple[pa.RecordBatch, EntryTag]]:
        with self.translated():
            chunks = list(self._client.do_get(flight.Ticket(ticket.to_bytes()), self._options(seconds)))
        return [(chunk.data, EntryTag.from_bytes(chunk.app_metadata)) for chunk in chunks]

    def schema(self, header: PutHeader, *, seconds: float) -> pa.Schema:
        """The schema of the items that the server takes."""
        with self.translated():
            return self._client.get_schema(_descriptor(header), self._options(seconds)).schema

    def places(self, header: PutHeader, *, seconds: float) -> list[str]:
        """The addresses of the receivers that a directory names; none if the server is no directory."""
        with self.translated():
            try:
                found = self._client.get_flight_info(_descriptor(header), self._options(seconds)).endpoints
            except pa.ArrowNotImplementedError:
                return []
        return [endpoint.locations[0].uri.decode() for endpoint in found]

    def put(self, header: PutHeader, schema: pa.Schema) -> tuple[Any, Any]:
        """The writer of a stream of batches, and the reader of what the server says about them."""
        with self.translated():
            return self._client.do_put(_descriptor(header), schema, self._options(None))

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Raises what Flight raises inside as an error of ours."""
        try:
            yield
        except FLIGHT_ERRORS as error:
            raise from_flight(error, self.address) from error

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _options(self, seconds: float | None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=seconds, headers=self._headers)


@dataclass(frozen=True)
class FlightTransport:
    """Connects workers with Arrow Flight."""

    def connect(self, address: str, *, root_certs: bytes | None, headers: Headers) -> FlightConnection:
        return FlightConnection(address, root_certs=root_certs, headers=headers, reconnects=True)


def _descriptor(header: PutHeader) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(header.to_bytes())
