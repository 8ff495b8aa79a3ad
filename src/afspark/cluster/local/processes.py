"""Who runs the tasks of a local cluster: this process, or a forked one for each, which can be killed."""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

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


def forked(*tasks: Callable[[], Any], patience: float | None = None) -> list[Answer]:
    """Each task in a process of its own, all at the same time; those without an answer after ``patience`` seconds are
    killed.
    """
    return [answer(child, patience) for child in [begin(task) for task in tasks]]


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


def answer(process: tuple[int, int], patience: float | None = None) -> Answer:
    """What a process says at its end, for which this waits; one that says nothing for so long is killed."""
    child, reader = process
    with os.fdopen(reader, "rb") as pipe:
        if not select.select([pipe], [], [], patience)[0]:
            os.kill(child, signal.SIGKILL)
        told = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(told) if told else (False, KILLED)
