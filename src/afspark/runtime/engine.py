"""The batch loop: orders out, reports in, record written, results handed on.

Runs in the driver, inside ``foreachBatch``, in an order that survives a kill at any point: losses are durable
before recoveries, backups before the record that names them, the record before Spark commits the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import DataFrame

from afspark.errors import WorkerFailed
from afspark.runtime.faults import Phase
from afspark.runtime.lifecycle import Hint
from afspark.runtime.offsets import chunks_of_batch
from afspark.runtime.orders import Mission, Report
from afspark.runtime.pipeline import Pipeline, RunOptions
from afspark.runtime.placement import driver_host
from afspark.runtime.progress import BatchProgress, summarise
from afspark.runtime.roster import digests_agree
from afspark.runtime.sources import Chunk, Source, share
from afspark.runtime.stages import run_exchange, run_fast_path, run_frame, run_orders, strike_workers
from afspark.runtime.workforce import Workforce
from afspark.store import CommitRecord, Ledger, QueryIdentity, RecordLog, Store

#: How often a stage is run again before the query gives up; Spark has retried its tasks before.
STAGE_TRIES = 12


class Engine:
    """Runs the batches of one query, one after the other."""

    def __init__(
        self, sc: SparkContext, pipeline: Pipeline, options: RunOptions, identity: QueryIdentity, checkpoint: Store
    ) -> None:
        self.sc, self.pipeline, self.options, self.identity = sc, pipeline, options, identity
        self.checkpoint = checkpoint
        self.store = checkpoint.below("afspark")
        self.work = pipeline.work
        self.ledger = Ledger(self.store)
        self.log = RecordLog(self.store)
        source = pipeline.source
        self.planner = source.planner(self.store.below("source")) if isinstance(source, Source) else None
        self.workforce: Workforce | None = None
        self.totals = {"items": 0, "bytes": 0}

    def run(self, batch: int, frame: DataFrame, deliver: Callable[[int], None]) -> BatchProgress:
        """Applies ``batch`` on all workers, commits it and calls ``deliver(batch)``."""
        started = time.perf_counter()
        first = self.workforce is None
        workforce = self.workforce or self._open(batch)
        tries, reports = self._apply(workforce, batch, frame, self._chunks(batch, first))
        self._strike(batch, Phase.COMMITTING)
        recovered = workforce.advance(reports)
        for name in self.totals:
            self.totals[name] += sum(getattr(report, name) for report in reports)
        self._commit(workforce, batch)
        self._strike(batch, Phase.COMMITTED)
        deliver(batch)
        return summarise(
            batch=batch,
            reports=reports,
            members=workforce.members,
            terms=workforce.terms,
            recovered=recovered,
            tries=tries,
            seconds=time.perf_counter() - started,
        )

    def _open(self, batch: int) -> Workforce:
        record = self.log.open_epoch(batch - 1)
        mission = Mission(
            query_id=self.identity.query_id,
            fingerprint=self.identity.fingerprint,
            operator_name=self.pipeline.name,
            workers=self.pipeline.workers,
            checkpoint=self.options.checkpoint,
            store_uri=f"{self.options.checkpoint.rstrip('/')}/afspark",
            epoch=self.log.epoch,
            driver_host=driver_host(self.sc),
            segments=self.options.segments,
            emit=self.options.emit,
            faults=self.options.faults,
        )
        workforce = Workforce(
            self.sc, mission, self.pipeline.terms, self.ledger, self.options.host_grace_seconds
        )
        workforce.gather(batch, record)
        if record is not None:
            self.totals = {name: int(record.extra.get(name, 0)) for name in self.totals}
        self.log.sweep()
        self.workforce = workforce
        return workforce

    def _chunks(self, batch: int, first: bool) -> list[Chunk]:
        if self.planner is None:
            return []
        chunks = chunks_of_batch(self.checkpoint, self.planner, batch)
        if first:
            # Input removed while the query was down is left out; while it runs, that is an error.
            gone = self.planner.missing(chunks)
            chunks = [chunk for chunk in chunks if chunk not in gone]
        return chunks

    def _apply(
        self, workforce: Workforce, batch: int, frame: DataFrame, chunks: Sequence[Chunk]
    ) -> tuple[int, list[Report]]:
        for attempt in range(1, STAGE_TRIES + 1):
            reports = self._stage(workforce, batch, frame, chunks)
            if workforce.settle(batch, reports):
                applied = [report for report in reports if report is not None]
                if digests_agree(applied):
                    return attempt, applied
                self._roll_back(workforce, batch)
            time.sleep(0.1 * (attempt - 1))
        raise WorkerFailed(
            f"Batch {batch} could not be applied in {STAGE_TRIES} tries.",
            remedy="See the executors' logs. The state is kept: the same command goes on from here.",
            batch=batch,
        )

    def _stage(
        self, workforce: Workforce, batch: int, frame: DataFrame, chunks: Sequence[Chunk]
    ) -> list[Report | None]:
        """One try; None for workers that gave no report because the job died."""
        orders = workforce.orders(batch)
        reports: list[Report | None] = [None] * len(orders)
        try:
            if self.planner is None:
                found = run_frame(self.sc, workforce.mission, self.work, orders, frame)
            else:
                run = run_exchange if self.pipeline.keyed else run_fast_path
                found = run(self.sc, workforce.mission, self.work, orders, share(chunks, len(orders)))
        except Py4JJavaError:
            if self.sc._jsc.sc().isStopped():
                raise
            return reports
        for report in found:
            reports[report.worker] = report
        return reports

    def _roll_back(self, workforce: Workforce, batch: int) -> None:
        """Takes the batch back everywhere: a retried stage has given some workers other items."""
        orders = [replace(order, hint=Hint.ROLLBACK) for order in workforce.orders(batch)]
        run_orders(self.sc, workforce.mission, self.work, orders)

    def _commit(self, workforce: Workforce, batch: int) -> None:
        terms = workforce.terms
        if not terms.tolerance.recovers:
            return
        records = tuple(member.record(terms) for member in workforce.members)
        self.log.write(CommitRecord(batch, self.log.epoch, {self.pipeline.name: records}, dict(self.totals)))
        self.log.prune()

    def _strike(self, batch: int, phase: Phase) -> None:
        assert self.workforce is not None
        plan = self.options.faults
        if plan.strikes_at(batch, phase):
            strike_workers(self.sc, self.workforce.mission, self.workforce.homes, batch, phase)
