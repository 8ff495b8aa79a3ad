"""Hosts on this machine for experiments in which hosts fail."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from afspark.cluster.loopback.loopback_cluster import LoopbackCluster, host_names
from afspark.cluster.spark.anchors import slots_by_host

#: How long a host may take to get an executor.
EXECUTOR_SECONDS = 120.0


@dataclass(frozen=True)
class BenchHosts:
    """Hosts on this machine and the Spark session on them."""

    cluster: LoopbackCluster
    spark: SparkSession

    def state_of(self, host: str) -> Path:
        """The folder with the resident state of a host."""
        return self.cluster.state_of(host)

    def complete(self) -> None:
        """Starts hosts that are away, and waits for executors on all of them; one that gets none is started anew."""
        while True:
            for host in self.cluster.hosts:
                self.cluster.start(host)
            for host in self.cluster.hosts:
                self.cluster.await_ready(host)
            deadline = time.monotonic() + EXECUTOR_SECONDS
            while missing := set(self.cluster.hosts) - slots_by_host(self.spark.sparkContext).keys():
                if time.monotonic() >= deadline:
                    break
                time.sleep(0.2)
            if not missing:
                return
            for host in missing:
                self.cluster.kill(host)


@contextmanager
def started_hosts(count: int, *, slots: int, session: Callable[[str], SparkSession]) -> Iterator[BenchHosts]:
    """So many hosts and what ``session`` makes of their master, for as long as the block lasts."""
    with (
        tempfile.TemporaryDirectory(prefix="afspark-bench-") as folder,
        LoopbackCluster(host_names(count), slots=slots, folder=Path(folder, "hosts")) as cluster,
    ):
        spark = session(cluster.url)
        try:
            yield BenchHosts(cluster, spark)
        finally:
            spark.stop()
