"""Starts a model server on the host of a task."""

from __future__ import annotations

from afspark.exchange.server_process import start_alone
from afspark.task.task_environment import TaskEnvironment


def start_server(size: int, secret: str, environment: TaskEnvironment, _: int) -> list[tuple[str, int]]:
    """Its address and its process, which takes no task slot and outlives the task and the executor."""
    return [start_alone(size, host=environment.host, secret=secret)]
