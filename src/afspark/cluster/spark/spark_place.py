"""Where Spark itself can write its part of a checkpoint. Asks the JVM which file systems it knows."""

from __future__ import annotations

import threading
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from afspark.store.address_schemes import SCHEMES, redact, scheme_of

_PROBE_SECONDS = 20.0
#: What connectors call the stores of a scheme, besides the name that the user has given.
_CONNECTORS = {"s3": ("s3a",)}


def spark_address(spark: SparkSession, address: str, witness: str) -> str | None:
    """The checkpoint's address as Spark can use it; None if it has no connector for it, or does not get there.

    ``witness`` is an object that is there: a connector that does not find it has other settings than we have.
    """
    scheme = scheme_of(address)
    if scheme in ("", "file"):
        return address
    place = redact(address)[len(scheme) :].rstrip("/")
    for name in (scheme, *_CONNECTORS.get(SCHEMES[scheme], ())):
        if _has_connector(spark, name) and _finds(spark, f"{name}{place}/{witness}"):
            return f"{name}{place}"
    return None


def _has_connector(spark: SparkSession, scheme: str) -> bool:
    context: Any = spark.sparkContext
    try:
        context._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, context._jsc.hadoopConfiguration())
    except (Py4JError, PySparkException):
        return False
    return True


def _finds(spark: SparkSession, address: str) -> bool:
    """Whether Spark sees an object; connectors without credentials may look for them for minutes."""
    context: Any = spark.sparkContext
    found = threading.Event()

    def look() -> None:
        try:
            path = context._jvm.org.apache.hadoop.fs.Path(context._jvm.java.net.URI(address))
            if path.getFileSystem(context._jsc.hadoopConfiguration()).exists(path):
                found.set()
        except (Py4JError, PySparkException):
            return

    looking = threading.Thread(target=look, name="afspark-connector", daemon=True)
    looking.start()
    looking.join(_PROBE_SECONDS)
    return found.is_set()
