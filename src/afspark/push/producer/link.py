"""A producer's connection to a receiver: address, token and certificates, and one stream of batches with its acks."""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from afspark.errors import AfsparkError, UsageError
from afspark.push.producer.unacked import Piece
from afspark.push.wire.addresses import split_address
from afspark.push.wire.flight_connection import FLIGHT_ERRORS, FlightConnection
from afspark.push.wire.messages import AUTHORIZATION, BEARER, Ack, PutHeader
from afspark.push.wire.push_errors import ReceiverStopped, ReceiverUnreachable
from afspark.push.wire.unreachable import Unreachable

CALL_SECONDS = 10.0


def location_of(address: str, *, tls: bool) -> str:
    """The address as Flight wants it.

    >>> location_of("localhost:7000", tls=False), location_of("grpc+tls://[::1]:1", tls=True)
    ('grpc://localhost:7000', 'grpc+tls://[::1]:1')
    """
    scheme, mark, rest = address.rpartition("://")
    if mark and scheme not in {"grpc", "grpc+tcp", "grpc+tls"}:
        raise UsageError(f"{address!r} is no address of a receiver.", remedy="Write HOST:PORT or grpc+tls://HOST:PORT.")
    try:
        _, port = split_address(rest)
    except ValueError as error:
        raise UsageError(
            f"{address!r} is no address with a port: {error}.", remedy="Write HOST:PORT or [IPV6]:PORT."
        ) from error
    if not port:
        raise UsageError(f"{address!r} has no port.", remedy="Write HOST:PORT, as in localhost:7000.")
    return f"{scheme or ('grpc+tls' if tls else 'grpc')}://{rest}"


@dataclass(frozen=True)
class Dial:
    """Where a receiver is and what it wants to see. ``root_certificates``: PEM text or the path of a file with it."""

    address: str
    token: str | None = field(default=None, repr=False)
    root_certificates: bytes | str | Path | None = None

    def __post_init__(self) -> None:
        location_of(self.address, tls=False)

    def open(self) -> FlightConnection:
        """A connection to the receiver; nothing is sent before its first call."""
        roots = self.root_certificates
        if isinstance(roots, str | Path):
            try:
                roots = Path(roots).read_bytes()
            except OSError as error:
                raise UsageError(
                    f"The certificates in {self.root_certificates!s} cannot be read: {error.strerror}.",
                    remedy="Check the path and its permissions.",
                ) from error
        location = location_of(self.address, tls=roots is not None)
        headers = [] if self.token is None else [(AUTHORIZATION, BEARER + self.token.encode())]
        return FlightConnection(location, root_certs=roots, headers=headers)


def may_pass(error: AfsparkError) -> bool:
    """Whether another attempt may succeed: the receiver is away, rather than of another opinion."""
    return isinstance(error, ReceiverUnreachable | ReceiverStopped)


def why_away(error: AfsparkError) -> Unreachable:
    """The reason why there is no connection, and what to do, of an error that `may_pass`."""
    reason = error.fields.get("reason") or error.message[0].lower() + error.message[1:].rstrip(".")
    return Unreachable(reason, error.remedy)


def fetch_schema(dial: Dial, timeout: float = CALL_SECONDS) -> pa.Schema:
    """The schema of the items that a receiver takes."""
    with dial.open() as connection:
        return connection.schema(PutHeader("schema"), seconds=timeout)


def found_by(dial: Dial, name: str) -> Dial:
    """Where a producer of that name sends to: the receiver itself, or one that its directory names.

    A session is bound to the lanes of one receiver, so the choice depends on the name alone.
    """
    with dial.open() as connection:
        places = connection.places(PutHeader(name), seconds=CALL_SECONDS)
    return replace(dial, address=places[zlib.crc32(name.encode()) % len(places)]) if places else dial


class PutConnection:
    """One stream of batches. A thread of its own reads acknowledgements, and calls ``ended`` whatever the end was."""

    def __init__(
        self,
        connection: FlightConnection,
        header: PutHeader,
        schema: pa.Schema,
        *,
        acknowledged: Callable[[Ack], None],
        ended: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._writer, self._reader = connection.put(header, schema)
        self._acknowledged, self._ended = acknowledged, ended
        self._error: AfsparkError | None = None
        self.over = False
        self._thread = threading.Thread(target=self._read, name="afspark-acks", daemon=True)
        self._thread.start()

    def write(self, piece: Piece) -> None:
        try:
            with self._connection.translated():
                self._writer.write_with_metadata(piece.batch, piece.tag)
        except AfsparkError as error:
            # The receiver's own word, if there is one, rather than that the pipe broke.
            self._thread.join(CALL_SECONDS)
            raise self._error or error from None

    def check(self) -> None:
        """Raises what ended the stream, if it is over."""
        if self._error is not None:
            raise self._error
        if self.over:
            # Acknowledgements that end say nothing of why they end: only closing the stream does.
            with self._connection.translated():
                self._writer.close()
            raise ReceiverStopped("The stream was ended.")

    def finish(self) -> None:
        """Ends the stream in order and waits for the receiver to end it too."""
        with self._connection.translated():
            self._writer.done_writing()
            self._thread.join(CALL_SECONDS)
            if self._error is not None:
                raise self._error
            if self.over:
                self._writer.close()

    def drop(self) -> None:
        """Ends the stream without waiting for anything."""
        with contextlib.suppress(*FLIGHT_ERRORS):
            self._writer.done_writing()

    def _read(self) -> None:
        try:
            with self._connection.translated():
                while (buffer := self._reader.read()) is not None:
                    self._acknowledged(Ack.from_bytes(buffer))
        except AfsparkError as error:
            self._error = error
        finally:
            self.over = True
            self._ended()
