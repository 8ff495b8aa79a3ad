"""Networks for hosts of this machine: one that can be cut and tells what every host has sent, and the loopback one.

With namespaces each host has an interface of its own, a port of a bridge in this one. That needs the rights of root and
the tools ``ip`` and ``bridge``; without them hosts are addresses of the loopback interface, which cannot be cut.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from afspark.cluster.loopback.loopback_cluster import host_names
from afspark.cluster.loopback.loopback_hosts import MASTER

_DISABLED, _FORWARDING = "0", "3"
_INTERFACE = "eth0"
_STATISTICS = Path("/sys/class/net")


class HostNetwork(Protocol):
    """What the hosts of an experiment are connected by."""

    @property
    def hosts(self) -> Sequence[str]:
        """Their addresses."""

    @property
    def driver(self) -> str:
        """The address of the driver and the master."""

    @property
    def launcher(self) -> Sequence[str]:
        """What stands before the command of a host, with its address for ``{host}``."""

    @property
    def can_cut(self) -> bool:
        """Whether hosts can be cut off, and bytes are counted for each of them."""

    def cut(self, host: str) -> None:
        """Drops all packets from and to a host, and tells nobody."""

    def mend(self, host: str) -> None:
        """Lets packets through again."""

    def received(self, host: str) -> int:
        """Bytes that came to a host over the network since it was made; 0 where nobody counts."""

    def sent(self, host: str) -> int:
        """Bytes that a host has sent, likewise."""


@dataclass(frozen=True)
class LoopbackNetwork:
    """Addresses of the loopback interface."""

    hosts: Sequence[str]
    driver: str = MASTER
    launcher: Sequence[str] = ()
    can_cut: bool = False

    def cut(self, host: str) -> None:
        raise NotImplementedError("the loopback interface cannot be cut")

    def mend(self, host: str) -> None:
        """Nothing was cut."""

    def received(self, host: str) -> int:
        return 0

    def sent(self, host: str) -> int:
        return 0


@dataclass(frozen=True)
class BridgedNetwork:
    """Namespaces with one interface each, all of them ports of a bridge. Names carry ``number``, as others may exist."""

    count: int
    number: int
    can_cut: bool = True

    @property
    def hosts(self) -> Sequence[str]:
        return tuple(self._address(place) for place in self._places)

    @property
    def driver(self) -> str:
        return self._address(1)

    @property
    def launcher(self) -> Sequence[str]:
        return ("ip", "netns", "exec", f"{self._prefix}-{{host}}")

    @property
    def _prefix(self) -> str:
        return f"afspark{self.number}"

    @property
    def _places(self) -> range:
        return range(2, 2 + self.count)

    @property
    def _bridge(self) -> str:
        return f"af{self.number}b"

    def _port(self, host: str) -> str:
        return f"af{self.number}p{host.rpartition('.')[2]}"

    def _address(self, place: int) -> str:
        return f"10.213.{self.number % 250}.{place}"

    def _hardware(self, place: int) -> str:
        return f"02:00:0a:d5:{self.number % 250:02x}:{place:02x}"

    def make(self) -> None:
        """Makes bridge, namespaces and interfaces; CalledProcessError or OSError if this machine does not allow it."""
        _ip("link", "add", self._bridge, "address", self._hardware(1), "type", "bridge")
        _ip("address", "add", f"{self.driver}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for place in self._places:
            host = self._address(place)
            space, port = f"{self._prefix}-{host}", self._port(host)
            _ip("netns", "add", space)
            _ip("link", "add", port, "type", "veth", "peer", "name", _INTERFACE, "netns", space)
            _ip("link", "set", port, "master", self._bridge, "up")
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", space, "link", "set", _INTERFACE, "address", self._hardware(place), "up")
            _ip("-n", space, "address", "add", f"{host}/24", "dev", _INTERFACE)
            # Known for good: otherwise a host that is cut off would be reported as unreachable after a while.
            _ip("neighbour", "replace", host, "lladdr", self._hardware(place), "dev", self._bridge)
            for other in (1, *self._places):
                if other != place:
                    known = (self._address(other), "lladdr", self._hardware(other), "dev", _INTERFACE)
                    _ip("-n", space, "neighbour", "replace", *known)

    def remove(self) -> None:
        """Removes what there is of it."""
        for host in self.hosts:
            _quietly("ip", "link", "delete", self._port(host))
            _quietly("ip", "netns", "delete", f"{self._prefix}-{host}")
        _quietly("ip", "link", "delete", self._bridge)

    def cut(self, host: str) -> None:
        self._set(host, _DISABLED)

    def mend(self, host: str) -> None:
        self._set(host, _FORWARDING)

    def received(self, host: str) -> int:
        # What the bridge sends through its port comes to the host.
        return self._counted(host, "tx_bytes")

    def sent(self, host: str) -> int:
        return self._counted(host, "rx_bytes")

    def _counted(self, host: str, what: str) -> int:
        return int((_STATISTICS / self._port(host) / "statistics" / what).read_text())

    def _set(self, host: str, state: str) -> None:
        _run("bridge", "link", "set", "dev", self._port(host), "state", state)


@contextmanager
def host_network(count: int) -> Iterator[HostNetwork]:
    """A network for so many hosts, for as long as the block lasts: with namespaces, if this machine allows that."""
    bridged = BridgedNetwork(count, os.getpid() % 100_000)
    try:
        if not (shutil.which("ip") and shutil.which("bridge")):
            raise OSError("there is no tool")
        bridged.make()
    except (OSError, subprocess.CalledProcessError):
        bridged.remove()
        yield LoopbackNetwork(host_names(count))
        return
    try:
        yield bridged
    finally:
        bridged.remove()


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _quietly(*command: str) -> None:
    with suppress(OSError, subprocess.CalledProcessError):
        _run(*command)
