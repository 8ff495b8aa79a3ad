"""Who may reach a receiver, and as what: producers with a token, workers with a secret of the query's own.

Tokens and certificates come from files, and nothing but loopback is served without both. The workers' secret is made
when receivers are started, kept in memory, and goes to receivers and tasks only.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pyarrow import flight

from afspark.errors import UsageError
from afspark.push.wire.flight_connection import FlightTransport
from afspark.push.wire.messages import AUTHORIZATION, BEARER
from afspark.push.wire.push_errors import NotAllowed, to_flight
from afspark.push.wire.transport import Connection, Transport

_SHORTEST_TOKEN = 16

#: under which name Flight's server keeps who calls
CALLER = "caller"


class Role(StrEnum):
    """What a caller may do: send items, or take and release them."""

    PRODUCER = "producer"
    WORKER = "worker"


def new_secret() -> str:
    """A secret for the workers of one start of a query."""
    return secrets.token_hex(32)


@dataclass(frozen=True, kw_only=True)
class Security:
    """What a receiver demands: a token, and TLS with a certificate and its key. Paths on the receiver's host."""

    token_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise UsageError(
                "TLS needs a certificate and its key.",
                remedy="Give both files, or none.",
                cert_file=self.cert_file,
                key_file=self.key_file,
            )

    @property
    def tls(self) -> bool:
        return self.cert_file is not None

    @property
    def guarded(self) -> bool:
        """Whether this is enough for other hosts to be let in."""
        return self.tls and self.token_file is not None

    def certificates(self) -> list[tuple[bytes, bytes]] | None:
        """What Flight's server takes as ``tls_certificates``."""
        if self.cert_file is None or self.key_file is None:
            return None
        return [(_read(self.cert_file, "certificate"), _read(self.key_file, "key"))]

    def middleware(self, worker_secret: str | None = None) -> dict[str, flight.ServerMiddlewareFactory]:
        """What Flight's server takes as ``middleware``; without a secret nobody is taken for a worker."""
        token = None if self.token_file is None else read_token(self.token_file)
        return {CALLER: CallerCheck(token, None if worker_secret is None else worker_secret.encode())}


@dataclass(frozen=True, kw_only=True)
class Access:
    """What a client shows and trusts: a token or the workers' secret, and the root certificates of the receiver's.

    ``transport``: by what it connects.
    """

    token_file: str | None = None
    root_certs_file: str | None = None
    worker_secret: str | None = field(default=None, repr=False)
    transport: Transport = field(default_factory=FlightTransport, repr=False)

    def connect(self, address: str) -> Connection:
        """A connection to the receiver at ``address``; nothing is sent before its first call."""
        roots = None if self.root_certs_file is None else _read(self.root_certs_file, "root certificates")
        return self.transport.connect(address, root_certs=roots, headers=self.headers())

    def headers(self) -> list[tuple[bytes, bytes]]:
        """What goes into the ``headers`` of every call's options."""
        if self.worker_secret is not None:
            return [(AUTHORIZATION, BEARER + self.worker_secret.encode())]
        return [] if self.token_file is None else [(AUTHORIZATION, BEARER + read_token(self.token_file))]


class Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """Who has made a call."""

    def __init__(self, role: Role) -> None:
        super().__init__()
        self.role = role


class CallerCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Finds out who calls. Without a ``token`` everybody is a producer who does not show the workers' ``secret``;
    with one, every other call is turned away.
    """

    def __init__(self, token: bytes | None, secret: bytes | None) -> None:
        super().__init__()
        credentials = {Role.WORKER: secret, Role.PRODUCER: token}
        self._expected = {role: BEARER + given for role, given in credentials.items() if given is not None}

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> Caller:
        shown = [value for name, values in headers.items() if name.lower() == "authorization" for value in values]
        for value in shown:
            given = value.encode() if isinstance(value, str) else bytes(value)
            for role, expected in self._expected.items():
                if hmac.compare_digest(given, expected):
                    return Caller(role)
        if Role.PRODUCER not in self._expected:
            return Caller(Role.PRODUCER)
        raise to_flight(
            NotAllowed(
                "The token is wrong." if shown else "A token is needed.",
                remedy="Give the file that holds the receiver's token.",
            )
        )


def check_role(context: Any, needed: Role) -> None:
    """`NotAllowed` unless the call was made by one of that role."""
    if context.get_middleware(CALLER).role is not needed:
        raise NotAllowed(
            f"Only {needed}s may do that.",
            remedy="Producers show the receiver's token if it has one; workers get their secret from the driver.",
        )


def check_exposure(host: str, security: Security | None) -> None:
    """`UsageError` if other hosts could reach a receiver at ``host`` without token and TLS."""
    if not is_loopback(host) and not (security is not None and security.guarded):
        raise UsageError(
            f"A receiver at {host} could be reached from other hosts without protection.",
            remedy="Give a token file, a certificate and its key, or bind it to 127.0.0.1.",
            host=host,
        )


def is_wildcard(host: str) -> bool:
    """Whether it stands for all addresses of a host, so that nobody can be told to connect to it.

    >>> is_wildcard("0.0.0.0"), is_wildcard("[::]"), is_wildcard("127.0.0.1"), is_wildcard("example.org")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only this host reaches that address.

    >>> is_loopback("127.0.0.2"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(path: str) -> bytes:
    """The token in a file, without white space around it; `UsageError` if it is too short to be one."""
    token = _read(path, "token").strip()
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or any(byte <= 32 for byte in token):
        raise UsageError(
            f"The token in {path} must have at least {_SHORTEST_TOKEN} printable ASCII characters.",
            remedy="Make one with: python -c 'import secrets; print(secrets.token_hex(32))'",
            path=path,
        )
    return token


def _read(path: str, what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"The {what} file {path} cannot be read: {error.strerror}.",
            remedy="Check the path and its permissions.",
            path=path,
        ) from error
