"""Commits batches: their records are written in time, or behind the batches where lost workers can replay."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from afspark.cluster.cluster import Cluster
from afspark.coordinator.commit_pace import CommitPace
from afspark.coordinator.durability import Durability, durability
from afspark.coordinator.flushing import flushed, is_backed_up, is_flushed, protected
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.record_writer import RecordWriter, refuse_if_incomplete
from afspark.coordinator.snapshots import APPLIED_BEFORE, UNDER_WAY, Snapshots
from afspark.coordinator.stage_runner import StageRunner
from afspark.coordinator.told_bounds import operator_record, with_told
from afspark.coordinator.worker_state import Covered
from afspark.errors import AfsparkError
from afspark.numbers import Batch
from afspark.protocol.reports import TaskReport
from afspark.store import CommitRecord, RecordLog, StreamEnd
from afspark.store.effect_log import BatchEffects, EffectLog
from afspark.task.backup_writes import BackgroundWrite

LOG = logging.getLogger("afspark")


class Committer:
    """The commits of one driver. ``runs`` are the query's operators, once they are known."""

    def __init__(
        self, cluster: Cluster, log: RecordLog, stages: StageRunner, pace: CommitPace, effects: EffectLog | None
    ) -> None:
        self._cluster, self._log, self._stages, self.pace, self._effects = cluster, log, stages, pace, effects
        self.snapshots = Snapshots(taken=pace.takes_snapshots)
        check = stages.replay.check
        self.records = RecordWriter(cluster, log, self.snapshots, check, effects)
        self.runs: Sequence[OperatorRun] = ()
        #: this driver has written a record
        self.recorded = False
        self._superseded: BackgroundWrite | None = None
        #: the last batch that was committed
        self._batch = Batch(-1)
        #: its record, if it was no barrier: the backups in it do not hold the whole state
        self._uncovered: CommitRecord | None = None
        #: what an earlier driver's last batch has come to, if no record says so
        self._taken_up: CommitRecord | None = None
        self._heed_policies()

    def recall(self, record: CommitRecord | None, first: Batch, done: Mapping[Batch, BatchEffects]) -> None:
        """Before the batches from ``first`` on are replayed, all that came after ``record``: takes up what they have
        done under an earlier driver. ``done``: what is known of that without asking the store.
        """
        self._stages.replay.check.recall(record, self._effects.read(first) if self._effects else done)

    def taken_up(self, record: CommitRecord) -> None:
        """All workers have the batch of ``record`` now, which an earlier driver has run and no durable one covers."""
        self._taken_up = record
        self._batch, self._uncovered = record.batch, None if self._is_untold else record

    @property
    def newest_found(self) -> CommitRecord | None:
        """The end of the last batch of an earlier driver, before this one runs any: as its record says, or as workers
        have reported it.
        """
        return self._taken_up or self.records.covered.record

    @property
    def _is_untold(self) -> bool:
        """Whether only the next batch tells an operator of what it has lost: no record may say that it came before."""
        return any(member.recovering for run in self.runs for member in run.group.members)

    def begin(self, batch: Batch, items: int, *, must: bool, pressed: bool = False) -> None:
        """Decides who has to wait for the store in a batch. ``must``: its record has to be durable when it ends;
        ``pressed``: senders of items have to wait for a record.
        """
        self.pace.ask([one for run in self.runs for one in run.group.secondaries.barriers])
        self._heed_policies()
        self.pace.wanted |= any(run.group.secondaries.wants_barrier for run in self.runs)
        # A record that became durable since the last batch ended holds no barrier up.
        self.records.go_on(due=False)
        under_way = self.records.newest is not None
        now = self._cluster.clock.monotonic()
        must = must or not self.recorded
        self.pace.choose(now, batch, items, under_way=under_way, must=must, pressed=pressed)
        if self.pace.barrier:
            self.snapshots.due(batch, self._cluster.clock.time())
        elif self.pace.skips:
            self.snapshots.skip(batch, UNDER_WAY)
        self._stages.spools = self.pace.behind
        for run in self.runs:
            run.group.barrier = self.pace.barrier

    def _heed_policies(self) -> None:
        self._stages.takes_all_back, self.records.kept = self.pace.takes_all_back, self.pace.records_kept

    def refuse_if_superseded(self) -> None:
        """`AnotherDriver` if another one has opened the query since; behind the batches `finish` says so instead."""
        if self.runs and self.pace.behind:
            # Fences keep the state from an older driver; that nothing is handed back to Spark needs no earlier answer.
            self._superseded = self._cluster.in_background(self._log.refuse_if_superseded)
        else:
            # Before anything is touched: what a newer driver does next may build on the last batch, not on this one.
            self._log.refuse_if_superseded()

    def commit(self, batch: Batch, items: int, record: Callable[[], CommitRecord]) -> None:
        """Writes the ``record`` of the batch at work, or has it written, if the batch is a barrier."""
        self._batch = batch
        pending = frozenset(name for run in self.runs for report in run.reports for name in report.pending)
        if pending and not self.pace.behind:
            # Applied for an earlier driver, which did not wait for the store.
            pending = self._stages.revive(self.runs, Batch(batch + 1), complete=True)
        # A worker may have applied the batch for an earlier driver, for which it was no barrier.
        self._uncovered, untold = None, self._is_untold
        if self.pace.barrier and not untold and all(report.covers for run in self.runs for report in run.reports):
            self._write(record(), pending)
            self.pace.passed(self._cluster.clock.monotonic(), batch, items)
        else:
            if self.pace.barrier:
                self.snapshots.skip(batch, APPLIED_BEFORE)
            self._uncovered = None if untold else record()
            self.records.hear(pending)
        self.cover(self.records.covered)

    def finish(self) -> None:
        """Before a batch is handed back to Spark: hears whether another driver has opened the query."""
        asked, self._superseded = self._superseded, None
        if asked is not None:
            asked.wait()
            if asked.failure is not None:
                raise asked.failure

    def cover(self, covered: Covered) -> None:
        """Takes up the newest durable record: nobody needs what came before it any more."""
        self.records.covered = covered
        self._stages.replay.forget(covered.batch)
        self.pace.cover(covered.batch)
        for run in self.runs:
            run.group.cover(covered)

    def durability(self, batch: Batch, items: int) -> Durability:
        """What is durable after ``batch``, with so many items of all sources before its end."""
        return durability(
            batch,
            items,
            self.records.covered,
            self.snapshots,
            replay_seconds=self.pace.replay_seconds,
            now=self._cluster.clock.time(),
        )

    def settle(self) -> CommitRecord | None:
        """Makes the newest record durable that was offered, between two batches; the newest durable one."""
        self._settle()
        self.cover(self.records.covered)
        return self.records.covered.record

    def go_on_at_rest(self) -> None:
        """Between two batches, when the next one does not come: begins to write the last record if it was not due."""
        if self.pace.behind:
            self.records.go_on()
            self.cover(self.records.covered)

    def before_loss(self) -> None:
        """Called before a loss is declared; `AnotherDriver` if another one has opened the query: only that one may."""
        self._log.refuse_if_superseded()
        self.records.stop()
        self.cover(self.records.covered)

    def flush(self, seconds: float) -> bool:
        """Makes all durable that workers have after the last batch, when Spark has committed it and none follows: then
        nothing is lost with them. Says whether that is so.

        In so many seconds at most, once the records that were offered are durable. Not after a loss of which somebody
        has yet to hear: those who were lost are recovered by the next start.
        """
        give_up = self._cluster.clock.monotonic() + seconds
        self._settle()
        record, operators = self._uncovered or self._unflushed, protected(self.runs)
        if record is None:
            return not self._is_untold or self._is_durable(operators)
        if any(record.ledger_heads != tuple(run.group.ledger.heads) for run in self.runs):
            return False
        now = self._cluster.clock.time()
        reports: dict[str, list[TaskReport]] = {}
        if self._uncovered is not None or not is_backed_up(record, operators):
            left = max(0.0, give_up - self._cluster.clock.monotonic())
            reports = self._stages.back_up_at_rest(self.runs, record.batch, left)
        pending = frozenset(name for one in reports.values() for report in one for name in report.pending)
        record = flushed(replace(self._with_all(record), epoch=self._log.epoch), operators, reports)
        if self._uncovered is not None:
            self.snapshots.due(record.batch, now)
            self.snapshots.captured(record, now)
        self.records.write(record, pending)
        self._uncovered = None
        self.cover(self.records.covered)
        return True

    def at_rest(self, seconds: float) -> CommitRecord | None:
        """Makes all durable that workers have after the last batch that Spark has committed, in so many seconds, and
        takes back what they have applied since; the record that says so, which is not written. For a driver that has
        found the workers and runs no batch; None if nobody has run any.
        """
        self._settle()
        found = self.newest_found
        if found is None:
            return None
        found = self._with_all(found)
        self._stages.take_back(self.runs, Batch(found.batch + 1))
        reports = self._stages.back_up_at_rest(self.runs, found.batch, seconds)
        operators = {
            run.name: with_told(
                run,
                replace(
                    found.operators[run.name],
                    workers=tuple(one.record(run.group.budget_of(one.worker)) for one in run.group.members),
                ),
            )
            for run in self.runs
        }
        heads = tuple(self.runs[0].group.ledger.heads)
        record = replace(found, epoch=self._log.epoch, operators=operators, ledger_heads=heads)
        record = flushed(record, protected(self.runs), reports)
        refuse_if_incomplete(record, {name for one in reports.values() for report in one for name in report.pending})
        return record

    def _with_all(self, record: CommitRecord) -> CommitRecord:
        """The record with those operators that have started with an empty state since: from now on it is theirs too."""
        begun = {
            # No batch is at work that could have moved its windows.
            run.name: replace(operator_record(run), window_progress=run.window_progress if run.node.window else None)
            for run in self.runs
            if run.name not in record.operators
        }
        return replace(record, operators={**record.operators, **begun}) if begun else record

    def _is_durable(self, operators: Collection[str]) -> bool:
        """Whether the newest durable record gives the workers of these operators back all that they have."""
        covered = self.records.covered
        if not covered.is_whole or self._batch not in (Batch(-1), covered.batch):
            return False
        members = [(run.name, one) for run in self.runs if run.name in operators for one in run.group.members]
        return all(not one.completed or covered.state_of(name, one.worker).is_whole for name, one in members)

    @property
    def _unflushed(self) -> CommitRecord | None:
        """The durable record of the last batch, if something may be lost with those who have applied it."""
        covered = self.records.covered
        record = covered.record if covered.is_whole and self._batch in (Batch(-1), covered.batch) else None
        if record is None or self._is_untold or record.end is not StreamEnd.OPEN:
            return None
        return None if is_flushed(record, protected(self.runs)) else record

    def close(self) -> None:
        """Makes what was offered durable, if tasks can still run; the rest is replayed at the next start."""
        try:
            if self._cluster.stopped:
                self.records.wait()
            else:
                self._settle()
        except AfsparkError as error:
            LOG.warning("The last batches will be replayed at the next start, because no record covers them: %s", error)

    def _write(self, record: CommitRecord, pending: frozenset[str]) -> None:
        self.snapshots.captured(record, self._cluster.clock.time())
        if not self.pace.behind:
            self.records.write(record, pending)
        else:
            self.records.offer(record, pending, due=self._is_record_due(record.batch))
            if self.pace.is_late(record.batch):
                self._settle()
        if not self.recorded:
            # Not before the first record of this epoch: it may name a backup that an earlier driver had written.
            self.recorded = True
            self._log.sweep()

    def _is_record_due(self, batch: Batch) -> bool:
        """Whether the record of ``batch``, which has just ended, is to be written; if not, a later one replaces it."""
        if self.records.begun is None:
            return True
        last, since = self.records.begun
        return self.pace.is_record_due(seconds=self._cluster.clock.monotonic() - since, batches=batch - last)

    def _settle(self) -> None:
        """Makes the newest record durable before this returns, and all backups before it."""
        self.records.wait()
        if self.records.newest is None:
            return
        # What was offered is withdrawn if somebody turns out to be lost.
        self.records.hear(self._stages.revive(self.runs, Batch(self._batch + 1), complete=True))
        self.records.finish()
