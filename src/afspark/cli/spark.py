"""Starting and ending Spark for one command."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from afspark.cli.quiet import first_error, hush_python, jvm_output
from afspark.cluster.spark.session import session
from afspark.errors import UsageError

#: How py4j says that the JVM has ended: there is nothing to stop any more.
GONE = (ConnectionError, Py4JNetworkError)


@contextmanager
def spark_session(
    master: str | None,
    conf: tuple[tuple[str, str], ...],
    *,
    workers: int,
    log: Path | None,
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[SparkSession]:
    """A session for the block; one that was there before is used and left alone.

    Without ``master`` this machine is used, with a task slot for every worker. ``defaults`` are settings that
    ``conf`` may replace. Spark's output goes to ``log``, or to the terminal without one. UsageError if Spark cannot
    start.
    """
    config = {"spark.ui.enabled": "false"} | dict(defaults) | dict(conf)
    check_conf(config)
    running = SparkSession.getActiveSession() is not None
    if log is not None:
        hush_python()
    try:
        with jvm_output(log):
            spark = session(master or config.pop("spark.master", None) or _local(workers), config=config)
    except (Py4JError, PySparkException) as error:
        why = (first_error(log) if log is not None else "") or str(error).split("\n", 1)[0]
        raise UsageError(
            f"Spark cannot start: {why.rstrip('.')}.", remedy="Check --master and --conf.", log=log
        ) from error
    try:
        yield spark
    finally:
        if not running:
            with suppress(*GONE):
                spark.stop()


def check_conf(config: dict[str, str]) -> None:
    """Refuses before Spark starts what would be refused afterwards."""
    if config.get("spark.speculation", "false").lower() == "true":
        raise UsageError(
            "Speculative execution would let two copies of a task touch the same resident state.",
            remedy="Leave out --conf spark.speculation=true.",
        )


def _local(workers: int) -> str | None:
    if "SPARK_MASTER" in os.environ:
        return None
    return f"local[{max(workers, os.cpu_count() or 1)}]"
