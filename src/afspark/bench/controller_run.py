"""A day of bursts under the controller: what came, how large the state was, what was chosen, and what was known."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import afspark as af
from afspark.bench.bench_hosts import BenchHosts
from afspark.bench.controller_replay import Look
from afspark.bench.live_records import OPERATOR, LiveRecords, live_sums

LOOK_SECONDS = 0.5
#: From the start of the query to that of the day. The first batch of a cold query ends after 25 s on two cores, and the
#: first scheme needs some more until it is in force: both are over when the day begins.
LEAD_SECONDS = 45
PAUSE = 500


@dataclass(frozen=True, kw_only=True)
class ControllerSample:
    """The day at a moment, in seconds since it began."""

    at: float
    records: int
    state: int
    protection: str
    wanted: str


@dataclass
class WatchedDay:
    """A query that runs, and a thread that looks at it."""

    query: af.Query
    began: float
    moments: list[ControllerSample] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            # What is looked at changes meanwhile; the next look is soon.
            with suppress(RuntimeError, LookupError):
                self._look()

    def end(self) -> None:
        self._ended.set()

    def _look(self) -> None:
        now, last = time.time(), self.query.lastProgress
        if now < self.began or last is None:
            return
        engine: Any = self.query._engine
        self.looks.append(Look(now, engine.control.meters.situation(engine.operator(OPERATOR), 0, now)))
        decisions = self.query.decisions()
        self.moments.append(
            ControllerSample(
                at=now - self.began,
                records=self.query.totals.items,
                state=last["state"]["bytes"],
                protection=self.query.protections(OPERATOR).get(0, ""),
                wanted=decisions[-1]["to"] if decisions else "",
            )
        )


@contextmanager
def watched_day(
    hosts: BenchHosts, tolerance: af.Tolerance, *, rows: int, seconds: float, seed: int
) -> Iterator[WatchedDay]:
    """A day of so many records, from the moment when it begins; at the end of the block the query is stopped."""
    hosts.complete()
    checkpoint = tempfile.mkdtemp(prefix="afspark-bench-")
    began = time.time() + LEAD_SECONDS
    writer = live_sums(hosts.spark, tolerance, LiveRecords(rows, seconds, began, seed, lead=LEAD_SECONDS))
    writer = writer.option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime=f"{PAUSE} milliseconds").start()
    day = WatchedDay(query, began)
    thread = threading.Thread(target=day.watch, name="afspark-bench-day", daemon=True)
    thread.start()
    try:
        yield day
        query.stop()
        query.release()
    finally:
        day.end()
        thread.join()
        with suppress(Exception):
            query.spark_query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
