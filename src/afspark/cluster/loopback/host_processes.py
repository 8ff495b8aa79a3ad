"""The processes of one host of this machine: a session of the system, which everything that is started there joins.

An executor stays in the process group of the Spark worker that has started it, its Python processes do not; all of
them stay in the session.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_TRIES = 100


def processes_of(session: int, *, proc: Path = _PROC) -> Iterator[int]:
    """Process ids of the living members of a session; where there is no /proc, none."""
    for entry in proc.glob("[0-9]*/stat"):
        try:
            state, _, _, found, *_ = entry.read_bytes().rpartition(b")")[2].split()
        except (OSError, ValueError):
            continue
        if int(found) == session and state not in (b"Z", b"X"):
            yield int(entry.parent.name)


def executors_of(session: int, *, proc: Path = _PROC) -> list[int]:
    """Process ids of the executors' JVMs in a session."""
    found = []
    for pid in processes_of(session, proc=proc):
        with suppress(OSError):
            arguments = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
            if any(argument.endswith(b"ExecutorBackend") for argument in arguments):
                found.append(pid)
    return found


def end_session(session: int) -> None:
    """Kills all processes of a session, those included that are being started meanwhile."""
    for _ in range(_TRIES):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
        left = list(processes_of(session))
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return
        time.sleep(0.02)
