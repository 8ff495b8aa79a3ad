"""Spark session settings that make pipelines fast and workers stay where their state is, in one place."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass

from pyspark.sql import SparkSession

from afspark.cluster.spark.java import find_java_home
from afspark.cluster.spark.jvm_signals import leave_stops_to_python
from afspark.errors import UsageError


@dataclass(frozen=True)
class Setting:
    """A Spark setting with the reason why pipelines want it."""

    key: str
    value: str
    reason: str


SETTINGS = (
    Setting(
        "spark.python.daemon.module",
        "afspark.cluster.spark.daemon",
        "Python workers are forked from a process that has imported Arrow and the compiled kernels already.",
    ),
    Setting(
        "spark.locality.wait",
        "30s",
        "A busy host keeps its workers: with the default of 3 s they would be sent away from their state.",
    ),
    Setting(
        "spark.shuffle.reduceLocality.enabled",
        "false",
        "The size of shuffle blocks must not compete with the home of a worker.",
    ),
    Setting(
        "spark.scheduler.minRegisteredResourcesRatio",
        "1.0",
        "Workers are placed when all hosts have registered, or the first host would get all of them.",
    ),
    Setting(
        "spark.shuffle.io.retryWait",
        "1s",
        "What a dead executor has sent is read again after 3 s, not 15: Spark tries three times before it gives up.",
    ),
    Setting("spark.speculation", "false", "A speculative copy of a task would touch resident state."),
    Setting(
        "spark.sql.streaming.noDataMicroBatches.enabled",
        "false",
        "A batch without items cannot change a resident state.",
    ),
    Setting(
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "65536",
        "Batches of a Spark DataFrame arrive large enough for vectorised kernels.",
    ),
    Setting("spark.ui.showConsoleProgress", "false", "Spark's progress bar would tear ours."),
)

LOCAL_SETTINGS = (
    Setting(
        "spark.shuffle.compress",
        "false",
        "What is sent stays on this machine; to compress it costs more than it saves.",
    ),
)
"""Settings of local masters."""

#: File manager for checkpoints on local paths: the default one forks shell commands for every file.
LOCAL_FILE_MANAGER = (
    "spark.sql.streaming.checkpointFileManagerClass",
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
)

TASK_FAILURES = 4


def with_retries(master: str) -> str:
    """Lets tasks of a local master be retried, which ``local[n]`` alone does not.

    >>> with_retries("local[*]"), with_retries("local"), with_retries("spark://host:7077")
    ('local[*,4]', 'local[1,4]', 'spark://host:7077')
    """
    if master == "local":
        return f"local[1,{TASK_FAILURES}]"
    return re.sub(r"^local\[([^,\]]+)\]$", rf"local[\1,{TASK_FAILURES}]", master)


def session(
    master: str | None = None, *, app_name: str = "afspark", config: dict[str, str] | None = None
) -> SparkSession:
    """A classic Spark session with the settings of :data:`SETTINGS`; ``config`` overrides them.

    ``master`` is a Spark master URL; None takes what spark-submit or ``spark.master`` says, else ``local[*]``.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["JAVA_HOME"] = str(find_java_home())
    builder = SparkSession.builder.appName(app_name)
    if master is not None or "SPARK_MASTER" not in os.environ:
        builder = builder.master(with_retries(master or "local[*]"))
    is_local = (master or os.environ.get("SPARK_MASTER", "local")).startswith("local")
    for setting in (*SETTINGS, *(LOCAL_SETTINGS if is_local else ())):
        builder = builder.config(setting.key, setting.value)
    for key, value in (config or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    leave_stops_to_python(spark.sparkContext)
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Makes ``spark.readStream.format("afspark")`` known to a session that `session` did not make."""
    from afspark.cluster.spark.push_format import PushSource

    spark.dataSource.register(PushSource)


def check_session(spark: SparkSession) -> None:
    """Raises UsageError if this session cannot run pipelines."""
    if not hasattr(spark, "_jsparkSession"):
        raise UsageError(
            "Pipelines need a classic Spark session, not Spark Connect.",
            remedy="Start one with afspark.session().",
        )
    if spark.conf.get("spark.speculation", "false") == "true":
        raise UsageError(
            "Speculative execution is switched on; two copies of a task would touch the same resident state.",
            remedy="Set spark.speculation=false.",
        )
