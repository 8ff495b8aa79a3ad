"""The batch loop: requests out, reports in, record written, results handed on.

Runs in the driver, inside ``foreachBatch``, in an order that survives a kill at any point: losses are durable
before recoveries, backups before the record that names them, the record before Spark commits the batch.

The operators of a pipeline run one after the other, each as a stage of its own; what they send is kept beside
their state until the next batch, so that a stage can be run again for those that need it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from afspark.cluster.cluster import Cluster, StageFailed
from afspark.cluster.remade_frame import PastFrames
from afspark.coordinator.adapting.control_loop import control_loop
from afspark.coordinator.bad_items_noted import note_bad
from afspark.coordinator.batch_input import BatchFrame, BatchInput
from afspark.coordinator.batch_progress import BatchProgress, summarise
from afspark.coordinator.batch_windows import begin_windows
from afspark.coordinator.changed_pipeline import PipelineChange, beginning, starting_empty, without
from afspark.coordinator.commit_pace import CommitPace
from afspark.coordinator.committer import Committer
from afspark.coordinator.configuring import operator_config
from afspark.coordinator.ending import StreamEnding, ending_batch, refuse_if_rewound
from afspark.coordinator.injected_failures import fail_workers
from afspark.coordinator.offsets import OffsetLog, newest_of
from afspark.coordinator.operator_inputs import OperatorInputs
from afspark.coordinator.operator_run import OperatorRun, chosen_run, link
from afspark.coordinator.receivers.receivers import Receivers
from afspark.coordinator.receivers.retained_items import RetainedItems
from afspark.coordinator.recovery.coverage import declare_damaged_log, declare_unread_records
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.recovery.past_input import PastInput
from afspark.coordinator.replicas.secondaries import Secondaries
from afspark.coordinator.replicas.secondary_group import check_hosts
from afspark.coordinator.run_options import RunOptions
from afspark.coordinator.stage_runner import StageRunner
from afspark.coordinator.told_bounds import operator_record
from afspark.coordinator.unrecorded_batches import (
    first_to_replay,
    passed_over,
    refuse_change_of_the_past,
    refuse_if_forgotten,
    refuse_if_left_behind,
)
from afspark.coordinator.worker_group import WorkerGroup
from afspark.coordinator.worker_state import Covered
from afspark.errors import CheckpointError
from afspark.graph.node import Node
from afspark.graph.pipeline import Pipeline
from afspark.numbers import Batch, Fence
from afspark.protocol.fault_plan import FaultPhase
from afspark.store import (
    CommitRecord,
    Ledger,
    LedgerEntry,
    QueryIdentity,
    RecordLog,
    Store,
    StreamEnd,
    ThrottledStore,
)
from afspark.store.effect_log import EffectLog
from afspark.store.identity import attached
from afspark.store.itemlosses import ItemLosses
from afspark.store.lease import Lease
from afspark.store.naming import FOLDER, source_folder
from afspark.store.position_log import PositionLog
from afspark.store.quarantine import Quarantine
from afspark.task.stopwatch import Stopwatch

LOG = logging.getLogger("afspark")

#: Room for batches below the epoch's number in a fence.
FENCE_BITS = 32


class Coordinator:
    """Runs the batches of one query, one after the other."""

    def __init__(
        self,
        cluster: Cluster,
        pipeline: Pipeline,
        options: RunOptions,
        identity: QueryIdentity,
        checkpoint: Store,
        past_frames: PastFrames | None = None,
    ) -> None:
        self.cluster, self.pipeline, self.options, self.identity = cluster, pipeline, options, identity
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
            name: source.planner(self.store.below(source_folder(name))) for name, source in pipeline.planned.items()
        }
        self.receivers = Receivers(
            cluster, pipeline, {name: self.store.below(source_folder(name)) for name in pipeline.sources}
        )
        self.retained = RetainedItems(self.receivers, PositionLog(self.store), self.log, active=bool(pipeline.retained))
        self.inputs = OperatorInputs(pipeline, self.planners, OffsetLog(self.checkpoint), self.receivers)
        self._past_input = PastInput(self.inputs, self.ledger, past_frames)
        self._secondaries = Secondaries(cluster, self.inputs)
        self._stages = StageRunner(cluster, self.inputs, self._secondaries)
        pace = CommitPace(
            [node.tolerance for node in pipeline.nodes],
            replayable=pipeline.replayable,
            max_replay_seconds=options.max_replay_seconds,
            max_kept_bytes=options.max_kept_bytes,
            record_seconds=options.record_seconds,
            offsets_kept=options.offsets_kept,
        )
        effects = EffectLog(self.store) if pipeline.replayable and not self.retained.active else None
        self.commits = Committer(cluster, self.log, self._stages, pace, effects)
        self.control = control_loop(cluster, pipeline, self.store, grace_seconds=options.host_grace_seconds)
        self._secondaries.step_taken = self.control.step_taken
        self._secondaries.changes_reaching = self._stages.replay.check.changes_reaching
        self.runs: list[OperatorRun] = []
        #: an earlier start has begun a batch; Spark may run that one again
        self.resumed = newest_of(checkpoint, "offsets") is not None
        #: taken from all sources since the checkpoint was made
        self.items = self.bytes = 0
        #: every operator was told that the stream has ended
        self.told = False
        self._committed: Batch | None = None
        self._ending = StreamEnding(self.checkpoint, self.store)
        self.change = PipelineChange.of(identity, pipeline, options.discard_state)

    # --- for a pipeline of one operator ---------------------------------------------------------------------

    @property
    def group(self) -> WorkerGroup | None:
        return self.runs[-1].group if self.runs else None

    def run_of(self, name: str | None = None) -> OperatorRun:
        """The run of a node; without a name that of the last one."""
        return chosen_run(self.runs, name, self.pipeline)

    def operator(self, name: str | None = None) -> OperatorRun:
        """The run of an operator that the user has written; without a name that of the last one."""
        return chosen_run([run for run in self.runs if not run.node.internal], name, self.pipeline)

    # --- batches --------------------------------------------------------------------------------------------

    def run(self, batch: Batch, frame: Any, deliver: Callable[[Batch], None]) -> BatchProgress:
        """Applies ``batch`` on all workers, calls ``deliver(batch)`` and commits it.

        ``deliver`` may be called again for the same batch: after a crash, and if a worker that kept rows of the
        batch was lost before they were read.
        """
        self.inputs.planned.begin(batch)
        first = not self.runs
        if self.ended or self._ending.is_intended:
            raise CheckpointError(
                "The stream of this checkpoint has been ended.", remedy="Start with a new checkpoint.", batch=batch
            )
        self._ready(batch)
        given = BatchInput(self.inputs.slices(batch, first=first), None if frame is None else BatchFrame(lambda: frame))
        return self._run(batch, self.inputs.planned.time(batch), given, deliver)

    def end(self, deliver: Callable[[Batch], None]) -> list[BatchProgress]:
        """Ends the stream: closes all windows, from the source to the sinks, then tells every operator.

        Takes one batch without items per level of windows and one for the end itself; their numbers follow those
        of Spark, which will run none any more.
        """
        done: list[BatchProgress] = []
        self._ending.refuse_if_unfinished()
        batch = self._next_batch()
        self._ready(batch)
        now = self._ending.begin(batch, self.cluster.clock.time())
        while not self.ended:
            # From the last record alone it must follow what this batch is, so that a killed driver can repeat it.
            last = not self.told and not any(run.waits for run in self.runs)
            done.append(self._run(batch, now, BatchInput(), deliver, ending=True, last=last))
            batch = Batch(batch + 1)
        return done

    @property
    def ended(self) -> bool:
        """Every operator was told, and what they sent then has left its windows."""
        return self.told and not any(run.waits for run in self.runs)

    def ready(self) -> list[OperatorRun]:
        """The workers at rest, all with their state: those that lost it meanwhile are recovered first.

        Also serves a query that has nothing new to process since its driver was started.
        """
        self._ready(batch := self._next_batch())
        for run in self.runs:
            # A loss found now concerns what the last batch left behind, not what it had found.
            run.begin_batch(0.0)
        self._stages.revive(self.runs, batch, complete=True)
        self.commits.finish()
        return self.runs

    @property
    def committed(self) -> Batch:
        """The last batch that this driver has run; -1: none."""
        return Batch(-1) if self._committed is None else self._committed

    def _next_batch(self) -> Batch:
        if self._committed is not None:
            return Batch(self._committed + 1)
        # Batches that ended the stream are ours alone; Spark knows nothing of them.
        last = ending_batch(self.store)
        if last is None:
            last = newest_of(self.checkpoint, "commits")
        return Batch(0 if last is None else last + 1)

    def _run(
        self,
        batch: Batch,
        now: float,
        given: BatchInput,
        deliver: Callable[[Batch], None],
        *,
        ending: bool = False,
        last: bool = False,
    ) -> BatchProgress:
        if self.options.faults.fails_workers(batch):
            self.receivers.crash()
        begin_windows(self.runs, self.inputs, now, ending=ending, last=last)
        self.commits.begin(batch, self.items, must=ending, pressed=self.receivers.pressed)
        if self.pipeline.replayable:
            self._stages.replay.remember(batch, given, self.runs)
        watch = Stopwatch(self.cluster.clock)
        started = watch.start()
        apply = partial(self._stages.apply, self.runs, batch, given)
        tries, recovered = self._delivered(apply, deliver, batch, watch)
        self._inject(batch, FaultPhase.COMMITTING)
        self._stages.replay.note(batch, self.runs)
        self._secondaries.follow(batch, given, self.runs)
        entrances = self._count()
        committing = watch.start()
        self.told = self.told or last
        self._take_note(batch)
        self.retained.keep(batch, self._stages.replay.check.to_record(batch, batch).get(batch, {}))
        kept = max((report.work.sent for run in self.runs for report in run.reports), default=0)
        self.commits.pace.ended(batch, committing - started, kept)
        self._commit(batch, ending=ending)
        self.commits.finish()
        self.inputs.planned.put_back()
        self._secondaries.forget(self.commits.records.covered.batch)
        self._let_go(batch)
        watch.lap("record", committing)
        self.control.batch_ended(batch, recovered, self.commits.records, recording=watch.seconds["record"])
        for run in self.runs:
            run.end_batch()
        self._committed = batch
        self._inject(batch, FaultPhase.COMMITTED)
        progress = summarise(
            batch=batch,
            runs=self.runs,
            entrances=entrances,
            recovered=recovered,
            tries=tries,
            seconds=watch.start() - started,
            parts=watch.seconds,
            receivers=self.receivers.watch(watch.start() - started),
            requests=self.store.taken_requests(),
        )
        kept = self.pipeline.keeps_records
        return replace(progress, durable=self.commits.durability(batch, self.items)) if kept else progress

    def _count(self) -> list[OperatorRun]:
        """Takes up what the workers report of the batch at work; the operators whose items come from a source."""
        for run in self.runs:
            run.group.advance(run.reports)
        entrances = [run for run in self.runs if self.inputs.reads_source(run.node)]
        self.items += sum(report.items for run in entrances for report in run.reports)
        self.bytes += sum(report.bytes for run in entrances for report in run.reports)
        return entrances

    def _run_again(self, batch: Batch) -> None:
        """Brings a started driver, and workers that lack it, to the end of a batch that sinks have got before.

        Workers that have applied it answer what they answered then.
        """
        given = self._past_input.of(batch, self.runs)
        begin_windows(self.runs, self.inputs, self.inputs.planned.time(batch))
        self._stages.replay.remember(batch, given, self.runs)
        for run in self.runs:
            run.group.past = True
        started = self.cluster.clock.monotonic()
        self._stages.apply(self.runs, batch, given, past=True)
        seconds = self.cluster.clock.monotonic() - started
        for run in self.runs:
            for report in run.reports:
                run.group.recoveries.replayed(report, seconds)
            # Damage is told at once: the loss may have been made good before, from what was sound then.
            run.group.complete(batch, [report for report in run.reports if report.damaged])
        self._secondaries.follow(batch, given, self.runs)
        self._count()
        self.retained.take_up(batch, self._drained())
        self._stages.replay.note(batch, self.runs)
        self.commits.taken_up(self._record(batch, ending=False))
        for run in self.runs:
            run.end_batch()
            run.group.past = False

    def _delivered(
        self, apply: Callable[[], int], deliver: Callable[[Batch], None], batch: Batch, watch: Stopwatch
    ) -> tuple[int, list[LedgerEntry]]:
        """Applies and delivers; the number of tries, and the recoveries that are complete with it.

        A failed delivery is tried again only if a worker turns out to be lost, or its host does not answer.
        """
        recovered: list[LedgerEntry] = []
        while True:
            started = watch.start()
            tries = apply()
            # Before any row is handed on: its bound must know what it lacks.
            self._hear_of_receivers()
            recovered += [entry for run in self.runs for entry in run.take_stock(batch)]
            started = watch.lap("stages", started)
            try:
                deliver(batch)
            except Exception as error:
                if not isinstance(error, StageFailed) and not self._stages.lacks(self.runs, batch):
                    raise
                continue
            watch.lap("sinks", started)
            return tries, recovered

    # --- opening and committing -----------------------------------------------------------------------------

    def take_lease(self) -> None:
        """Makes this process the query's driver; `AnotherDriver` if another one is."""
        self.lease.take(takeover=self.options.takeover)

    def check_hosts(self) -> None:
        """UsageError if there is no room for secondaries. Later a host may be lost, and the query goes on without."""
        self._stages.check_slots()
        if not self.resumed:
            check_hosts(self.cluster.slots_by_host(), self.pipeline.nodes)

    def check_unrecorded(self) -> None:
        """UsageError if batches that have to be replayed could not be, before Spark has begun: because it would forget
        what belonged to them, or because of what is different from the start before.
        """
        refuse_if_forgotten(self.checkpoint, self.pipeline, self.options.offsets_kept)
        refuse_if_left_behind(self.checkpoint, self.pipeline)
        refuse_change_of_the_past(self.checkpoint, self.change)

    def close(self) -> None:
        """Ends the receivers and the lease: no batch follows, or another driver will run it."""
        with ExitStack() as closing:
            # Whatever goes wrong on the way, nobody else must be kept from the query.
            closing.callback(self.lease.release)
            for one in (self.receivers, self.control, self.commits, self._stages):
                closing.callback(one.close)
            self._secondaries.close()

    def _ready(self, batch: Batch) -> None:
        self.take_lease()
        self.commits.refuse_if_superseded()
        if not self.runs:
            try:
                self._open(batch)
            except BaseException:
                # Half of it would be taken for the whole.
                self.runs = self.commits.runs = []
                raise

    def _open(self, batch: Batch) -> None:
        refuse_if_rewound(self.store, batch)
        self.check_hosts()
        refuse_change_of_the_past(self.checkpoint, self.change)
        record = self.log.open_epoch(batch - 1)
        identity = self.change.applied_to(self.identity, self.log.epoch_number)
        empty = starting_empty(identity, record)
        record, empty = without(record, empty), beginning(identity, empty, self.log)
        first = first_to_replay(self.inputs, self.log, batch, record, self._make_run)
        missing = passed_over(self.pipeline, self.log, first, record)
        # What cannot be replayed is missing from the state that a lost worker is given, and was declared so.
        self.commits.cover(Covered(Batch(first - 1), record))
        self.commits.snapshots.restore(record)
        self.ledger.expect(record.ledger_heads if record else ())
        self.receivers.restore(record.lanes if record else {})
        # Before anything is declared: whoever is refused, and starts as it should, must find no word of it.
        done = self.retained.open(record, first, batch)
        operators = record.operators if record else {}
        runs = [self._make_run(node) for node in self.pipeline.nodes]
        for run in runs:
            run.restore(operators.get(run.name))
            run.begin_batch(0.0)
            run.group.gather(first, record, missing, newest=batch, anew=run.name in empty)
            declare_unread_records(self.ledger, run, batch, missing)
        self.items, self.bytes = (record.items, record.bytes) if record else (0, 0)
        self.told = record is not None and record.end is StreamEnd.TOLD
        if first < batch:
            self.commits.recall(record, first, done)
        self.runs = self.commits.runs = runs
        link(runs, self.pipeline)
        kept = [run for run in runs if run.name not in empty]
        take_back = partial(self._stages.take_back_everywhere, kept, batch)
        self.identity = self.change.make(self.store, self.identity, identity, take_back)
        self.change = self.change.done
        self.control.open(runs, self.log.epoch)
        for run in runs:
            # A batch that runs again finds its own once more.
            run.gaps = self.item_losses.by_batch_and_worker(run.name, before=batch)
            run.recount(operators.get(run.name))
        if first < batch:
            self._stages.begin_past(runs, first)
        for past in range(first, batch):
            self._run_again(Batch(past))
        self._hear_of_receivers()
        for name, run in self._drained():
            declare_damaged_log(self.ledger, run, batch, self.receivers.damaged(name))

    def _make_run(self, node: Node) -> OperatorRun:
        config = operator_config(
            node, self.pipeline, self.options, self.identity, store=self.store, epoch=self.log.epoch
        )
        budget, fence = ErrorBudget.of(self.pipeline, node), Fence(self.log.epoch_number << FENCE_BITS)
        group = WorkerGroup(
            self.cluster,
            config,
            budget,
            self.ledger,
            host_grace_seconds=self.options.host_grace_seconds,
            fence=fence,
            neighbours=self.receivers.homes(),
        )
        group.replays = self.pipeline.replayable
        group.before_loss = self._secondaries.before_loss(self.commits.before_loss)
        group.cover(self.commits.records.covered)
        return OperatorRun(node, group)

    def _commit(self, batch: Batch, *, ending: bool) -> None:
        if not self.pipeline.keeps_records:
            self.log.refuse_if_superseded()
            return
        first = not self.commits.recorded
        self.commits.commit(batch, self.items, partial(self._record, batch, ending=ending))
        if first and self.commits.recorded:
            self.quarantine.tidy(batch)

    def _record(self, batch: Batch, *, ending: bool) -> CommitRecord:
        end = StreamEnd.CLOSING if ending else StreamEnd.OPEN
        return CommitRecord(
            batch=batch,
            epoch=self.log.epoch,
            operators={run.name: operator_record(run) for run in self.runs},
            items=self.items,
            bytes=self.bytes,
            end=StreamEnd.TOLD if self.told else end,
            lanes=self.receivers.recorded(),
            ledger_heads=tuple(self.ledger.heads),
            replays=self.pipeline.replayable,
        )

    def _take_note(self, batch: Batch) -> None:
        """How far receivers were drained, what was missing, and what operators could not take."""
        note_bad(self.quarantine, batch, self.runs, first=self._committed is None)
        for name, run in self._drained():
            self.receivers.advance(name, run.reports)
            for report in run.reports:
                if report.gaps:
                    self.item_losses.note(batch, run.name, report.worker, report.gaps)

    def _hear_of_receivers(self) -> None:
        for name, run in self._drained():
            run.hear_of_receivers(self.receivers.lost(name))

    def _let_go(self, batch: Batch) -> None:
        self.retained.release(batch, self.commits.records.covered.batch)
        for name, run in self._drained():
            # A task of this batch that wakes up later may have lost its state: it must not take the lane once more.
            run.group.raise_fence()
            self.receivers.confirm(
                name,
                run.group.last_requests(batch),
                stepped=run.config.in_steps(run.group.punctuation_plan),
            )

    def _drained(self) -> list[tuple[str, OperatorRun]]:
        return [
            (edge.origin, run) for run in self.runs for edge in run.node.inputs if edge.origin in self.receivers.sources
        ]

    def _inject(self, batch: Batch, phase: FaultPhase) -> None:
        if not self.options.faults.fails_at(batch, phase):
            return
        self.receivers.crash()
        fail_workers(self.cluster, self.runs, batch, phase)
