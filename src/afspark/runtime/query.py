"""A running pipeline, as the user holds it: the habits of Spark's StreamingQuery, plus what only we know."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from afspark.runtime.engine import Engine
from afspark.runtime.orders import Mission
from afspark.runtime.progress import BatchProgress, Totals, realised_bounds
from afspark.runtime.results import changed_rows, current_results
from afspark.runtime.stages import release_segments

Deliver = Callable[[DataFrame, int], None]


class Query:
    """One run of a pipeline. Made by ``writeStream.start()``."""

    def __init__(self, spark: SparkSession, engine: Engine, deliver: Deliver | None, mode: str) -> None:
        self._spark, self._engine = spark, engine
        self._deliver, self._mode = deliver, mode
        self._query: StreamingQuery | None = None
        self._batch_lock = threading.Lock()
        self._stopping = False
        self._failure: BaseException | None = None
        self._last: BatchProgress | None = None
        self.totals = Totals()

    # --- Spark's habits -------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Stable over restarts from the same checkpoint."""
        return self._engine.identity.query_id

    @property
    def name(self) -> str | None:
        return self._spark_query.name

    @property
    def isActive(self) -> bool:
        return self._spark_query.isActive

    @property
    def status(self) -> dict[str, Any]:
        return dict(self._spark_query.status)

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """The last committed batch: items, bytes, backups, recoveries, thresholds per worker."""
        return self._last.to_json() if self._last else None

    @property
    def spark_query(self) -> StreamingQuery:
        """The Structured Streaming query underneath."""
        return self._spark_query

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Waits until the query ends; raises what made it fail. With a timeout: whether it has ended."""
        try:
            ended = self._spark_query.awaitTermination(timeout)  # type: ignore[arg-type]
        except StreamingQueryException:
            self.raise_failure()
            if self._stopping:
                return True
            raise
        return True if timeout is None else bool(ended)

    def processAllAvailable(self) -> None:
        """Waits until everything that is in the source now has been processed."""
        try:
            self._spark_query.processAllAvailable()
        except StreamingQueryException:
            self.raise_failure()
            raise

    def stop(self) -> None:
        """Lets the batch at work end, then stops. The state stays resident and is found by the next start."""
        self._stopping = True
        with self._batch_lock:
            self._spark_query.stop()

    def exception(self) -> BaseException | None:
        return self._failure or self._spark_query.exception()

    # --- ours -----------------------------------------------------------------------------------------------

    def results(self) -> DataFrame:
        """The operator's results as of the last committed batch, merged over all workers.

        The DataFrame reads resident state when it runs: use it before the next batch, or after the end.
        """
        with self._batch_lock:
            workforce, pipeline = self._engine.ready(), self._engine.pipeline
            return current_results(
                self._spark, workforce.mission, pipeline.operator, workforce.members, keyed=pipeline.keyed
            )

    def bounds(self) -> dict[str, float]:
        """Per state: how far failures so far can have moved it at most. 0 before any failure."""
        workforce = self._engine.workforce
        return realised_bounds(workforce.terms, workforce.members) if workforce else {}

    def tolerance(self) -> list[dict[str, Any]]:
        """Thresholds in force per worker, and why."""
        workforce = self._engine.workforce
        if workforce is None:
            return []
        return [
            {
                "worker": member.worker,
                "host": member.home,
                "incarnation": member.incarnation,
                "failures": member.failures,
                "theta": workforce.terms.theta(member.failures),
            }
            for member in workforce.members
        ]

    def ledger(self) -> list[dict[str, Any]]:
        """Every loss of this query since its checkpoint was made, oldest first."""
        return [
            {
                "operator": entry.loss.operator,
                "worker": entry.loss.worker,
                "batch": entry.loss.batch,
                "incarnation": entry.loss.incarnation,
                "cause": entry.loss.cause,
                "counted": entry.loss.counted,
                "theta": dict(entry.loss.theta),
                "failures": entry.loss.failures,
                "at": entry.loss.at,
                "recovery_seconds": entry.recovery.seconds if entry.recovery else None,
                "restored_cells": entry.recovery.restored_cells if entry.recovery else None,
                "damaged": list(entry.recovery.damaged) if entry.recovery else [],
                "covered": entry.recovery.covered if entry.recovery else None,
            }
            for entry in self._engine.ledger.entries()
        ]

    def release(self) -> None:
        """Removes the resident state from all hosts. A later start recovers from the backups."""
        if self._engine.workforce is not None:
            release_segments(self._spark.sparkContext, self._mission, self._engine.workforce.homes)

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- inside foreachBatch --------------------------------------------------------------------------------

    def attach(self, query: StreamingQuery) -> None:
        self._query = query

    def run_batch(self, frame: DataFrame, batch: int) -> None:
        """What Spark calls for every micro-batch."""
        # Never wait for the lock while stop() holds it: Spark's own stop waits for this very call to end.
        while not self._batch_lock.acquire(timeout=0.05):
            self._refuse_if_stopping()
        try:
            self._refuse_if_stopping()
            self._last = self._engine.run(batch, frame, self._hand_on)
            self.totals.add(self._last)
        except Exception as error:
            self._failure = self._failure or (None if self._stopping else error)
            raise
        finally:
            self._batch_lock.release()

    def _refuse_if_stopping(self) -> None:
        if self._stopping:
            # Returning would let Spark commit a batch that nobody has applied.
            raise RuntimeError("the query is stopping")

    def _hand_on(self, batch: int) -> None:
        if self._deliver is None:
            return
        workforce, pipeline = self._engine.workforce, self._engine.pipeline
        assert workforce is not None
        if self._mode == "update":
            frame = changed_rows(self._spark, self._mission, pipeline.operator, workforce.homes, batch)
        else:
            frame = current_results(
                self._spark, self._mission, pipeline.operator, workforce.members, keyed=pipeline.keyed
            )
        self._deliver(frame, batch)

    @property
    def _spark_query(self) -> StreamingQuery:
        assert self._query is not None
        return self._query

    @property
    def _mission(self) -> Mission:
        assert self._engine.workforce is not None, "no batch has run yet"
        return self._engine.workforce.mission
