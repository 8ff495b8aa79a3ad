"""Applies a batch to a worker's state: items in, backup and outputs out, each step one transaction."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from afspark.exchange.rehearsal import Rehearsal
from afspark.model.effect_digest import EffectDigest
from afspark.model.operator import Operator
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.lifecycle import MOST_STEPS
from afspark.protocol.parcels import Packet, digest_of, pack_schema, packed_packets
from afspark.protocol.ports import ALL, ROWS, WINDOWS
from afspark.protocol.reports import Restored, Status, TaskReport
from afspark.protocol.task_work import TaskWork
from afspark.resident.side_files import drop_deltas, drop_queued
from afspark.resident.storage import StateStorage
from afspark.task.backup import BackupTask
from afspark.task.backup_numbers import leave
from afspark.task.batch_processor import BatchProcessor
from afspark.task.effects import effects_of, sent_of
from afspark.task.exchanging import exchange_of, rehearsal_of
from afspark.task.outbox import Output
from afspark.task.pane_states import PaneStates
from afspark.task.quarantined import take_items
from afspark.task.returned import no_batch
from afspark.task.steps import BatchSteps
from afspark.task.task_context import TaskContext


class BatchApplication:
    """One batch of one worker, from the first item to the report that is kept with the state."""

    def __init__(
        self,
        task: TaskContext,
        home: StateStorage,
        panes: PaneStates,
        *,
        damaged: tuple[str, ...],
        restored: Restored | None,
    ) -> None:
        self.task, self.home, self.panes = task, home, panes
        self.config, self.request, self.feed = task.config, task.request, task.feed
        self.operator = task.operator
        self.restored = restored
        self.steps = BatchSteps(task, damaged)
        self.backup = BackupTask(task, self.steps)

    def run(self) -> TaskReport:
        clock, home, panes, steps = self.task.clock, self.home, self.panes, self.steps
        started = clock.start()
        if self.request.batch_time.needed_from is not None:
            panes.drop_below(self.request.batch_time.needed_from)
        if not self.request.spools and home.spooled():
            # Whoever reads a backup reads those before it.
            self.task.environment.upload(self.config, self.request.worker)
        shipping = self.request.shipping
        drop_deltas(home.side_files, self.request.batch if shipping is None else shipping.reached, self.request.batch)
        steps.resume(home)
        self.backup.make_sure(home, panes)
        while True:
            self._begin()
            try:
                more = self.feed.advance(steps.await_durable) and home.step < MOST_STEPS
                steps.admit_damage(home)
                output = self._processed()
                started = clock.lap("process", started)
                with clock.counting_cpu("backup"):
                    durable = self.backup.back_up(home, panes, output)
                emitted = self._keep(output)
                written = steps.writes.wait(0.0 if more else None)
            except BaseException:
                # Waits while the mark tells of this attempt, in case the process dies meanwhile.
                steps.writes.leave()
                self._undo()
                if self.task.in_steps:
                    leave(home, self.request.batch)
                raise
            self.task.probe(FaultPhase.BACKING_UP)
            started = clock.lap("backup", started)
            if not more:
                break
            steps.close(home, output.panes, durable=written)
            self.backup.step_closed()
            panes.end()
        report = self._report(output, emitted=emitted, durable=durable)
        home.finish(self.request.batch, json.dumps(report.to_json()).encode(), self.request.covered)
        panes.end()
        drop_queued(home.side_files, self.request.batch)
        if report.pending:
            self.task.environment.start_upload(self.config, self.request.worker)
        return report

    def _begin(self) -> None:
        self.panes.begin()
        self.home.begin(self.request.batch, self.request.covered)

    def _undo(self) -> None:
        self.panes.rollback()
        self.home.clear_mark()

    def _processed(self) -> Output:
        """Runs the operator over the items. Those that it cannot take are durable elsewhere when this returns."""

        def again() -> None:
            self._undo()
            self._begin()
            self.operator = cloudpickle.loads(self.config.pristine)

        output, left_out = take_items(
            self._run_operator,
            again,
            self.config,
            self.request,
            self.feed,
            self.operator.key,
            self.steps.progress.bad,
            rehearse=partial(self._run_operator, rehearsal_of(self.request, self.operator)),
        )
        self.steps.leave_out(left_out)
        return output

    def _run_operator(self, rehearsal: Rehearsal | None = None) -> Output:
        applying = partial(self.task.probe, FaultPhase.APPLYING)
        used = exchange_of(self.request, self.operator) if rehearsal is None else contextlib.nullcontext(rehearsal)
        with used as exchange:
            processor = BatchProcessor(
                self.config,
                self.request,
                self.operator,
                self.panes,
                applying,
                self.steps.progress.panes,
                first=self.steps.is_first(self.home),
                exchange=exchange,
            )
            return processor.run(self.feed)

    def _keep(self, output: Output) -> int:
        """Keeps what other stages and the sink will read; returns the number of rows for the sink."""
        rows: Any = self.operator.changed(self.panes.of(None)) if self.config.emit else None
        if not isinstance(rows, pa.RecordBatch | None):
            raise no_batch(f"What rows() or changed() of the operator {self.config.operator_name!r}", rows)
        if rows is not None:
            output.kept[ROWS] = packed_packets([Packet(rows)])
        for port, data in output.kept.items():
            self.home.keep(self.request.batch, port, data)
        return 0 if rows is None else rows.num_rows

    def _effects(self, output: Output) -> dict[str, EffectDigest]:
        """Nothing if the batch is never replayed, or not in the same way: a replay does not tell the operator again
        what was lost before. The journal of states has the last step alone. Nor of a model that depends on who was
        first to push, unless others go on from what is told of it.
        """
        exchange = self.request.exchange
        if exchange is not None and not exchange.in_rounds and not self.config.successors:
            return {}
        told = self.request.lost is not None and type(self.operator).on_recover is not Operator.on_recover
        if self.request.covered is None or told or self.task.in_steps:
            return {}
        if self.config.exact:
            return effects_of(self.feed.items, self.panes, output.kept)
        unread = {ROWS, WINDOWS} if self.config.successors else {ROWS, WINDOWS, ALL}
        return sent_of(self.feed.items, {port: data for port, data in output.kept.items() if port not in unread})

    def _work(self, output: Output) -> TaskWork:
        clock, request = self.task.clock, self.request
        uploaded = self.task.environment.uploaded(self.config, request.worker) if request.covered is not None else None
        return TaskWork(
            seconds=clock.seconds.get("process", 0.0),
            cpu=clock.cpu_seconds,
            items=self.feed.arrived_items,
            bytes=self.feed.arrived_bytes,
            sent=sum(len(data) for data in output.kept.values()),
            backup_cpu=clock.cpu.get("backup", 0.0),
            backup_seconds=clock.seconds.get("backup", 0.0),
            uploaded=uploaded.bytes if uploaded else 0,
            upload_seconds=uploaded.seconds if uploaded else 0.0,
            requests=self.config.store.taken_requests(),
        )

    def _report(self, output: Output, *, emitted: int, durable: bool) -> TaskReport:
        feed = self.feed
        return TaskReport(
            worker=self.request.worker,
            replica=self.request.replica,
            status=Status.APPLIED,
            host=self.task.host,
            items=feed.items,
            bytes=feed.bytes,
            backups=self.steps.writes.durable,
            pending=self.home.spooled() if self.request.covered is not None else (),
            positions=None if feed.replayable else dict(feed.positions),
            lane_order=feed.lane_order,
            gaps=feed.gaps,
            bad=self.steps.progress.bad,
            consumed=dict(feed.consumed),
            effects=self._effects(output),
            produced={port: digest_of(data) for port, data in output.kept.items() if port not in (ROWS, WINDOWS)},
            columns=pack_schema(output.schema) if output.schema is not None else "",
            fed_back={name: sum(batch.num_rows for batch in sent) for name, sent in output.feedback.items()},
            feedback_durable=durable,
            cells=sum(state.size for _, _, state in self.panes.named()),
            memory=self.home.columns.memory,
            drift=self.panes.drifts(self.steps.tick(output.panes)),
            plan=self.request.backup.described(self.operator.states()),
            emitted=emitted,
            panes=output.panes,
            seconds=self.task.clock.seconds,
            work=self._work(output),
            metrics=output.metrics,
            # What cannot be brought again is gone like a backup that cannot be read.
            damaged=(*self.steps.damaged, *(gap.described for gap in feed.unsent)),
            restored=self.restored,
            behind=feed.behind,
            told=self.request.lost is not None,
        )
