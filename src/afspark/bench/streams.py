"""Streaming contenders: ours and native Spark, timed the same way.

Every contender processes the same input in the same batches. The time is Spark's own ``triggerExecution`` of all
batches but the first two, which warm up the query, plus whatever it takes to get results that are asked for at
the end. ``inputs_per_second`` is the share of the whole input that a second processes: the figure ratios are made of.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import afspark as af
from afspark.bench.bench_inputs import BATCH_BYTES
from afspark.cluster.spark.session import LOCAL_FILE_MANAGER

WARM_BATCHES = 2
PROVIDERS = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
MEMORY = Path("/dev/shm")


def ours(
    writer: Callable[[], af.StreamWriter],
    *,
    batch_bytes: int = BATCH_BYTES,
    results: str | None = None,
    store: Mapping[str, float] | None = None,
    place: Callable[[], str] | None = None,
) -> dict[str, float]:
    """One run of our pipeline; ``results``: the operator whose results are asked for at the end; ``place``: gives the
    address of a checkpoint that nobody has used, instead of a temporary folder.
    """
    checkpoint = tempfile.mkdtemp(prefix="afspark-bench-") if place is None else place()
    try:
        prepared = writer().option("checkpointLocation", checkpoint).option("batchBytes", batch_bytes)
        for option, value in (store or {}).items():
            prepared = prepared.option(option, value)
        query = prepared.trigger(availableNow=True).start()
        query.awaitTermination()
        started = time.perf_counter()
        if results is not None:
            query.results(results).write.format("noop").mode("append").save()
        results_seconds = time.perf_counter() - started
        taken = batch_seconds(query.spark_query)
        seconds, batches = sum(taken), len(taken)
        rate = batches / query.totals.batches / (seconds + results_seconds)
        figures = {
            "inputs_per_second": rate,
            "mb_per_second": query.totals.bytes * rate / 1e6,
            "items_per_second": query.totals.items * rate,
            "seconds_per_batch": seconds / batches,
            "usual_batch": statistics.median(taken),
            "results_seconds": results_seconds,
            "backup_bytes": float(query.totals.backups["bytes"]),
            **{kind: asked / query.totals.batches for kind, asked in query.totals.requests.items()},
        }
        query.release()
        return figures
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def native(
    spark: SparkSession, frame: Callable[[], DataFrame], path: Path, provider: str, *, in_memory: bool = False
) -> dict[str, float]:
    """A native query in update mode with its checkpoint on disk, or in memory: Spark has no switch to leave it out."""
    checkpoint = tempfile.mkdtemp(prefix="native-bench-", dir=MEMORY if in_memory and MEMORY.is_dir() else None)
    settings = {
        "spark.sql.streaming.stateStore.providerClass": PROVIDERS[provider],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        LOCAL_FILE_MANAGER[0]: LOCAL_FILE_MANAGER[1],
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        query = (
            frame()
            .writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        taken = batch_seconds(query)
        seconds, batches = sum(taken), len(taken)
        files = list(path.iterdir())
        rate = batches / len(files) / seconds
        return {
            "inputs_per_second": rate,
            "mb_per_second": sum(file.stat().st_size for file in files) * rate / 1e6,
            "seconds_per_batch": seconds / batches,
        }
    finally:
        for key in settings:
            spark.conf.unset(key)
        shutil.rmtree(checkpoint, ignore_errors=True)


def native_lines(spark: SparkSession, path: Path, pattern: str) -> DataFrame:
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(path))
    return lines.where(F.col("value").contains(pattern))


def native_words(spark: SparkSession, path: Path) -> DataFrame:
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(path))
    words = lines.select(F.explode(F.split("value", "[ \\t\\n\\x0B\\f\\r]+")).alias("word")).where("word != ''")
    return words.groupBy("word").count()


def native_packets(spark: SparkSession, path: Path) -> DataFrame:
    schema = "src long, dst long, bytes long"
    packets = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(path))
    return packets.groupBy("src", "dst").agg(F.sum("bytes").alias("bytes"))


def batch_seconds(query: StreamingQuery) -> list[float]:
    """The seconds of each batch after the warm-up."""
    batches = [p for p in query.recentProgress if "addBatch" in p["durationMs"]][WARM_BATCHES:]
    return [p["durationMs"]["triggerExecution"] / 1000 for p in batches]
