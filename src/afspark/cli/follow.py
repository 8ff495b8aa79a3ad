"""Waits for a query, shows how it goes, and stops it gently when the user asks for that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from afspark.api.query import Query
from afspark.cli.progressbar import Display, Snapshot
from afspark.cli.signals import heeding_stops

POLL_SECONDS = 0.1


class Interrupted(KeyboardInterrupt):
    """The user asked to stop; the batch at work was ended first. ``batches`` of this run are done."""

    def __init__(self, number: int, batches: int) -> None:
        super().__init__(number, batches)
        self.signal, self.batches = number, batches


class StopRequest:
    """The first Ctrl-C or SIGTERM sets it; a second one ends the process at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def catching_stop() -> Iterator[StopRequest]:
    """Takes the signals over from pyspark, which would cancel the jobs of the batch at work."""
    request = StopRequest()
    with heeding_stops(request):
        yield request


def follow(query: Query, display: Display) -> float:
    """Waits for the end; returns the seconds since the first batch began.

    Raises what made the query fail, or Interrupted after it was stopped at the user's wish.
    """
    started: float | None = None
    with catching_stop() as request:
        while True:
            before = time.perf_counter()
            ended = query.awaitTermination(POLL_SECONDS)
            totals = query.totals
            if started is None and totals.batches:
                # The first batch ended after the look before this one.
                started = before - totals.seconds
            now = time.perf_counter()
            display.show(
                Snapshot(
                    bytes=totals.bytes,
                    items=totals.items,
                    batches=totals.batches,
                    backups=totals.backups["count"],
                    recoveries=totals.recoveries,
                    seconds=now - started if started is not None else 0.0,
                )
            )
            if ended:
                return now - started if started is not None else 0.0
            if request.signal is not None:
                display.note("Stopping after the batch at work …")
                query.stop()
                raise Interrupted(request.signal, query.totals.batches)
