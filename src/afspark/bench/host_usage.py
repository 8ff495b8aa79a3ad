"""What the processes of one host take of this machine: CPU and memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from afspark.cluster.loopback.host_processes import processes_of

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class HostUsage:
    """CPU seconds since the host was started, and the memory that its Python processes have for themselves."""

    cpu_seconds: float
    python_bytes: int

    def since(self, before: HostUsage) -> float:
        """CPU seconds from ``before`` to this."""
        return self.cpu_seconds - before.cpu_seconds


def usage_of(session: int, *, proc: Path = _PROC) -> HostUsage:
    """What the living processes of a host's session have taken; processes that have ended count with their parents."""
    cpu, memory = 0.0, 0
    for pid in processes_of(session, proc=proc):
        try:
            # user, system, and the same of children that have ended
            times = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[11:15]
            command = (proc / str(pid) / "cmdline").read_bytes()
            status = (proc / str(pid) / "status").read_text()
        except OSError:
            continue
        cpu += sum(map(int, times)) / _TICKS
        if b"python" in command.split(b"\0")[0]:
            memory += _own_memory(status.splitlines())
    return HostUsage(cpu, memory)


def _own_memory(status: Iterable[str]) -> int:
    """Bytes that are neither of files nor shared with other processes, as far as the system tells."""
    return sum(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon:"))


def folder_bytes(folder: Path) -> int:
    """Bytes that the files below a folder take: memory, where that is the place of resident state."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.stat(os.path.join(path, name)).st_blocks * 512
            except OSError:
                continue
    return total
