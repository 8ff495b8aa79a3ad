"""Why a receiver cannot be reached, in words: what gRPC says, and what to do about it."""

from __future__ import annotations

import re
from typing import NamedTuple


class Unreachable(NamedTuple):
    """A reason that goes on a sentence, and a remedy that is a sentence."""

    reason: str
    remedy: str


_ASK_TRUST = "Trust the certificate file that the receiver was started with (afspark send: --tls-ca FILE)."

#: What is found in gRPC's text; the first that is counts.
_KNOWN = {
    "certificate has expired": Unreachable(
        "its certificate has expired", "Give the receiver a certificate that is valid now, and start it again."
    ),
    "certificate is not yet valid": Unreachable(
        "its certificate is not valid yet", "Check the clocks of both hosts, and from when on the certificate is valid."
    ),
    "is not in peer certificate": Unreachable(
        "its certificate does not name the host of this address",
        "Use a host name that the certificate has, or give the receiver a certificate that names the host.",
    ),
    "certificate verify failed": Unreachable("its certificate is signed by nobody who is trusted here", _ASK_TRUST),
    "wrong version number": Unreachable(
        "it does not speak TLS, and TLS was asked for",
        "Leave the root certificates (afspark send: --tls-ca) and grpc+tls:// away, "
        "or start the receiver with a certificate and its key.",
    ),
    "failed to connect.*(socket closed|connection reset)": Unreachable(
        "it closed the connection at once, as a receiver with TLS does when a caller comes without",
        f"If it has TLS: {_ASK_TRUST[0].lower()}{_ASK_TRUST[1:]}",
    ),
    "empty address list": Unreachable(
        "gRPC could not use the root certificates", "Give a file with certificates in PEM format."
    ),
    "connection refused": Unreachable("connection refused", "Check that it runs, and the address."),
    "deadline exceeded": Unreachable(
        "no answer in time", "Check that it runs, the address, and that no firewall is between."
    ),
    "name or service not known|domain name not found": Unreachable("its host name is not known", "Check the address."),
}


def why_unreachable(text: str) -> Unreachable:
    """The reason behind the text of an error of gRPC's; its first line where nothing better is known.

    >>> why_unreachable("Ssl handshake failed: certificate verify failed: certificate has expired").reason
    'its certificate has expired'
    """
    for pattern, known in _KNOWN.items():
        if re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            return known
    first = (text.strip().splitlines() or ["it gave no reason"])[0]
    return Unreachable(first.rstrip("."), "Check that it runs and that address, token and certificates are right.")
