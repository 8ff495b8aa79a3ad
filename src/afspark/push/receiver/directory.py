"""Tells producers where the receivers of a source are, when those run somewhere else and may move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import flight

from afspark.errors import UsageError, first_line
from afspark.push.receiver.answers import Unserved, answering
from afspark.push.wire.addresses import join_address
from afspark.push.wire.push_errors import ReceiverUnreachable
from afspark.push.wire.security import Security, check_exposure


class Directory(Unserved):
    """Answers Flight's ``get_flight_info`` with one endpoint per receiver, in a fixed order.

    ``addresses`` is asked for every call. Listens as soon as it is made.
    """

    remedy = "This is a directory: ask for its flight info, and send to a receiver that it names."

    def __init__(
        self,
        schema: pa.Schema,
        addresses: Callable[[], Sequence[str]],
        *,
        host: str,
        port: int,
        security: Security | None = None,
    ) -> None:
        check_exposure(host, security)
        security = security or Security()
        scheme = "grpc+tls" if security.tls else "grpc"
        place = join_address(host, port)
        try:
            super().__init__(
                f"{scheme}://{place}",
                tls_certificates=security.certificates(),
                middleware=security.middleware(),
            )
        except (pa.ArrowException, OSError) as error:
            raise UsageError(
                f"The directory of receivers cannot listen at {place}: {first_line(error)}.",
                remedy="Choose a free port, 0 for any, and an address of this host.",
                host=host,
                port=port,
            ) from error
        self._schema, self._addresses = schema, addresses
        self.address = f"{scheme}://{join_address(host, self.port)}"

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        return flight.SchemaResult(self._schema)

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with answering():
            addresses = self._addresses()
            if not addresses:
                raise ReceiverUnreachable("No receiver is up.", remedy="Try again.", address=self.address)
            return flight_info(self._schema, descriptor, addresses)
        raise AssertionError  # answering never swallows


def flight_info(schema: pa.Schema, descriptor: Any, addresses: Sequence[str]) -> Any:
    """The answer that says where to send to."""
    endpoints = [flight.FlightEndpoint(b"", [address]) for address in addresses]
    return flight.FlightInfo(schema, descriptor, endpoints, -1, -1)
