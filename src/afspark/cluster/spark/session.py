"""Spark session settings that make pipelines fast and workers stay where their state is, in one place."""

from __future__ import annotations

import os
import re
import reprlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from afspark.cluster.spark.java import find_java_home
from afspark.cluster.spark.jvm_signals import leave_stops_to_python
from afspark.cluster.spark.outside_settings import outside_settings
from afspark.cluster.spark.script_errors import hush_traces, show_errors_briefly
from afspark.cluster.spark.source_formats import register_source
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


def chosen_settings(
    master: str | None, app_name: str | None, config: Mapping[str, str], outside: Mapping[str, str]
) -> dict[str, str]:
    """What a session is made with: the program's own word comes first, then what was given outside, then ours."""
    master = master or config.get("spark.master") or outside.get("spark.master") or "local[*]"
    ours = (*SETTINGS, *(LOCAL_SETTINGS if master.startswith("local") else ()))
    return {
        **{setting.key: setting.value for setting in ours if setting.key not in outside},
        "spark.app.name": app_name or outside.get("spark.app.name") or "afspark",
        **config,
        "spark.master": with_retries(master),
    }


def session(
    master: str | None = None, *, app_name: str | None = None, config: dict[str, str] | None = None
) -> SparkSession:
    """A classic Spark session with the settings of :data:`SETTINGS`.

    What was given outside (to spark-submit, in ``PYSPARK_SUBMIT_ARGS``, in ``spark-defaults.conf``) goes before these,
    and ``config`` before both. ``master`` is a Spark master URL; None takes the one given outside, else ``local[*]``;
    ``app_name`` likewise, else ``afspark``.
    """
    show_errors_briefly()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["JAVA_HOME"] = str(find_java_home())
    given = config or {}
    outside = outside_settings()
    builder = SparkSession.builder
    for key, value in chosen_settings(master, app_name, given, outside).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if "spark.log.level" not in {**outside, **given}:
        spark.sparkContext.setLogLevel("ERROR")
    leave_stops_to_python(spark.sparkContext)
    hush_traces(spark.sparkContext)
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Makes ``spark.readStream.format("afspark")`` known to a session that `session` did not make."""
    from afspark.cluster.spark.push_format import PushSource

    register_source(spark, PushSource)


def check_session(spark: SparkSession) -> None:
    """Raises UsageError if this session cannot run pipelines."""
    given: Any = spark
    if not hasattr(given, "conf") or isinstance(given, type):
        raise UsageError(
            f"{reprlib.repr(given)} is no Spark session.", remedy="Start one with afspark.session(), and give that."
        )
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
