"""One worker that aggregates by key, on hosts of this machine."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import afspark as af
from afspark.bench.bench_hosts import BenchHosts
from afspark.bench.filling_packets import FillingPackets
from afspark.bench.topology import CHUNK_RECORDS, RECORD_BYTES, aggregate_of
from afspark.errors import AfsparkError

#: Each key is met so often on the average before anything is measured: 95 % of the keys are there then.
FILLED = 3
_FILLING_SECONDS = 900.0
_ENDLESS = 10**13
_LOOK_SECONDS = 0.01
_ALIVE_SECONDS = 1.0


class TookTooLong(AfsparkError):
    """A query did not come to where an experiment waits for it."""


@dataclass(frozen=True, kw_only=True)
class ReplicaCase:
    """``keys`` keys, in batches of ``records``. ``pause``: milliseconds from the start of one batch to that of the
    next, 0: none. ``options``: of the query.
    """

    keys: int
    records: int = CHUNK_RECORDS
    pause: int = 0
    options: Mapping[str, float] = field(default_factory=dict)

    @contextmanager
    def running(self, hosts: BenchHosts, tolerance: af.Tolerance) -> Iterator[af.Query]:
        """The query, with all keys in its state; at the end it is stopped, and what it has left is removed."""
        checkpoint = tempfile.mkdtemp(prefix="afspark-bench-")
        filling = FILLED * self.keys
        chunks = -(-filling // CHUNK_RECORDS)
        packets = FillingPackets(_ENDLESS, exponent=0.0, pairs=self.keys, filling=chunks)
        writer = aggregate_of(hosts.spark, tolerance, packets)
        for option, value in self.options.items():
            writer = writer.option(option, value)
        writer = writer.option("checkpointLocation", checkpoint)
        if self.pause:
            writer = writer.trigger(processingTime=f"{self.pause} milliseconds")
        try:
            query = writer.option("batchBytes", self.records * RECORD_BYTES).start()
            with _stopped(query):
                wait_until(query, lambda: query.totals.items >= filling, _FILLING_SECONDS, what="all keys")
                yield query
            query.release()
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)


def wait_until(query: af.Query, done: Callable[[], bool], seconds: float, *, what: str = "the next batch") -> None:
    """Waits until something is so; `TookTooLong` after so many seconds, and what made the query fail if it has."""
    deadline = time.monotonic() + seconds
    check = time.monotonic() + _ALIVE_SECONDS
    while not done():
        now = time.monotonic()
        if now >= check:
            if not query.isActive:
                query.raise_failure()
                raise TookTooLong(f"The query has ended before {what}: {query.exception()}.")
            check = now + _ALIVE_SECONDS
        if now >= deadline:
            raise TookTooLong(f"{what} did not come within {seconds:.0f} s.")
        time.sleep(_LOOK_SECONDS)


def wait_for_scheme(query: af.Query, tolerance: af.Tolerance, seconds: float = 120.0) -> None:
    """Waits until ``tolerance`` protects every worker."""

    def stands() -> bool:
        found = query.protections()
        return bool(found) and all(one == tolerance.name for one in found.values())

    wait_until(query, stands, seconds, what=f"protection by {tolerance.name}")


def wait_for_batches(query: af.Query, batches: int, seconds: float = 120.0) -> None:
    """Waits for so many batches more."""
    goal = query.totals.batches + batches
    wait_until(query, lambda: query.totals.batches >= goal, seconds, what=f"{batches} more batches")


@contextmanager
def _stopped(query: af.Query) -> Iterator[None]:
    """Stops the query at the end of the block, in an orderly way unless the block has failed."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            query.spark_query.stop()
        raise
    query.stop()
