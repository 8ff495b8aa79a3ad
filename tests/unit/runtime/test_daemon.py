"""The process that Python workers are forked from: what a worker's connection to Spark is like."""

from __future__ import annotations

import socket

import pytest

from afspark.cluster.spark.daemon import _acknowledging


def quick(connection: socket.socket) -> int:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")
def test_a_task_is_acknowledged_at_once_also_after_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as spark:
        worker, _ = server.accept()
        with worker:
            for _ in range(3):
                spark.sendall(b"task")
                assert _acknowledging(lambda connection, known: quick(connection) + known)(worker, True) == 2
                assert worker.recv(16) == b"task"
                worker.sendall(b"answer")
                assert spark.recv(16) == b"answer"
                # The system's habit after an answer, which is what makes telling it again necessary.
                assert quick(worker) == 0


def test_other_connections_are_left_alone() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert _acknowledging(lambda connection, known: connection.fileno())(ours, True) == ours.fileno()
