"""Where Spark's part of a checkpoint is: where the rest is, or in a folder of the driver with a copy there."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from afspark.cluster.spark.frame_facts import stateful_nodes
from afspark.cluster.spark.spark_place import spark_address
from afspark.coordinator.spark_copies import SparkCopies, hand_to_spark
from afspark.errors import UsageError
from afspark.graph.pipeline import Pipeline
from afspark.store import Store
from afspark.store.address_schemes import SCHEMES, scheme_of
from afspark.store.naming import FOLDER, IDENTITY

logger = logging.getLogger(__name__)

#: Connectors that Spark can be given, by what pyarrow calls the store.
_PACKAGES = {
    "s3": "org.apache.hadoop:hadoop-aws",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
    "abfs": "org.apache.hadoop:hadoop-azure",
    "abfss": "org.apache.hadoop:hadoop-azure",
}


def spark_part(
    spark: SparkSession, pipeline: Pipeline, checkpoint: Store, address: str
) -> tuple[str, SparkCopies | None]:
    """The place that Spark is given, and who copies it into the checkpoint at ``address``, if Spark cannot write there.

    `UsageError` if that will not do, because Spark keeps state of its own. The checkpoint has to be claimed.
    """
    place = spark_address(spark, address, f"{FOLDER}/{IDENTITY}")
    if place is not None:
        if scheme_of(address) not in ("", "file"):
            hand_to_spark(checkpoint)
        return place, None
    _refuse_state(pipeline, checkpoint, address)
    copies = SparkCopies(checkpoint)
    copies.restore()
    logger.warning(
        "Spark cannot write to %s: its part of the checkpoint is in %s, with a copy in the checkpoint, from which any "
        "host can go on.",
        checkpoint.path,
        copies.folder,
    )
    return copies.folder.as_uri(), copies


def _refuse_state(pipeline: Pipeline, checkpoint: Store, address: str) -> None:
    nodes = [name for one in pipeline.frames.values() for name in stateful_nodes(one.frame)]
    if not nodes:
        return
    package = _PACKAGES.get(SCHEMES.get(scheme_of(address), ""))
    give = f"Give it one ({package}, of Spark's version of Hadoop)" if package else "Give it one"
    raise UsageError(
        f"Spark keeps state of its own for {', '.join(nodes)}, and cannot write to {checkpoint.path}.",
        remedy=f"{give}, or keep that state in an operator.",
        path=checkpoint.path,
        nodes=nodes,
    )
