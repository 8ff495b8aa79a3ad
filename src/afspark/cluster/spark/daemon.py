"""The process that Spark forks Python workers from, with everything heavy imported and compiled before."""

import gc
import socket
import sys
from collections.abc import Callable
from pathlib import Path


def _prefer_compiled() -> None:
    """Imports pyspark from the folder its archive lies in: nothing is ever compiled for good inside an archive."""
    for entry in [entry for entry in sys.path if entry.endswith("pyspark.zip")]:
        package = Path(entry).parents[2]
        if (package / "worker.py").is_file() and str(package.parent) in sys.path:
            sys.path.remove(entry)


def _acknowledging(worker: Callable[[socket.socket, bool], int]) -> Callable[[socket.socket, bool], int]:
    """Makes ``worker``, which serves one task after the other, acknowledge what Spark sends at once.

    Spark writes the beginning of a task in several small pieces, and holds each back until the one before is
    acknowledged. The system puts acknowledgements off for 40 ms: more than the rest of a small task takes.
    """

    def serve(connection: socket.socket, authenticated: bool) -> int:
        if connection.family in (socket.AF_INET, socket.AF_INET6) and hasattr(socket, "TCP_QUICKACK"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            # The system goes back to its habit after every answer, so it is told again when the task has come.
            connection.recv(1, socket.MSG_PEEK)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return worker(connection, authenticated)

    return serve


if __name__ == "__main__":
    # Collecting garbage among so many new objects takes longer than importing them.
    gc.disable()
    _prefer_compiled()

    from pyspark import daemon

    # What every task needs, and most operators: half a second in each process that is forked without it.
    import afspark.algorithms
    import afspark.cluster.spark.stages  # noqa: F401
    from afspark.task.warmup import warm_up

    warm_up()
    # What workers share with this process stays shared: nobody looks at it again.
    gc.freeze()
    gc.enable()
    daemon.worker = _acknowledging(daemon.worker)  # type: ignore[assignment]
    daemon.manager()
