"""Hosts on this machine for experiments in which hosts fail."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from afspark.bench.host_network import HostNetwork, host_network
from afspark.cluster.loopback.loopback_cluster import LoopbackCluster
from afspark.cluster.spark.anchors import slots_by_host

#: How long a host may take to get an executor.
EXECUTOR_SECONDS = 120.0

Session = Callable[[str, Mapping[str, str]], SparkSession]


@dataclass(frozen=True)
class BenchHosts:
    """Hosts on this machine, what connects them, and the Spark session on them."""

    cluster: LoopbackCluster
    network: HostNetwork
    spark: SparkSession

    def state_of(self, host: str) -> Path:
        """The folder with the resident state of a host."""
        return self.cluster.state_of(host)

    def alive(self) -> set[str]:
        """The hosts that have executors, as Spark knows them."""
        return set(slots_by_host(self.spark.sparkContext))

    def start(self) -> None:
        """Begins to start hosts that are away."""
        for host in self.cluster.hosts:
            self.cluster.start(host)

    def complete(self) -> None:
        """Starts hosts that are away, and waits for executors on all of them; one that gets none is started anew."""
        while True:
            self.start()
            for host in self.cluster.hosts:
                self.cluster.await_ready(host)
            deadline = time.monotonic() + EXECUTOR_SECONDS
            while missing := set(self.cluster.hosts) - self.alive():
                if time.monotonic() >= deadline:
                    break
                time.sleep(0.2)
            if not missing:
                return
            for host in missing:
                self.cluster.kill(host)


@contextmanager
def started_hosts(count: int, *, slots: int, session: Session) -> Iterator[BenchHosts]:
    """So many hosts and what ``session`` makes of their master and its settings, for as long as the block lasts."""
    with (
        tempfile.TemporaryDirectory(prefix="afspark-bench-") as folder,
        host_network(count) as network,
        LoopbackCluster(
            network.hosts,
            slots=slots,
            folder=Path(folder, "hosts"),
            master=network.driver,
            launcher=network.launcher,
        ) as cluster,
    ):
        settings = {"spark.driver.host": network.driver, "spark.driver.bindAddress": network.driver}
        spark = session(cluster.url, settings)
        try:
            yield BenchHosts(cluster, network, spark)
        finally:
            spark.stop()
