"""Which process drives a query, as its epoch tells it to others, and whether that process still lives."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from afspark.errors import AnotherDriver, StoreError
from afspark.store.base import Store
from afspark.store.format import seal, unseal
from afspark.store.naming import EpochId, driver_name

_PROCESSES = Path("/proc")


@dataclass(frozen=True, kw_only=True)
class Driver:
    """A process that runs a query, since a moment in seconds since 1970."""

    host: str
    process: int
    #: when the process began, in the kernel's ticks: numbers of processes are given again
    began: int | None
    #: the run of the operating system and the table of processes that the number belongs to; "" where unknown
    machine: str
    since: float = field(default_factory=time.time)

    @classmethod
    def here(cls) -> Driver:
        """This process."""
        return cls(host=socket.gethostname(), process=os.getpid(), began=_began(os.getpid()), machine=_machine())

    def lives(self) -> bool | None:
        """Whether the process exists; None if that cannot be told from here."""
        if not self.machine or self.machine != _machine():
            return None
        return self.began is not None and _began(self.process) == self.began

    @property
    def is_here(self) -> bool:
        """Whether it is this very process."""
        return self.process == os.getpid() and self.machine == _machine()

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        return f"process {self.process} on {self.host}, since {since}"


@dataclass(frozen=True, kw_only=True)
class Notice:
    """What an epoch says of its driver: written anew within ``seconds`` while it runs, and once when it ends."""

    driver: Driver
    seconds: float
    renewed: int = 0
    ended: bool = False

    def to_bytes(self) -> bytes:
        return seal({"kind": "driver", **asdict(self)}, {})

    @classmethod
    def from_bytes(cls, data: bytes) -> Notice | None:
        """The notice; None for anything else, such as one that is being written."""
        try:
            meta: dict[str, Any] = unseal(data).meta
            driver = Driver(**meta["driver"])
            return cls(driver=driver, seconds=meta["seconds"], renewed=meta["renewed"], ended=meta["ended"])
        except (StoreError, KeyError, TypeError):
            return None


def read_notice(store: Store, epoch: EpochId) -> bytes:
    """The notice of an epoch as it is stored; empty if there is none."""
    try:
        return store.get(driver_name(str(epoch)))
    except StoreError:
        return b""


def another_driver(store: Store, newer: EpochId, *, expected: str) -> AnotherDriver:
    """The error for a driver whose epoch is no longer the newest: it names the one that has taken its place."""
    notice = Notice.from_bytes(read_notice(store, newer))
    who = f": {notice.driver}" if notice else ""
    return AnotherDriver(
        f"Another driver has taken over the checkpoint {store.path}{who}.",
        remedy="This one stops and has changed nothing since; the other one goes on.",
        path=store.path,
        expected=expected,
        found=str(newer),
        **_fields(notice),
    )


def still_running(store: Store, notice: Notice) -> AnotherDriver:
    """The error for a start beside a driver that lives."""
    return AnotherDriver(
        f"A driver is running on the checkpoint {store.path}: {notice.driver}.",
        remedy="Stop it first, or take over from it: start(takeover=True), on the command line --takeover.",
        path=store.path,
        **_fields(notice),
    )


def _fields(notice: Notice | None) -> dict[str, Any]:
    driver = notice.driver if notice else None
    return {
        "host": driver.host if driver else None,
        "process": driver.process if driver else None,
        "since": driver.since if driver else None,
    }


def boot_id() -> str:
    """A name for the present run of the operating system; empty where there is none to read."""
    try:
        return (_PROCESSES / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _machine() -> str:
    # Containers of one machine share its run, but a process of one has another number in the next.
    try:
        return f"{boot_id()} {os.readlink(_PROCESSES / 'self/ns/pid')}" if boot_id() else ""
    except OSError:
        return ""


def _began(process: int) -> int | None:
    """When a process began; None if there is none of that number, or only its remains."""
    try:
        # The second field is the program's name, which may hold anything.
        fields = (_PROCESSES / str(process) / "stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in ("Z", "X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
