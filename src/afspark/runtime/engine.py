"""The batch loop: orders out, reports in, record written, results handed on.

Runs in the driver, inside ``foreachBatch``, in an order that survives a kill at any point: losses are durable
before recoveries, backups before the record that names them, the record before Spark commits the batch.

The operators of a pipeline run one after the other, each as a stage of its own; what they send is kept beside
their state until the next batch, so that a stage can be run again for those that need it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import DataFrame

from afspark.errors import CheckpointError, UsageError, WorkerFailed
from afspark.model.windows import Punctuation
from afspark.runtime.assurance import told_facts
from afspark.runtime.clock import Clock
from afspark.runtime.coverage import declare_damaged_log, declare_unread_records
from afspark.runtime.crew import Crew
from afspark.runtime.ending import ending_batch, intended, is_intended, refuse_if_unfinished
from afspark.runtime.faults import Phase
from afspark.runtime.inlets import Inlets, Slices
from afspark.runtime.missions import mission_of
from afspark.runtime.offsets import batch_time, newest_of
from afspark.runtime.orders import Order, Report
from afspark.runtime.pipeline import Node, Pipeline, RunOptions
from afspark.runtime.placement import driver_host
from afspark.runtime.programme import programmes
from afspark.runtime.progress import BatchProgress, summarise
from afspark.runtime.quarantining import note_bad
from afspark.runtime.reception import Reception
from afspark.runtime.roster import digests_agree
from afspark.runtime.sources import Planner, Source
from afspark.runtime.stages import run_orders, run_stage, strike_workers
from afspark.runtime.workforce import Workforce
from afspark.store import CommitRecord, Entry, Ledger, QueryIdentity, RecordLog, Store, ThrottledStore
from afspark.store.epochs import newest_batch
from afspark.store.identity import attached
from afspark.store.itemlosses import ItemLosses
from afspark.store.lease import Lease
from afspark.store.naming import FOLDER
from afspark.store.quarantine import Quarantine

#: How often a batch is tried before the query gives up; Spark has retried its tasks before.
BATCH_TRIES = 12

#: Room for taken-back batches below the epoch's number in a fence.
FENCE_BITS = 20


class Engine:
    """Runs the batches of one query, one after the other."""

    def __init__(
        self, sc: SparkContext, pipeline: Pipeline, options: RunOptions, identity: QueryIdentity, checkpoint: Store
    ) -> None:
        self.sc, self.pipeline, self.options, self.identity = sc, pipeline, options, identity
        self.checkpoint = attached(checkpoint, options.store_wait_seconds)
        self.store = self.checkpoint.below(FOLDER)
        if options.throttle is not None:
            self.store = ThrottledStore(self.store, options.throttle)
        self.ledger = Ledger(self.store)
        self.log = RecordLog(self.store)
        self.lease = Lease(self.store, self.log, seconds=options.lease_seconds)
        self.item_losses = ItemLosses(self.store)
        self.quarantine = Quarantine(self.store)
        self.planners = {
            name: source.planner(self.store.below(source_folder(name)))
            for name, source in pipeline.sources.items()
            if isinstance(source, Source)
        }
        self.reception = Reception(
            sc, pipeline, {name: self.store.below(source_folder(name)) for name in pipeline.sources}
        )
        self.inlets = Inlets(pipeline, self.planners, self.checkpoint, self.reception)
        self.crews: list[Crew] = []
        #: an earlier start has begun a batch; Spark may run that one again
        self.resumed = newest_of(checkpoint, "offsets") is not None
        self.totals = {"items": 0, "bytes": 0}
        #: every operator was told that the stream has ended
        self.told = False
        self._committed: int | None = None
        #: what workers said last
        self._last: Sequence[Report | None] = ()

    # --- for a pipeline of one operator ---------------------------------------------------------------------

    @property
    def workforce(self) -> Workforce | None:
        return self.crews[-1].workforce if self.crews else None

    @property
    def planner(self) -> Planner | None:
        return next(iter(self.planners.values()), None)

    def crew(self, name: str | None = None) -> Crew:
        """The crew of a node; without a name that of the last one."""
        return self._chosen(self.crews, name)

    def operator(self, name: str | None = None) -> Crew:
        """The crew of an operator that the user has written; without a name that of the last one."""
        return self._chosen([crew for crew in self.crews if not crew.node.internal], name)

    def _chosen(self, crews: Sequence[Crew], name: str | None) -> Crew:
        found = [crew for crew in crews if name in (None, crew.name)]
        if not found:
            raise UsageError(
                f"There is no operator {name!r} at work.",
                remedy=f"The pipeline has {', '.join(node.name for node in self.pipeline.operators)}.",
            )
        return found[-1]

    # --- batches --------------------------------------------------------------------------------------------

    def run(self, batch: int, frame: DataFrame | None, deliver: Callable[[int], None]) -> BatchProgress:
        """Applies ``batch`` on all workers, calls ``deliver(batch)`` and commits it.

        ``deliver`` may be called again for the same batch: after a crash, and if a worker that kept rows of the
        batch was lost before they were read.
        """
        first = not self.crews
        if self.ended or (first and is_intended(self.store)):
            raise CheckpointError(
                "The stream of this checkpoint has been ended.", remedy="Start with a new checkpoint.", batch=batch
            )
        self._ready(batch)
        slices = self.inlets.slices(batch, first=first)
        return self._run(batch, batch_time(self.checkpoint, batch), frame, slices, deliver)

    def end(self, deliver: Callable[[int], None]) -> list[BatchProgress]:
        """Ends the stream: closes all windows, from the source to the sinks, then tells every operator.

        Takes one batch without items per level of windows and one for the end itself; their numbers follow those
        of Spark, which will run none any more.
        """
        done: list[BatchProgress] = []
        refuse_if_unfinished(self.checkpoint)
        batch = self._next_batch()
        self._ready(batch)
        now = intended(self.store, batch)
        while not self.ended:
            # From the last record alone it must follow what this batch is, so that a killed driver can repeat it.
            last = not self.told and not any(crew.waits for crew in self.crews)
            done.append(self._run(batch, now, None, {}, deliver, ending=True, last=last))
            batch += 1
        return done

    @property
    def ended(self) -> bool:
        """Every operator was told, and what they sent then has left its windows."""
        return self.told and not any(crew.waits for crew in self.crews)

    def ready(self) -> list[Crew]:
        """The workers at rest, all with their state: those that lost it meanwhile are recovered first.

        Also serves a query that has nothing new to process since its driver was started.
        """
        batch = self._next_batch()
        self._ready(batch)
        for crew in self.crews:
            # A loss found now strikes what the last batch left behind, not what it had found.
            crew.open_day(0.0)
        self._revive(batch, complete=True)
        return self.crews

    def _next_batch(self) -> int:
        if self._committed is not None:
            return self._committed + 1
        # Batches that ended the stream are ours alone; Spark knows nothing of them.
        last = ending_batch(self.store)
        if last is None:
            last = newest_of(self.checkpoint, "commits")
        return 0 if last is None else last + 1

    def _run(
        self,
        batch: int,
        now: float,
        frame: DataFrame | None,
        slices: Slices,
        deliver: Callable[[int], None],
        *,
        ending: bool = False,
        last: bool = False,
    ) -> BatchProgress:
        started = time.perf_counter()
        if self.options.faults.strikes_workers(batch):
            self.reception.crash()
        self._open_day(now, ending=ending, last=last)
        clock = Clock({})
        apply = partial(self._apply, batch, frame, slices)
        tries, recovered = self._delivered(apply, deliver, batch, clock)
        self._strike(batch, Phase.COMMITTING)
        for crew in self.crews:
            crew.workforce.advance(crew.reports)
        entrances = [crew for crew in self.crews if self.inlets.reads_source(crew.node)]
        for name in self.totals:
            self.totals[name] += sum(getattr(report, name) for crew in entrances for report in crew.reports)
        committing = time.perf_counter()
        self.told = self.told or last
        self._take_note(batch)
        self._commit(batch, ending=ending)
        self._let_go(batch)
        clock.lap("record", committing)
        for crew in self.crews:
            crew.close_day()
        self._committed = batch
        self._strike(batch, Phase.COMMITTED)
        return summarise(
            batch=batch,
            crews=self.crews,
            entrances=entrances,
            recovered=recovered,
            tries=tries,
            seconds=time.perf_counter() - started,
            parts=clock.seconds,
            receivers=self.reception.watch(time.perf_counter() - started),
        )

    def _open_day(self, now: float, *, ending: bool, last: bool) -> None:
        """Which windows end, and what every operator meets in which order."""
        closings: dict[str, list[Punctuation]] = {}
        waiting = {crew.name for crew in self.crews if crew.waits}
        for crew in self.crews:
            # At the end windows close level by level: what one operator still sends belongs to windows of the next.
            final = ending and not waiting & self.pipeline.upstream_of(crew.name)
            closings[crew.name] = crew.open_day(now, ending=final)
            if last and self.inlets.reads_source(crew.node):
                closings[crew.name].append(Punctuation.of_stream(crew.name))
        inputs = {crew.name: self.inlets.origins(crew.node) for crew in self.crews}
        for name, programme in programmes(inputs, closings).items():
            self.crew(name).workforce.programme = programme

    def _delivered(
        self, apply: Callable[[], int], deliver: Callable[[int], None], batch: int, clock: Clock
    ) -> tuple[int, list[Entry]]:
        """Applies and delivers; the number of tries, and the recoveries that are complete with it.

        A failed delivery is tried again only if a worker turns out to be lost.
        """
        recovered: list[Entry] = []
        while True:
            started = time.perf_counter()
            tries = apply()
            # Before any row is handed on: its bound must know what it lacks.
            self._hear_of_receivers()
            recovered += [entry for crew in self.crews for entry in crew.take_stock(batch)]
            started = clock.lap("stages", started)
            losses = len(self.ledger.entries())
            try:
                deliver(batch)
            except Exception:
                apply()
                if len(self.ledger.entries()) == losses:
                    raise
                continue
            clock.lap("sinks", started)
            return tries, recovered

    def _apply(self, batch: int, frame: DataFrame | None, slices: Slices) -> int:
        """Runs all stages until every worker has applied the batch; the number of tries."""
        for attempt in range(1, BATCH_TRIES + 1):
            if all(self._advance(crew, batch, frame, slices) for crew in self.crews):
                return attempt
            if len(self.crews) > 1:
                # An operator may have lost what another one waits for.
                self._revive(batch)
            time.sleep(0.1 * (attempt - 1))
        raise self._gave_up(batch)

    def _advance(self, crew: Crew, batch: int, frame: DataFrame | None, slices: Slices) -> bool:
        """One try of one operator's stage; True if all of its workers have applied the batch."""
        orders = [replace(order, quarantine_room=crew.quarantine_room) for order in crew.workforce.orders(batch)]
        inlets = self.inlets.of(crew, self.crews, batch, frame, slices)
        job = partial(run_stage, self.sc, crew.mission, crew.work, orders, inlets)
        reports = self._reports(orders, job)
        if not crew.workforce.settle(batch, reports):
            return False
        crew.reports = [report for report in reports if report is not None]
        if digests_agree(crew.reports, self.inlets.produced(crew, self.crews)):
            return True
        for name in (crew.name, *self.pipeline.downstream_of(crew.name)):
            self._roll_back(self.crew(name), batch)
        return False

    def _revive(self, batch: int, *, complete: bool = False) -> None:
        """Brings all workers to the batch before, or leaves them where they have applied it already."""
        for crew in self.crews:
            for attempt in range(1, BATCH_TRIES + 1):
                if crew.mission.stepped:
                    self._shut_out(crew, batch)
                orders = [replace(order, apply=False) for order in crew.workforce.orders(batch)]
                job = partial(run_orders, self.sc, crew.mission, crew.work, orders)
                reports = self._reports(orders, job)
                if crew.workforce.settle(batch, reports):
                    if complete:
                        crew.workforce.rest(batch, [report for report in reports if report is not None])
                    break
                time.sleep(0.1 * (attempt - 1))
            else:
                raise self._gave_up(batch)

    def _shut_out(self, crew: Crew, batch: int) -> None:
        """Takes the lanes of workers that may have to be restored: no task sent before confirms anything any more."""
        crew.workforce.raise_fence()
        for edge in crew.node.inputs:
            if edge.origin in self.reception.sources:
                self.reception.take_over(edge.origin, crew.workforce.last_orders(batch))

    def _gave_up(self, batch: int) -> WorkerFailed:
        details = sorted({report.detail for report in self._last if report is not None and report.detail})
        return WorkerFailed(
            f"Batch {batch} could not be applied in {BATCH_TRIES} tries{': ' if details else '.'}{' '.join(details)}",
            remedy="See the executors' logs.",
            batch=batch,
        )

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
        self._last = reports
        return reports

    def _roll_back(self, crew: Crew, batch: int) -> None:
        """Takes the batch back everywhere: a retried stage has given some workers other items."""
        orders = crew.workforce.take_back(batch)
        self._reports(orders, partial(run_orders, self.sc, crew.mission, crew.work, orders))

    # --- opening and committing -----------------------------------------------------------------------------

    def take_lease(self) -> None:
        """Makes this process the query's driver; `AnotherDriver` if another one is."""
        self.lease.take(takeover=self.options.takeover)

    def close(self) -> None:
        """Ends the receivers and the lease: no batch follows, or another driver will run it."""
        self.reception.close()
        self.lease.release()

    def _ready(self, batch: int) -> None:
        self.take_lease()
        # Before anything is touched: what a newer driver does next may build on the last batch, not on this one.
        self.log.refuse_if_superseded()
        if not self.crews:
            self._open(batch)

    def _open(self, batch: int) -> None:
        self._refuse_if_rewound(batch)
        record = self.log.open_epoch(batch - 1)
        passed_over = self._passed_over(batch, record)
        extra = record.extra if record is not None else {}
        self.ledger.expect(extra.get("ledger", ()))
        crews = [self._crew(node) for node in self.pipeline.nodes]
        for crew in crews:
            crew.restore(extra.get("operators", {}).get(crew.name))
            crew.open_day(0.0)
            crew.workforce.gather(batch, record, passed_over)
            declare_unread_records(self.ledger, crew, batch, passed_over)
        self.totals = {name: int(extra.get(name, 0)) for name in self.totals}
        self.told = bool(extra.get("told", False))
        self.reception.restore(extra.get("lanes", {}))
        self.crews = crews
        for crew in crews:
            crew.entrances = [self.crew(node.name) for node in self.pipeline.entrances(crew.node)]
            # A batch that runs again finds its own once more.
            crew.gaps = self.item_losses.by_batch_and_worker(crew.name, before=batch)
            crew.recount(extra.get("operators", {}).get(crew.name))
        self._hear_of_receivers()
        for name, crew in self._drained():
            declare_damaged_log(self.ledger, crew, batch, self.reception.damaged(name))

    def _crew(self, node: Node) -> Crew:
        mission = mission_of(
            node,
            self.pipeline,
            self.options,
            self.identity,
            store=self.store,
            epoch=self.log.epoch,
            driver_host=driver_host(self.sc),
        )
        workforce = Workforce(
            self.sc,
            mission,
            self.pipeline.terms(node),
            self.ledger,
            host_grace_seconds=self.options.host_grace_seconds,
            fence=self.log.epoch_number << FENCE_BITS,
            neighbours=self.reception.homes(),
        )
        return Crew(node, workforce)

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
        if not self.pipeline.keeps_records or (record.batch if record else -1) >= batch - 1:
            return []
        return [damage.name for damage in self.log.damaged] or [f"record of batch {batch - 1}"]

    def _commit(self, batch: int, *, ending: bool) -> None:
        if not self.pipeline.keeps_records:
            self.log.refuse_if_superseded()
            return
        operators = {
            crew.name: tuple(member.record(crew.workforce.terms) for member in crew.workforce.members)
            for crew in self.crews
        }
        extra = {
            **self.totals,
            "operators": {crew.name: crew.to_json() | told_facts(crew) for crew in self.crews},
            "ending": ending,
            "told": self.told,
            "lanes": self.reception.to_json(),
            "ledger": self.ledger.heads,
        }
        self.log.write(CommitRecord(batch, self.log.epoch, operators, extra))
        if self._committed is None:
            # Not before the first record of this epoch: it may name a backup that an earlier driver had written.
            self.log.sweep()
            self.quarantine.tidy(batch)
        self.log.prune()

    def _take_note(self, batch: int) -> None:
        """How far receivers were drained, what was missing, and what operators could not take."""
        note_bad(self.quarantine, batch, self.crews, first=self._committed is None)
        for name, crew in self._drained():
            self.reception.advance(name, crew.reports)
            for report in crew.reports:
                if report.gaps:
                    self.item_losses.note(batch, crew.name, report.worker, report.gaps)

    def _hear_of_receivers(self) -> None:
        for name, crew in self._drained():
            crew.hear_of_receivers(self.reception.lost(name))

    def _let_go(self, batch: int) -> None:
        for name, crew in self._drained():
            self.reception.confirm(
                name, crew.workforce.last_orders(batch), stepped=crew.mission.in_steps(crew.workforce.programme)
            )

    def _drained(self) -> list[tuple[str, Crew]]:
        return [
            (edge.origin, crew)
            for crew in self.crews
            for edge in crew.node.inputs
            if edge.origin in self.reception.sources
        ]

    def _strike(self, batch: int, phase: Phase) -> None:
        if not self.options.faults.strikes_at(batch, phase):
            return
        self.reception.crash()
        for crew in self.crews:
            strike_workers(self.sc, crew.mission, crew.homes, batch, phase)


def source_folder(name: str) -> str:
    """Where a source keeps the list of what it has found."""
    return f"source-{name}" if name else "source"
