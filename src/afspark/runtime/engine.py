"""The batch loop: orders out, reports in, record written, results handed on.

Runs in the driver, inside ``foreachBatch``, in an order that survives a kill at any point: losses are durable
before recoveries, backups before the record that names them, the record before Spark commits the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import DataFrame

from afspark.errors import CheckpointError, WorkerFailed
from afspark.runtime.faults import Phase
from afspark.runtime.offsets import chunks_of_batch
from afspark.runtime.orders import Mission, Order, Report
from afspark.runtime.pipeline import Pipeline, RunOptions
from afspark.runtime.placement import driver_host
from afspark.runtime.progress import BatchProgress, summarise
from afspark.runtime.roster import digests_agree
from afspark.runtime.sources import Chunk, Source, share
from afspark.runtime.stages import run_exchange, run_fast_path, run_frame, run_orders, strike_workers
from afspark.runtime.workforce import Workforce
from afspark.store import CommitRecord, Ledger, QueryIdentity, RecordLog, Store
from afspark.store.epochs import newest_batch

#: How often a stage is run again before the query gives up; Spark has retried its tasks before.
STAGE_TRIES = 12

#: Room for taken-back batches below the epoch's number in a fence.
FENCE_BITS = 20


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
        self._committed: int | None = None

    def run(self, batch: int, frame: DataFrame, deliver: Callable[[int], None]) -> BatchProgress:
        """Applies ``batch`` on all workers, calls ``deliver(batch)`` and commits it.

        ``deliver`` may be called again for the same batch: after a crash, and if a worker that kept rows of the
        batch was lost before they were read.
        """
        started = time.perf_counter()
        first = self.workforce is None
        workforce = self.workforce or self._open(batch)
        apply = partial(self._apply, workforce, batch, frame, self._shares(batch, first))
        tries, reports = self._delivered(apply, deliver, batch)
        self._strike(batch, Phase.COMMITTING)
        recovered = workforce.advance(reports)
        for name in self.totals:
            self.totals[name] += sum(getattr(report, name) for report in reports)
        self._commit(workforce, batch)
        self._committed = batch
        self._strike(batch, Phase.COMMITTED)
        return summarise(
            batch=batch,
            reports=reports,
            members=workforce.members,
            terms=workforce.terms,
            recovered=recovered,
            tries=tries,
            seconds=time.perf_counter() - started,
        )

    def ready(self) -> Workforce:
        """The workers at rest, all with their state: those that lost it meanwhile are recovered first.

        Also serves a query that has nothing new to process since its driver was started.
        """
        batch = self._committed_by_spark() + 1 if self._committed is None else self._committed + 1
        workforce = self.workforce or self._open(batch)
        for attempt in range(1, STAGE_TRIES + 1):
            orders = [replace(order, apply=False) for order in workforce.orders(batch)]
            reports = self._reports(orders, partial(run_orders, self.sc, workforce.mission, self.work, orders))
            if workforce.settle(batch, reports):
                workforce.rest([report for report in reports if report is not None])
                return workforce
            time.sleep(0.1 * (attempt - 1))
        raise self._gave_up(batch)

    def _committed_by_spark(self) -> int:
        names = [name.rsplit("/", 1)[-1] for name in self.checkpoint.list("commits")]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _delivered(
        self, apply: Callable[[], tuple[int, list[Report]]], deliver: Callable[[int], None], batch: int
    ) -> tuple[int, list[Report]]:
        """Applies and delivers. A failed delivery is tried again only if a worker turns out to be lost."""
        while True:
            applied = apply()
            losses = len(self.ledger.entries())
            try:
                deliver(batch)
            except Exception:
                apply()
                if len(self.ledger.entries()) == losses:
                    raise
                continue
            return applied

    def _open(self, batch: int) -> Workforce:
        self._refuse_if_rewound(batch)
        record = self.log.open_epoch(batch - 1)
        mission = Mission(
            query_id=self.identity.query_id,
            fingerprint=self.identity.fingerprint,
            operator_name=self.pipeline.name,
            workers=self.pipeline.workers,
            checkpoint=self.options.checkpoint,
            store=self.store,
            epoch=self.log.epoch,
            driver_host=driver_host(self.sc),
            segments=self.options.segments,
            emit=self.options.emit,
            faults=self.options.faults,
        )
        workforce = Workforce(
            self.sc,
            mission,
            self.pipeline.terms,
            self.ledger,
            host_grace_seconds=self.options.host_grace_seconds,
            fence=self.log.epoch_number << FENCE_BITS,
        )
        workforce.gather(batch, record, self._passed_over(batch, record))
        if record is not None:
            self.totals = {name: int(record.extra.get(name, 0)) for name in self.totals}
        self.workforce = workforce
        return workforce

    def _refuse_if_rewound(self, batch: int) -> None:
        """Spark's part of the checkpoint and ours must be of one age, or batches would be applied again."""
        newest = newest_batch(self.store)
        if newest is not None and newest > batch:
            raise CheckpointError(
                f"Spark wants to run batch {batch}, but the checkpoint has records up to batch {newest}.",
                remedy="Restore the checkpoint folder as a whole, or start with a new one.",
                batch=batch,
                newest=newest,
            )

    def _passed_over(self, batch: int, record: CommitRecord | None) -> list[str]:
        """What is missing between the record found and the batch before ``batch``."""
        if not self.pipeline.tolerance.recovers or (record.batch if record else -1) >= batch - 1:
            return []
        return [damage.name for damage in self.log.damaged] or [f"record of batch {batch - 1}"]

    def _shares(self, batch: int, first: bool) -> list[list[Chunk]]:
        if self.planner is None:
            return []
        shares = share(chunks_of_batch(self.checkpoint, self.planner, batch), self.pipeline.workers)
        if first:
            # Input removed while the query was down is left out; while it runs, that is an error. The others
            # keep their shares: some workers may have applied theirs before the query went down.
            gone = self.planner.missing([chunk for chunks in shares for chunk in chunks])
            shares = [[chunk for chunk in chunks if chunk not in gone] for chunks in shares]
        return shares

    def _apply(
        self, workforce: Workforce, batch: int, frame: DataFrame, shares: Sequence[Sequence[Chunk]]
    ) -> tuple[int, list[Report]]:
        for attempt in range(1, STAGE_TRIES + 1):
            reports = self._stage(workforce, batch, frame, shares)
            if workforce.settle(batch, reports):
                applied = [report for report in reports if report is not None]
                if digests_agree(applied):
                    return attempt, applied
                self._roll_back(workforce, batch)
            time.sleep(0.1 * (attempt - 1))
        raise self._gave_up(batch)

    def _gave_up(self, batch: int) -> WorkerFailed:
        return WorkerFailed(
            f"Batch {batch} could not be applied in {STAGE_TRIES} tries.",
            remedy="See the executors' logs. The state is kept: the same command goes on from here.",
            batch=batch,
        )

    def _stage(
        self, workforce: Workforce, batch: int, frame: DataFrame, shares: Sequence[Sequence[Chunk]]
    ) -> list[Report | None]:
        """One try of the batch."""
        orders = workforce.orders(batch)
        stage = partial(run_exchange if self.pipeline.keyed else run_fast_path, shares=shares)
        if self.planner is None:
            stage = partial(run_frame, frame=frame)
        return self._reports(orders, partial(stage, self.sc, workforce.mission, self.work, orders))

    def _reports(self, orders: Sequence[Order], job: Callable[[], list[Report]]) -> list[Report | None]:
        """The workers' reports; None for all if the job died, which Spark has tried to prevent by retries."""
        reports: list[Report | None] = [None] * len(orders)
        try:
            found = job()
        except Py4JJavaError:
            if self.sc._jsc.sc().isStopped():
                raise
            return reports
        for report in found:
            reports[report.worker] = report
        return reports

    def _roll_back(self, workforce: Workforce, batch: int) -> None:
        """Takes the batch back everywhere: a retried stage has given some workers other items."""
        run_orders(self.sc, workforce.mission, self.work, workforce.take_back(batch))

    def _commit(self, workforce: Workforce, batch: int) -> None:
        terms = workforce.terms
        if not terms.tolerance.recovers:
            return
        records = tuple(member.record(terms) for member in workforce.members)
        self.log.write(CommitRecord(batch, self.log.epoch, {self.pipeline.name: records}, dict(self.totals)))
        if self._committed is None:
            # Not before the first record of this epoch: it may name a backup that an earlier driver had written.
            self.log.sweep()
        self.log.prune()

    def _strike(self, batch: int, phase: Phase) -> None:
        assert self.workforce is not None
        plan = self.options.faults
        if plan.strikes_at(batch, phase):
            strike_workers(self.sc, self.workforce.mission, self.workforce.homes, batch, phase)
