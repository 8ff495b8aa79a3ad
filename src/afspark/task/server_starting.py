"""Starts a model server on the host of a task, or ends one there."""

from __future__ import annotations

from afspark.exchange.server_process import kill_alone, start_alone
from afspark.task.task_environment import TaskEnvironment


def start_server(size: int, secret: str, environment: TaskEnvironment, _: int) -> list[tuple[str, int, str]]:
    """Its address, its process, which takes no task slot and outlives the task and the executor, and its host."""
    return [(*start_alone(size, host=environment.host, secret=secret), environment.host)]


def kill_server(pid: int, host: str, environment: TaskEnvironment, _: int) -> list[None]:
    """Kills what `start_server` has started, if the task has come to its host."""
    if environment.host == host:
        kill_alone(pid)
    return []
