"""Who runs the tasks of a local cluster: this process, or one of its own for each, which can be killed."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark import cloudpickle

#: What is said of a process that ended without a word.
KILLED = "killed"

#: (True, result) of a task that came to its end; (False, why) of one that did not.
Answer = tuple[bool, Any]

#: Runs tasks, if possible at the same time.
Processes = Callable[..., list[Answer]]


class TaskDied(Exception):
    """The process of a task has died. Raised on behalf of it, where it had one of its own."""


def in_process(*tasks: Callable[[], Any]) -> list[Answer]:
    """The tasks one after the other, here. What one raises is raised, except that its process has died."""
    return [_called(task) for task in tasks]


def side_by_side(*tasks: Callable[[], Any]) -> list[Answer]:
    """The tasks here as well, each in a thread of its own: they may wait for each other."""
    with ThreadPoolExecutor(len(tasks)) as threads:
        return list(threads.map(_called, tasks))


def _called(task: Callable[[], Any]) -> Answer:
    try:
        return True, task()
    except TaskDied as died:
        return False, str(died)


def forked(*tasks: Callable[[], Any]) -> list[Answer]:
    """Each task in a process of its own, all at the same time."""
    return [answer(child) for child in [begin(task) for task in tasks]]


#: What a process that is started anew does: paths first, because what the task is made of is found there.
_ANEW = """
import os, pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from afspark.cluster.local.processes import tell_anew
tell_anew(sys.stdin.buffer.read(), int(sys.argv[1]))
"""


def started_anew(task: Callable[[], Any]) -> Answer:
    """The task in a process that nothing was forked into: one that was would wait for threads of Flight for ever."""
    reader, writer = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", _ANEW, str(writer)], stdin=subprocess.PIPE, pass_fds=[writer])
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        child.communicate(pickle.dumps(sys.path) + cloudpickle.dumps(task))  # type: ignore[no-untyped-call]
        told = pipe.read()
    return pickle.loads(told) if told else (False, KILLED)


def tell_anew(task: bytes, writer: int) -> None:
    """In a process that was started anew: what a pickled task gives goes into a pipe."""

    def called() -> Any:
        return cloudpickle.loads(task)()

    _tell(called, writer)


def begin(task: Callable[[], Any]) -> tuple[int, int]:
    """Starts a process of its own for a task: its number, and where `answer` hears of it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            # What the parent has left of Flight waits for threads that do not exist here; nobody may collect it.
            gc.freeze()
            _tell(task, writer)
            sys.stdout.flush()
        finally:
            # Also where nobody listens any more: what the parent does at its end is not for this process to do.
            os._exit(0)
    os.close(writer)
    return child, reader


def _tell(task: Callable[[], Any], writer: int) -> None:
    """Writes what a task gives or raises into a pipe."""
    try:
        told = pickle.dumps((True, task()))
    except BaseException:  # noqa: BLE001 (told to the parent; this process must not go on)
        told = pickle.dumps((False, traceback.format_exc()))
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(told)


def answer(process: tuple[int, int]) -> Answer:
    """What a process says at its end, for which this waits."""
    child, reader = process
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(told) if told else (False, KILLED)
