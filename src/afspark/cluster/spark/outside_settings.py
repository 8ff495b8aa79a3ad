"""Spark settings given outside of the program: to spark-submit, in the environment, in spark-defaults.conf."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_FLAGS = {
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--driver-memory": "spark.driver.memory",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
    "--total-executor-cores": "spark.cores.max",
    "--num-executors": "spark.executor.instances",
}


def outside_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings by name. In a program that spark-submit has started its JVM knows them all."""
    if _SUBMITTED in environ:
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    folder = environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    named = {"spark.master": environ["MASTER"]} if environ.get("MASTER") else {}
    return {
        **defaults(Path(folder, "spark-defaults.conf")),
        **named,
        **submit_args(environ.get("PYSPARK_SUBMIT_ARGS", "")),
    }


def defaults(file: Path) -> dict[str, str]:
    """What a file of defaults says: a name and a value in each line."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = [
        re.split(r"\s*[=:]\s*|\s+", line.strip(), maxsplit=1) for line in lines if not line.lstrip().startswith("#")
    ]
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2 and pair[0].startswith("spark.")}


def submit_args(text: str) -> dict[str, str]:
    """The settings among arguments of spark-submit.

    >>> submit_args("--master local[3] --conf spark.ui.enabled=false pyspark-shell")
    {'spark.master': 'local[3]', 'spark.ui.enabled': 'false'}
    """
    found: dict[str, str] = {}
    words = iter(shlex.split(text))
    for word in words:
        name, equals, value = word.partition("=")
        if name in _FLAGS:
            found[_FLAGS[name]] = value if equals else next(words, "")
        elif name in ("--conf", "-c"):
            key, _, given = (value if equals else next(words, "")).partition("=")
            found[key] = given
    return found
