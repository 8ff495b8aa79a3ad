"""Which Spark host a Python process works for.

A Python worker is a child of the pyspark daemon, which is a child of the executor's JVM. The JVM's command
line carries ``--hostname NAME`` under standalone, YARN and Kubernetes masters: the name the scheduler knows
the host by, which need not be the machine's own name. In local mode there is no executor process.
"""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

HOST_VARIABLE = "AFSPARK_HOST"
"""Environment variable that names the host where no executor can be found above this process."""

_PROC = Path("/proc")
_FLAG = "--hostname"


def spark_host(default: str, *, proc: Path = _PROC) -> str:
    """The Spark host name of the executor this process works for.

    Without an executor above this process: the variable ``AFSPARK_HOST``, else ``default`` (in local mode
    the driver's host). What was found above a process is remembered for its lifetime, so that a worker
    whose executor has died keeps its name.
    """
    executor = _executor(proc, os.getpid())
    if executor is not None:
        return executor[1]
    return os.environ.get(HOST_VARIABLE) or default


def executor_pid(*, proc: Path = _PROC) -> int | None:
    """Process id of the executor's JVM; None in local mode. Remembered for the lifetime of this process."""
    executor = _executor(proc, os.getpid())
    return None if executor is None else executor[0]


def alive_parents(pid: int | None = None, *, proc: Path = _PROC) -> tuple[int, ...]:
    """Process ids above ``pid`` (default: this process), nearest first, as they are now.

    A worker whose executor has died is handed to another parent: `executor_pid` is then no longer among
    them.
    """
    parents: list[int] = []
    current = os.getpid() if pid is None else pid
    while (parent := _parent(proc, current)) is not None and parent not in parents:
        parents.append(parent)
        current = parent
    return tuple(parents)


@lru_cache(maxsize=64)
def _executor(proc: Path, pid: int) -> tuple[int, str] | None:
    for parent in alive_parents(pid, proc=proc):
        host = _executor_host(_arguments(proc, parent))
        if host is not None:
            return parent, host
    return None


def _executor_host(arguments: list[str]) -> str | None:
    # Other programs take a flag of that name too: only a JVM or an executor back end counts.
    if not arguments:
        return None
    is_jvm = Path(arguments[0]).name.startswith("java")
    if not is_jvm and not any(argument.endswith("ExecutorBackend") for argument in arguments):
        return None
    for flag, value in pairwise(arguments):
        if flag == _FLAG and value:
            return value
    return None


def _arguments(proc: Path, pid: int) -> list[str]:
    try:
        raw = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.rstrip(b"\0").split(b"\0")] if raw else []


def _parent(proc: Path, pid: int) -> int | None:
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The second field is the program's name in parentheses and may itself hold blanks and parentheses.
    fields = stat.rpartition(b")")[2].split()
    parent = int(fields[1]) if len(fields) > 1 else 0
    return parent if parent > 0 else None
