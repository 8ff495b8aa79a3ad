"""Whether the workers of a query will accept its receivers' certificate: found out before anything starts.

A worker that does not accept it would take the receiver for one that is away, and wait.
"""

from __future__ import annotations

import logging
import ssl
import time

from afspark.errors import AfsparkError, UsageError
from afspark.push.consumer.lane_client import LaneClient
from afspark.push.wire.security import Access, Security

LOG = logging.getLogger("afspark")

#: a certificate that ends within so many days is worth a warning
SOON_DAYS = 14
_DAY_SECONDS = 86_400
_REACH_SECONDS = 10.0


def check_certificate(security: Security | None, host: str) -> None:
    """`UsageError` unless the key is the certificate's and workers that trust its file accept it for ``host`` now.

    Warns if it will not be valid for long. Nothing is sent anywhere: both ends of the handshake are here.
    """
    if security is None or security.cert_file is None or security.key_file is None:
        return
    host = host.strip("[]")
    try:
        server, client = _contexts(security.cert_file, security.key_file)
        ends = _handshake(server, client, host)
    except ssl.SSLCertVerificationError as error:
        raise _refused(security.cert_file, host, error.verify_message) from error
    except (ssl.SSLError, OSError) as error:
        raise _refused(security.cert_file, host, getattr(error, "reason", None) or error.strerror or error) from error
    days = (ends - time.time()) / _DAY_SECONDS
    if days < SOON_DAYS:
        LOG.warning("The certificate %s is valid for %.1f more days.", security.cert_file, days)


def check_reachable(address: str, lane: int, access: Access) -> None:
    """`UsageError` unless a worker could talk to the receiver at ``address``: by a real call, as workers make them."""
    try:
        with LaneClient(address, lane, access=access, timeout=_REACH_SECONDS) as client:
            client.stats()
    except AfsparkError as error:
        raise UsageError(
            f"Workers cannot talk to the receiver at {address}: {error.message}",
            remedy="Check that the certificate is valid for that address, and that the address is one of this host's.",
            address=address,
        ) from error


def _contexts(cert_file: str, key_file: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Without a password for the key, rather than asking for one on the terminal.
    server.load_cert_chain(cert_file, key_file, password="")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cert_file)
    # As gRPC does: the file may hold the receiver's certificate without the one that signed it.
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return server, client


def _handshake(server_context: ssl.SSLContext, client_context: ssl.SSLContext, host: str) -> float:
    """The time at which the certificate that the client has accepted ends."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    found = client.getpeercert()
    assert found is not None
    return float(ssl.cert_time_to_seconds(str(found["notAfter"])))


def _refused(path: str, host: str, reason: object) -> UsageError:
    return UsageError(
        f"Workers would not accept the certificate {path} for {host}: {str(reason).rstrip('.')}.",
        remedy="Give a certificate that is valid now and names that host, with its own key.",
        path=path,
        host=host,
        reason=str(reason),
    )
