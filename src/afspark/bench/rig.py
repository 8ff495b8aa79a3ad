"""What all experiments of one run share: a Spark session, input files, and how often things are repeated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.bench_hosts import BenchHosts, started_hosts
from afspark.bench.bench_inputs import packet_files, text_files
from afspark.bench.kept_rounds import KeptRounds
from afspark.cli.host_options import spark_settings
from afspark.cli.quiet import hush_python, jvm_output
from afspark.cli.signals import heeding_stops, stop_at_once

#: Parquet files of about 40 MB, like the text files.
PACKETS_PER_FILE = 6_800_000
#: Native Spark keeps its state in the JVM; too small a heap would slow it down, not us.
DRIVER_MEMORY = "8g"

LOCAL = "local disk"
STORES: dict[str, dict[str, float]] = {
    LOCAL: {},
    "350 MB/s, 5 ms": {"storeLatencySeconds": 0.005, "storeBytesPerSecond": 350e6},
    "100 MB/s, 20 ms": {"storeLatencySeconds": 0.02, "storeBytesPerSecond": 100e6},
}
"""Options that make the backup store as slow as a remote one."""
PUSHED_STORES: dict[str, dict[str, float]] = STORES | {
    "20 MB/s, 20 ms": {"storeLatencySeconds": 0.02, "storeBytesPerSecond": 20e6}
}
"""The last is to two cores what the papers' store was to their cluster, or better: it took about a tenth of what their
workers could process, and two cores process some hundred megabytes a second.
"""


@dataclass(frozen=True)
class Rig:
    """``batches``: 40 MB files of a run; ``rounds``: of measured repetitions; ``seeds``: of runs with failures."""

    inputs: Path
    batches: int = 14
    rounds: int = 3
    seeds: int = 20
    #: where Spark's own talk goes; None: to the terminal
    log: Path | None = None
    #: generated records of a run, where an experiment is about snapshots
    records: int = 10**8
    #: where figures of long experiments are kept while they are measured; None: nowhere
    keep: Path | None = None

    @cached_property
    def spark(self) -> SparkSession:
        return self._session("local[2]")

    @contextmanager
    def slots(self, slots: int) -> Iterator[SparkSession]:
        """A session with so many slots; `spark` is another one afterwards."""
        self._stop()
        spark = self._session(f"local[{slots}]")
        try:
            yield spark
        finally:
            spark.stop()

    @contextmanager
    def on_hosts(self, count: int, *, slots: int) -> Iterator[BenchHosts]:
        """So many hosts on this machine with a session; `spark` is another one afterwards."""
        self._stop()

        def session(master: str, settings: Mapping[str, str]) -> SparkSession:
            return self._session(master, {**spark_settings(), **settings})

        # Nothing of them may be left behind when the command is told to stop.
        with heeding_stops(stop_at_once), started_hosts(count, slots=slots, session=session) as hosts:
            yield hosts

    def kept(self, name: str, **settings: Any) -> KeptRounds:
        """What an earlier run of the experiment ``name`` has measured before it was cut off, with these settings."""
        path = None if self.keep is None else self.keep / f"{name}.rounds"
        return KeptRounds(path, {"records": self.records, **settings})

    def _stop(self) -> None:
        if "spark" in vars(self):
            self.spark.stop()
            del vars(self)["spark"]

    def _session(self, master: str, config: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
        config = {"spark.ui.enabled": "false", "spark.driver.memory": DRIVER_MEMORY, **config}
        if self.log is not None:
            hush_python()
        with jvm_output(self.log):
            return af.session(master, app_name="afspark bench", config=config)

    @cached_property
    def text(self) -> Path:
        return text_files(self.inputs, self.batches)

    @cached_property
    def packets(self) -> Path:
        return packet_files(self.inputs, self.batches, PACKETS_PER_FILE)

    @property
    def packet_bytes(self) -> int:
        """The bytes of the largest file of packets: a batch is one file for everybody."""
        return max(file.stat().st_size for file in self.packets.iterdir())
