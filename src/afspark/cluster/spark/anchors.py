"""Which host each worker lives on, and how Spark is told.

An *anchor* is an RDD with one partition per worker whose preferred location is the worker's home. It is a
hint: a task that ends up elsewhere says so and touches nothing. Everything that reaches into the JVM behind a
classic session to place tasks is in this file.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import CPickleSerializer, PairDeserializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructType

#: How long a starting query waits for executors.
REGISTRATION_SECONDS = 30.0


@dataclass(frozen=True)
class SparkFacts:
    """What never changes while a Spark application runs; asking the JVM for it every batch would cost more."""

    local: bool
    host: str
    cpus_per_task: int
    parallelism: int


@lru_cache(maxsize=4)
def _cluster(sc: SparkContext, application: str) -> SparkFacts:
    conf = sc.getConf()
    return SparkFacts(
        local=bool(sc._jsc.sc().isLocal()),
        host=str(conf.get("spark.driver.host", "localhost")),
        cpus_per_task=int(conf.get("spark.task.cpus", "1") or 1),
        parallelism=sc.defaultParallelism,
    )


def cluster(sc: SparkContext) -> SparkFacts:
    return _cluster(sc, sc.applicationId)


def slots_by_host(sc: SparkContext) -> dict[str, int]:
    """Task slots of every host that has a live executor; the driver's host only where it executes tasks."""
    facts = cluster(sc)
    if facts.local:
        return {facts.host: facts.parallelism}
    executors = sc._jsc.sc().statusStore().executorList(True)
    slots: Counter[str] = Counter()
    for index in range(executors.size()):
        executor = executors.apply(index)
        if executor.id() != "driver":
            host = executor.hostPort().rsplit(":", 1)[0]
            slots[host] += executor.totalCores() // facts.cpus_per_task
    return dict(+slots)


def registered_slots(sc: SparkContext, workers: int, timeout_seconds: float = REGISTRATION_SECONDS) -> dict[str, int]:
    """Like `slots_by_host`, once executors have registered: enough for the workers, and no new ones for a while."""
    deadline = time.monotonic() + timeout_seconds
    slots = slots_by_host(sc)
    while not cluster(sc).local and time.monotonic() < deadline:
        time.sleep(0.5)
        before, slots = slots, slots_by_host(sc)
        if sum(slots.values()) >= workers and slots == before:
            break
    return slots


def driver_host(sc: SparkContext) -> str:
    return cluster(sc).host


def anchor(sc: SparkContext, homes: Mapping[int, str]) -> RDD[int]:
    """One partition per worker of ``homes``, holding the worker's number, preferably at its home."""
    return _anchor(sc, sc.applicationId, _by_number(homes))


def anchor_frame(spark: SparkSession, homes: Mapping[int, str]) -> DataFrame:
    """The same as a DataFrame with the column ``worker``, made in the JVM without a Python stage."""
    return _anchor_frame(spark, spark.sparkContext.applicationId, _by_number(homes))


def mailed(sc: SparkContext, homes: Mapping[int, str], items: RDD[tuple[int, Any]]) -> RDD[tuple[int, tuple[int, Any]]]:
    """The items (worker, content), shuffled to the workers' homes: pairs of a worker's number and an item for it.

    Every partition of ``items`` holds exactly one item for every worker. A shuffled partition has no preferred
    host; zipped with an anchor of as many elements it has. That happens in the JVM, on what Python has pickled, so
    that no item passes through a Python process on the way.
    """
    slots = _slots(sc, sc.applicationId, _by_number(homes), items.getNumPartitions())
    inbox = items.partitionBy(len(homes), int)
    pairs = slots.zip(inbox._jrdd)
    return RDD(pairs, sc, PairDeserializer(CPickleSerializer(), inbox._jrdd_deserializer))  # type: ignore[no-untyped-call]


def _by_number(homes: Mapping[int, str]) -> tuple[str, ...]:
    """The homes such that a worker's number is that of its partition."""
    return tuple(homes[worker] for worker in range(len(homes)))


@lru_cache(maxsize=16)
def _slots(sc: SparkContext, application: str, homes: tuple[str, ...], elements: int) -> Any:
    """Like `_anchor`, with the worker's number ``elements`` times in each partition."""
    jvm: Any = sc._jvm
    scala = jvm.scala.jdk.javaapi.CollectionConverters
    pickle: Any = CPickleSerializer()
    numbers, preferred = jvm.java.util.ArrayList(), jvm.java.util.HashMap()
    for worker, home in enumerate(homes):
        hosts = jvm.java.util.ArrayList()
        hosts.add(home)
        preferred.put(worker, scala.asScala(hosts).toSeq())
        for _ in range(elements):
            numbers.add(bytearray(pickle.dumps(worker)))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    places = getattr(jvm.scala.collection.immutable.HashMap, "from")(scala.asScala(preferred))
    context, seq = sc._jsc.sc(), scala.asScala(numbers).toSeq()
    rdd = jvm.org.apache.spark.rdd.ParallelCollectionRDD(context, seq, len(homes), places, tag)
    return jvm.org.apache.spark.api.java.JavaRDD.fromRDD(rdd, tag)


@lru_cache(maxsize=16)
def _anchor(sc: SparkContext, application: str, homes: tuple[str, ...]) -> RDD[int]:
    pickle: Any = CPickleSerializer()
    records = [bytearray(pickle.dumps(worker)) for worker in range(len(homes))]
    return RDD(_placed(sc, records, homes, "[B"), sc, pickle)


@lru_cache(maxsize=16)
def _anchor_frame(spark: SparkSession, application: str, homes: tuple[str, ...]) -> DataFrame:
    sc: Any = spark.sparkContext
    rows = [_row(sc, worker) for worker in range(len(homes))]
    schema = spark._jsparkSession.parseDataType(StructType().add("worker", IntegerType()).json())
    placed = _placed(sc, rows, homes, "org.apache.spark.sql.Row")
    return DataFrame(spark._jsparkSession.createDataFrame(placed, schema), spark)


def _row(sc: Any, worker: int) -> Any:
    values = sc._gateway.new_array(sc._jvm.java.lang.Object, 1)
    values[0] = worker
    return sc._jvm.org.apache.spark.sql.RowFactory.create(values)


def _placed(sc: SparkContext, records: Sequence[Any], homes: Sequence[str], kind: str) -> Any:
    """A JavaRDD with one partition per record, preferably at its home."""
    jvm: Any = sc._jvm
    scala = jvm.scala.jdk.javaapi.CollectionConverters
    slots = jvm.java.util.ArrayList()
    for record, home in zip(records, homes, strict=True):
        hosts = jvm.java.util.ArrayList()
        hosts.add(home)
        slots.add(jvm.scala.Tuple2(record, scala.asScala(hosts).toSeq()))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName(kind))
    return jvm.org.apache.spark.api.java.JavaRDD.fromRDD(sc._jsc.sc().makeRDD(scala.asScala(slots).toSeq(), tag), tag)
