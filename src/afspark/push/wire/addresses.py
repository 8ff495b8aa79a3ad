"""Addresses as people write them: HOST:PORT, where an IPv6 address stands in brackets (RFC 3986, section 3.2.2)."""

from __future__ import annotations

import ipaddress

LAST_PORT = 65_535


def split_address(text: str) -> tuple[str, int]:
    """Host, without brackets, and port. ValueError if it is not clear which is which.

    >>> split_address("localhost:514"), split_address("[::1]:514")
    (('localhost', 514), ('::1', 514))
    >>> split_address("::1:514")
    Traceback (most recent call last):
    ValueError: an IPv6 address needs brackets, as in [::1]:5000
    """
    host, _, port = text.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) <= LAST_PORT):
        raise ValueError("must be HOST:PORT, as in localhost:5000")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        ipaddress.IPv6Address(host)
    elif ":" in host:
        raise ValueError("an IPv6 address needs brackets, as in [::1]:5000")
    return host, int(port)


def bracketed(host: str) -> str:
    """The host as it stands before a port.

    >>> bracketed("::1"), bracketed("[::1]"), bracketed("localhost")
    ('[::1]', '[::1]', 'localhost')
    """
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def join_address(host: str, port: int) -> str:
    """The inverse of `split_address`."""
    return f"{bracketed(host)}:{port}"
