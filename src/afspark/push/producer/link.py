"""A producer's connection to a receiver: address, token and certificates, and one stream of batches with its acks."""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from afspark.errors import AfsparkError, UsageError
from afspark.push.producer.unacked import Piece
from afspark.push.wire.addresses import split_address
from afspark.push.wire.messages import AUTHORIZATION, BEARER, BYE, HELLO, Ack, Bye, Hello, PutHeader, Welcome
from afspark.push.wire.push_errors import NotAllowed, PushError, ReceiverStopped, ReceiverUnreachable, from_flight

CALL_SECONDS = 10.0

_CHANNEL = [
    # A channel of its own for every attempt: a shared one would keep gRPC's growing pauses between attempts.
    ("grpc.use_local_subchannel_pool", 1),
    # A host that vanished without a word is noticed after 20 s with data under way, else after some minutes; servers
    # refuse clients that ask more often.
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 20_000),
]


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

    def open(self) -> Any:
        """A client; connects with its first call."""
        roots = self.root_certificates
        if isinstance(roots, str | Path):
            try:
                roots = Path(roots).read_bytes()
            except OSError as error:
                raise UsageError(
                    f"The certificates in {self.root_certificates!s} cannot be read: {error.strerror}."
                ) from error
        location = location_of(self.address, tls=roots is not None)
        return flight.FlightClient(location, tls_root_certs=roots, generic_options=_CHANNEL)

    def options(self, timeout: float | None = None) -> Any:
        headers = [] if self.token is None else [(AUTHORIZATION, BEARER + self.token.encode())]
        return flight.FlightCallOptions(timeout=timeout, headers=headers)

    def error(self, error: Exception) -> AfsparkError:
        """What a call failed with, as one of ours."""
        if isinstance(error, AfsparkError):
            return error
        if isinstance(error, pa.ArrowNotImplementedError):
            return PushError(f"What answers at {self.address} is no receiver of afspark.", remedy="Check the address.")
        told = from_flight(error, self.address)
        refused = isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError)
        # Some calls of pyarrow turn every status into a plain error and leave only its name.
        refused = refused or "Detail: Unauth" in str(error)
        if refused and isinstance(told, ReceiverUnreachable):
            return NotAllowed(f"The receiver at {self.address} refused the token.", remedy="Give the token it expects.")
        return told


def may_pass(error: AfsparkError) -> bool:
    """Whether another attempt may succeed: the receiver is away, rather than of another opinion."""
    return isinstance(error, ReceiverUnreachable | ReceiverStopped)


def short_reason(error: AfsparkError) -> str:
    """Why there is no connection, without gRPC's account of its attempts."""
    for reason in ("Connection refused", "Deadline Exceeded", "Name or service not known", "certificate verify failed"):
        if reason.lower() in error.message.lower():
            return reason[0].lower() + reason[1:]
    return error.message.rstrip(".")


def fetch_schema(dial: Dial, timeout: float = CALL_SECONDS) -> pa.Schema:
    """The schema of the items that a receiver takes."""
    client = dial.open()
    try:
        descriptor = flight.FlightDescriptor.for_command(PutHeader("schema").to_bytes())
        return client.get_schema(descriptor, dial.options(timeout)).schema
    except (pa.ArrowException, OSError) as error:
        raise dial.error(error) from error
    finally:
        client.close()


def found_by(dial: Dial, name: str) -> Dial:
    """Where a producer of that name sends to: the receiver itself, or one that its directory names.

    A session is bound to the lanes of one receiver, so the choice depends on the name alone.
    """
    client = dial.open()
    try:
        descriptor = flight.FlightDescriptor.for_command(PutHeader(name).to_bytes())
        endpoints = client.get_flight_info(descriptor, dial.options(CALL_SECONDS)).endpoints
    except pa.ArrowNotImplementedError:
        return dial
    finally:
        client.close()
    if not endpoints:
        return dial
    chosen = endpoints[zlib.crc32(name.encode()) % len(endpoints)]
    return replace(dial, address=chosen.locations[0].uri.decode())


def say_hello(client: Any, dial: Dial, message: Hello) -> Welcome:
    return Welcome.from_bytes(_act(client, dial, HELLO, message.to_bytes()))


def say_bye(client: Any, dial: Dial, message: Bye) -> None:
    _act(client, dial, BYE, message.to_bytes())


def _act(client: Any, dial: Dial, name: str, body: bytes) -> Any:
    results = list(client.do_action(flight.Action(name, body), dial.options(CALL_SECONDS)))
    return results[0].body if results else b""


class PutConnection:
    """One DoPut. A thread of its own reads acknowledgements; ``ended`` is called there, whatever the end was."""

    def __init__(
        self,
        client: Any,
        dial: Dial,
        header: PutHeader,
        schema: pa.Schema,
        *,
        acknowledged: Callable[[Ack], None],
        ended: Callable[[], None],
    ) -> None:
        descriptor = flight.FlightDescriptor.for_command(header.to_bytes())
        self._writer, self._reader = client.do_put(descriptor, schema, dial.options())
        self._acknowledged, self._ended = acknowledged, ended
        self._error: Exception | None = None
        self.over = False
        self._thread = threading.Thread(target=self._read, name="afspark-acks", daemon=True)
        self._thread.start()

    def write(self, piece: Piece) -> None:
        try:
            self._writer.write_with_metadata(piece.batch, piece.tag)
        except (pa.ArrowException, OSError) as error:
            self.check(error)

    def check(self, error: Exception | None = None) -> None:
        """Raises what ended the stream: the receiver's own word if there is one, rather than that the pipe broke."""
        if error is not None:
            self._thread.join(CALL_SECONDS)
        told = self._error or error
        if told is not None:
            raise told
        if self.over:
            raise flight.FlightUnavailableError("the stream was ended")

    def finish(self) -> None:
        """Ends the stream in order and waits for the receiver to end it too."""
        self._writer.done_writing()
        self._thread.join(CALL_SECONDS)
        if self._error is not None:
            raise self._error
        if self.over:
            self._writer.close()

    def drop(self) -> None:
        """Ends the stream without waiting for anything."""
        with contextlib.suppress(pa.ArrowException, OSError):
            self._writer.done_writing()

    def _read(self) -> None:
        try:
            while (buffer := self._reader.read()) is not None:
                self._acknowledged(Ack.from_bytes(buffer))
        except (pa.ArrowException, OSError, AfsparkError) as error:
            self._error = error
        finally:
            self.over = True
            self._ended()
