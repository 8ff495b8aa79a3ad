"""Which loopback addresses this machine has."""

from __future__ import annotations

import socket

import pytest


def has_ipv6() -> bool:
    """Whether ``::1`` can be bound."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address")
