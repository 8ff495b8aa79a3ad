"""Waits for a query, shows how it goes, and stops it gently when the user asks for that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from afspark.api.query import Query
from afspark.cli.failures import own_error
from afspark.cli.progressbar import Display, RunProgress
from afspark.cli.signals import heeding_stops
from afspark.cluster.spark.foreign_errors import is_sparks

POLL_SECONDS = 0.1


class Interrupted(KeyboardInterrupt):
    """The user asked to stop. ``batches`` of this run are done; the query has ended in an ``orderly`` way, unless Spark
    was gone by then.
    """

    def __init__(self, number: int, batches: int, *, orderly: bool = True) -> None:
        super().__init__(number, batches)
        self.signal, self.batches, self.orderly = number, batches, orderly


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


def ended_with_spark(error: BaseException) -> bool:
    """Whether an error of a query that is to stop says that the signal has ended Spark as well, and no more."""
    return (is_sparks(error) or isinstance(error, ConnectionError)) and own_error(error) is None


def follow(query: Query, display: Display) -> float:
    """Waits for the end; returns the seconds since the first batch began.

    Raises what made the query fail, or Interrupted after it was stopped at the user's wish.
    """
    with catching_stop() as request:
        try:
            return _followed(query, display, request)
        except Exception as error:
            if request.signal is None or not ended_with_spark(error):
                raise
            raise Interrupted(request.signal, query.totals.batches, orderly=False) from error


def _followed(query: Query, display: Display, request: StopRequest) -> float:
    started: float | None = None
    while True:
        before = time.perf_counter()
        ended = query.awaitTermination(POLL_SECONDS)
        totals = query.totals
        if started is None and totals.batches:
            # The first batch ended after the look before this one.
            started = before - totals.seconds
        now = time.perf_counter()
        display.show(
            RunProgress(
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
