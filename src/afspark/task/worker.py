"""One worker's task for one batch: find the resident state, bring it to the batch before, apply the batch.

Runs in Spark's Python workers. What to do with the state found is read from the life cycle's table; nothing
here decides that a state is lost.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark import cloudpickle

from afspark.errors import NoSpace, SegmentError
from afspark.model.operator import Operator
from afspark.model.state_label import Pane, StateLabel
from afspark.model.windows import Decaying, PaneReport
from afspark.numbers import Batch
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.lifecycle import MOST_STEPS, Action, Identity, Wanted, decide
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import Packet, digest_of, pack_packets, pack_schema
from afspark.protocol.ports import ROWS, WINDOWS
from afspark.protocol.reports import Restored, Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.push.wire.worker_messages import BackupNumber
from afspark.resident import SegmentAddress, SegmentRoot
from afspark.resident.spark_host import spark_host
from afspark.resident.storage import StateAddress, StateStorage
from afspark.store import ObjectRef, extend, load_chain, seal
from afspark.store.images import FeedbackPart, ImageKey
from afspark.task.backup_header import BackupHeader
from afspark.task.backup_numbers import backup_name, begin_generation, take_up
from afspark.task.backup_writes import BackupWrites
from afspark.task.bad_item_search import as_failure
from afspark.task.batch_processor import BatchProcessor
from afspark.task.damage_note import note_damage, noted_damage
from afspark.task.fault_injection import inject_failure
from afspark.task.feed import Feed
from afspark.task.intake import LaneAway, Start
from afspark.task.lane_feed import LaneFeed
from afspark.task.outbox import Output
from afspark.task.pane_states import PaneStates
from afspark.task.quarantined import take_items
from afspark.task.step_progress import StepProgress
from afspark.task.stopwatch import Stopwatch
from afspark.task.unnamed_backups import UncountedLossFound, find_unnamed
from afspark.task.waiting_feedback import waiting_feedback

LOCK_SECONDS = 10.0


def serve(config: OperatorConfig, request: TaskRequest, operator: Operator, feed: Feed) -> TaskReport:
    """Carries out ``request``; every outcome is a report, only the death of the process is an exception."""
    host = spark_host(config.driver_host)
    if host != request.home:
        return TaskReport(worker=request.worker, status=Status.MISPLACED, host=host)
    directory = SegmentRoot(config.segments, host).directory(config.query_id, config.operator_name, request.worker)

    def probe(phase: FaultPhase) -> None:
        inject_failure(config.faults, request.batch, phase, directory)

    address = SegmentAddress(directory, config.checkpoint)
    return attend(config, request, operator, feed, address, host, probe)


def attend(
    config: OperatorConfig,
    request: TaskRequest,
    operator: Operator,
    feed: Feed,
    address: StateAddress,
    host: str,
    probe: Callable[[FaultPhase], None],
) -> TaskReport:
    """The same for any kind of residence. ``probe`` is called at every moment at which a failure can strike."""
    try:
        return _Task(config, request, operator, feed, address, host, probe).run()
    except UncountedLossFound as found:
        return TaskReport(
            worker=request.worker,
            status=Status.MISSING,
            host=host,
            detail=f"gone with what incarnation {found.trace.incarnation} had made final in this batch",
            trace=found.trace,
        )
    except NoSpace as error:
        return TaskReport(worker=request.worker, status=Status.FAILED, host=host, error=error)
    except SegmentError as error:
        return TaskReport(worker=request.worker, status=Status.BUSY, host=host, detail=str(error))
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        return TaskReport(worker=request.worker, status=Status.FAILED, host=host, error=as_failure(error, operator))


class _Task:
    def __init__(
        self,
        config: OperatorConfig,
        request: TaskRequest,
        operator: Operator,
        feed: Feed,
        address: StateAddress,
        host: str,
        probe: Callable[[FaultPhase], None],
    ) -> None:
        self.config, self.request, self.operator, self.feed = config, request, operator, feed
        self.address, self.host, self.probe = address, host, probe
        self.specs = operator.states()
        self.identity = Identity(
            query_id=config.query_id,
            fingerprint=config.fingerprint,
            operator=config.operator_name,
            worker=request.worker,
            workers=config.workers,
            checkpoint=config.checkpoint,
        )
        self.wanted = Wanted(self.identity, request.incarnation, request.batch, request.hint, request.fence)
        self.clock = Stopwatch({})
        self.damaged: tuple[str, ...] = ()
        self.restored: Restored | None = None
        self.writes = BackupWrites(config.store)
        self.stepped = config.in_steps(request.punctuation_plan)
        self.progress = StepProgress()
        self._supersede = False
        self._left_out = False
        #: what the newest backup of a step says of the panes, in case it is all that is left
        self._named: PaneReport | None = None

    def run(self) -> TaskReport:
        self.probe(FaultPhase.BETWEEN)
        action = decide(self.address.examine(), self.wanted)
        if action is Action.CREATE or action is Action.RECOVER:
            self._build(recover=action is Action.RECOVER)
        elif action.refused:
            return self._refused(action)
        home = self.address.open()
        if home is None:
            return self._answer(Status.BUSY, "vanished")
        with home.lock(LOCK_SECONDS):
            # Decided again under the lock: an earlier attempt may have ended while this one waited for it.
            action = decide(home.found(), self.wanted)
            if action.refused:
                return self._refused(action)
            home.raise_fence(self.wanted.fence)
            self.damaged = noted_damage(home, self.request.batch)
            return self._carry_out(action, home, self._panes(home))

    def _carry_out(self, action: Action, home: StateStorage, panes: PaneStates) -> TaskReport:
        batch = self.request.batch
        if action is Action.ALREADY_APPLIED:
            return TaskReport.from_json(json.loads(home.report(batch)))
        if action in (Action.ROLL_BACK_THEN_APPLY, Action.ROLL_BACK, Action.STEP_BACK):
            if action is Action.STEP_BACK:
                home.step_back(batch)
            panes.rollback()
            home.clear_mark()
        if action in (Action.APPLY, Action.ROLL_BACK_THEN_APPLY) and self.request.apply:
            if self.stepped and (action is Action.ROLL_BACK_THEN_APPLY or home.step):
                take_up(home, self.config, self.request)
            return self._apply(home, panes)
        if action not in (Action.CREATE, Action.RECOVER):
            # Whoever asked for the state alone may complete its recovery in the ledger.
            self.damaged = noted_damage(home, self.request.batch)
            return self._answer(Status.APPLIED, action.value)
        return self._answer(Status.BUSY, action.value)

    def _refused(self, action: Action) -> TaskReport:
        lost = action in (Action.MISSING, Action.STALE)
        return self._answer(Status.MISSING if lost else Status.CONTRADICTORY, action.value)

    def _answer(self, status: Status, detail: str) -> TaskReport:
        return TaskReport(
            worker=self.request.worker,
            status=status,
            host=self.host,
            detail=detail,
            seconds=self.clock.seconds,
            damaged=self.damaged,
            restored=self.restored,
        )

    def _build(self, *, recover: bool) -> None:
        """Puts new, empty state in place, at the version before the batch; it counts as missing until it is whole."""
        started = time.perf_counter()
        if self.stepped:
            self._shut_out_others()
        with self.address.create(self.identity, self.request.incarnation) as home, home.lock(LOCK_SECONDS):
            home.raise_fence(self.wanted.fence)
            # A driver that died in the first batch has left no record, but perhaps backups of its steps.
            if recover or self.stepped:
                cells = self._restore(home)
                self.restored = Restored(time.perf_counter() - started, cells)
            home.restored(self.request.batch - 1)
        self.clock.lap("recovery" if recover else "creation", started)

    def _shut_out_others(self) -> None:
        """A process that still works on a state which is gone here must confirm nothing more: not after we have looked
        for its backups. Without a lane at hand the driver has seen to it.
        """
        if isinstance(self.feed, LaneFeed):
            try:
                self.feed.intake.claim()
            except LaneAway as error:
                raise SegmentError("The receiver of a lost worker does not answer.") from error

    def _restore(self, home: StateStorage) -> int:
        """Loads what is durable; the number of cells."""
        self.probe(FaultPhase.RECOVERING)
        request = self.request
        chain, previous = request.chain, request.previous
        rotten: tuple[str, ...] = ()
        if self.stepped:
            unnamed = find_unnamed(self.config, request)
            if (undeclared := unnamed.undeclared(request, self.config)) is not None:
                raise UncountedLossFound(undeclared)
            begin_generation(home, self.config, request, unnamed.generation, unnamed.progress)
            reached = unnamed.progress or StepProgress()
            rotten = (*unnamed.rotten, *reached.uncovered)
            for backup in reached.backups:
                chain, previous = extend(chain, previous, backup)
        loaded = load_chain(self.config.store, chain, previous)
        cells = self._panes(home).restore(loaded.images, request.batch_time.needed_from)
        before = Batch(request.batch - 1)
        for port, packets in waiting_feedback(loaded.images, before).items():
            home.keep(before, port, pack_packets(packets))
        damaged = [*(damage.name for damage in loaded.damaged), *rotten]
        if damaged:
            note_damage(home, request.batch, damaged)
        return cells

    def _panes(self, home: StateStorage) -> PaneStates:
        window, first = self.config.window, self.request.batch_time.needed_from
        decaying = window if isinstance(window, Decaying) else None
        paned = window is not None and decaying is None
        return home.attach(
            "panes", lambda columns: PaneStates(columns, self.specs, paned=paned, first=first, decaying=decaying)
        )

    def _apply(self, home: StateStorage, panes: PaneStates) -> TaskReport:
        request = self.request
        started = time.perf_counter()
        if request.batch_time.needed_from is not None:
            panes.drop_below(request.batch_time.needed_from)
        self._resume(home, panes)
        while True:
            panes.begin()
            home.begin(request.batch)
            try:
                more = self.feed.advance(self._settled) and home.step < MOST_STEPS
                self._admit_damage(home)
                output = self._processed(home, panes)
                started = self.clock.lap("process", started)
                durable = self._back_up(home, panes, output)
                emitted = self._keep(home, panes, output)
                settled = self.writes.wait(0.0 if more else None)
            except BaseException:
                panes.rollback()
                home.clear_mark()
                self.writes.leave()
                raise
            self.probe(FaultPhase.BACKING_UP)
            started = self.clock.lap("backup", started)
            if not more:
                break
            self._close_step(home, panes, output, settled=settled)
        report = self._report(home, panes, output, emitted=emitted, durable=durable)
        home.finish(request.batch, json.dumps(report.to_json()).encode())
        panes.end()
        return report

    def _processed(self, home: StateStorage, panes: PaneStates) -> Output:
        """Runs the operator over the items. Those that it cannot take are durable elsewhere when this returns."""

        def again() -> None:
            panes.rollback()
            home.clear_mark()
            panes.begin()
            home.begin(self.request.batch)
            self.operator = cloudpickle.loads(self.config.pristine)

        run = partial(self._run, home, panes)
        output, left_out = take_items(
            run, again, self.config, self.request, self.feed, self.operator.key, self.progress.bad
        )
        self._left_out = bool(left_out)
        self.progress = replace(self.progress, bad=(*self.progress.bad, *left_out))
        return output

    def _run(self, home: StateStorage, panes: PaneStates) -> Output:
        applying = partial(self.probe, FaultPhase.APPLYING)
        # A state restored inside the batch has what comes before its items.
        first = home.step == 0 and not self.progress.backups
        shift = BatchProcessor(
            self.config, self.request, self.operator, panes, applying, self.progress.panes, first=first
        )
        return shift.run(self.feed)

    # --- steps of a batch of pushed items -------------------------------------------------------------------

    def _resume(self, home: StateStorage, panes: PaneStates) -> None:
        """Takes up a batch where an earlier process left it, or begins it."""
        if not isinstance(self.feed, LaneFeed):
            return
        note = home.step_note(self.request.batch)
        self.progress = StepProgress() if note is None else StepProgress.from_text(note.decode())
        if home.step or self.progress.backups:
            self.writes = BackupWrites(self.config.store, self.progress.backups)
            # A backup of a step that was never closed must not be taken for the newest one.
            self._supersede = True
        else:
            self.progress = replace(self.progress, positions=self.feed.start)
        self.feed.resume(self.progress, self._start(home), stepped=self.stepped)
        if self.progress.writing:
            # The state takes a backup for durable that may not be. A whole image of what it takes for durable
            # makes that true, before any item that counts on it is confirmed.
            images: dict[ImageKey, pa.RecordBatch] = {
                StateLabel(name, pane): panes.stamped(state.dump()) for name, pane, state in panes.named()
            }
            self._write(home, images, full=True, seen=self.progress.panes)
            self.writes.wait()

    def _start(self, home: StateStorage) -> Start:
        newest = max(self.progress.newest, BackupNumber(self.request.batch, -1, 0))
        return Start(
            durable=newest,
            resumed=home.step > 0,
            restored=home.step == 0,
            losses_counted=self.request.losses_counted(exact=self.config.exact),
            damaged=bool(self.progress.damaged or self.damaged),
        )

    def _admit_damage(self, home: StateStorage) -> None:
        """Damaged backups of steps, whose items were confirmed nevertheless, are no loss that any bound covers."""
        missed = isinstance(self.feed, LaneFeed) and self.feed.intake.misses_backup
        if missed and not set(self.progress.damaged) <= set(self.damaged):
            self.damaged = tuple(dict.fromkeys((*self.damaged, *self.progress.damaged)))
            note_damage(home, self.request.batch, self.damaged)

    def _close_step(self, home: StateStorage, panes: PaneStates, output: Output, *, settled: bool) -> None:
        self.progress = self._reached(output.panes, writing=not settled)
        home.close_step(self.request.batch, self.progress.to_text().encode())
        self.request = replace(self.request, recheck=False)
        panes.end()

    def _reached(self, seen: PaneReport | None, *, writing: bool = False) -> StepProgress:
        """How far the batch has come, with all that is not final yet."""
        assert isinstance(self.feed, LaneFeed)
        done = replace(self.progress, panes=seen, backups=self.writes.durable, writing=writing, uncovered=self.damaged)
        return self.feed.progress(done)

    def _settled(self, seconds: float | None) -> bool:
        """Whether the backups of closed steps are durable, after so many seconds; then their items are confirmed."""
        settled = self.writes.wait(seconds)
        if settled and isinstance(self.feed, LaneFeed):
            self.feed.intake.confirm(self.progress.positions, self.progress.newest)
        return settled

    def _report(
        self,
        home: StateStorage,
        panes: PaneStates,
        output: Output,
        *,
        emitted: int,
        durable: bool,
    ) -> TaskReport:
        return TaskReport(
            worker=self.request.worker,
            status=Status.APPLIED,
            host=self.host,
            items=self.feed.items,
            bytes=self.feed.bytes,
            backups=self.writes.durable,
            positions=dict(self.feed.intake.positions) if isinstance(self.feed, LaneFeed) else None,
            gaps=self.feed.intake.gaps if isinstance(self.feed, LaneFeed) else (),
            bad=self.progress.bad,
            consumed=dict(self.feed.consumed),
            produced={port: digest_of(data) for port, data in output.kept.items() if port not in (ROWS, WINDOWS)},
            columns=pack_schema(output.schema) if output.schema is not None else "",
            fed_back={name: sum(batch.num_rows for batch in sent) for name, sent in output.feedback.items()},
            feedback_durable=durable,
            cells=sum(state.size for _, _, state in panes.named()),
            memory=home.columns.memory,
            drift=panes.drifts(self._tick(output)),
            theta=dict(self.request.theta),
            emitted=emitted,
            panes=output.panes,
            seconds=self.clock.seconds,
            damaged=self.damaged,
            restored=self.restored,
            behind=self.feed.intake.behind if isinstance(self.feed, LaneFeed) else 0,
        )

    def _back_up(self, home: StateStorage, panes: PaneStates, output: Output) -> bool:
        """Begins to write what must be durable before the batch, or a step of it, is final; whether feedback is."""
        request = self.request
        # What follows a damaged object in a chain is never read, so a new chain has to start here.
        full = request.full or bool(self.damaged)
        full = full and not any(backup.full for backup in self.writes.all)
        if panes.fading is not None and panes.fading.moved:
            # Pairs would follow backups in other units.
            full = min(request.theta.values()) < math.inf
        tick = self._tick(output)
        images: dict[ImageKey, pa.RecordBatch] = {}
        for name, pane, state in panes.named():
            state.settle()
            pairs = state.issue(self._theta(name, pane, panes, tick), everything=request.recheck)
            if full:
                images[StateLabel(name, pane)] = panes.stamped(state.dump())
            elif pairs is not None:
                images[StateLabel(name, pane)] = panes.stamped(pairs)
        waiting = sum(batch.num_rows for sent in output.feedback.values() for batch in sent)
        durable = waiting > request.items
        if durable:
            for target, sent in output.feedback.items():
                for number, batch in enumerate(sent):
                    images[FeedbackPart(target, request.batch, number)] = batch
        if images or self._step_needs_backup(output):
            self._write(home, images, full=full, seen=output.panes)
        return durable or waiting == 0

    def _step_needs_backup(self, output: Output) -> bool:
        """Whether a step that changes nothing much is backed up all the same.

        Items that a receiver has in its log must not be replayed onto a state that had them: their end is kept. And a
        loss must be counted by whoever finds nothing but backups: so the first step of an incarnation leaves one
        before its items are confirmed, and one that opens a pane names it. Where nothing may be lost, nothing is
        confirmed that a backup does not have.
        """
        if not (isinstance(self.feed, LaneFeed) and self.feed.stepped):
            return self._supersede
        logged = self.feed.intake.stop_logging()
        named = self._is_named(output.panes)
        if self.config.exact:
            named = self.feed.intake.positions == self.progress.positions
        # What was left out is known with the positions alone, so these must not go back behind it.
        return logged or self._supersede or self._left_out or not named

    def _is_named(self, seen: PaneReport | None) -> bool:
        if self._named is None and not self.request.counts:
            return False
        window = self.config.window
        if window is not None and window.by == "count":
            # How many items were counted must not go back, or all windows after it would move.
            assert isinstance(self.feed, LaneFeed)
            return self.feed.intake.positions == self.progress.positions
        if seen is None or isinstance(window, Decaying):
            return True
        named = frozenset() if self._named is None else self._named.panes
        return seen.panes <= (named | self.request.batch_time.exposed)

    def _write(
        self, home: StateStorage, images: Mapping[ImageKey, pa.RecordBatch], *, full: bool, seen: PaneReport | None
    ) -> None:
        # It names those before it, so they have to be durable.
        self._settled(None)
        cells = sum(image.num_rows for image in images.values())
        if isinstance(self.feed, LaneFeed):
            newest = BackupNumber(self.request.batch, self.request.incarnation, home.number_backup())
            self.progress = replace(self.progress, newest=newest)
        data = seal(self._header(full, cells, seen).to_json(), images)
        name = backup_name(self.config, self.request, max(0, self.progress.newest.number))
        self.writes.begin(ObjectRef.of(name, data, cells=cells, full=full), data)
        self._supersede = False
        self._named = seen or PaneReport(worker=self.request.worker)

    def _theta(self, state: str, pane: Pane, panes: PaneStates, tick: int | None) -> float:
        theta = self.request.theta_of(state, pane)
        return theta if panes.fading is None else panes.fading.threshold(theta, tick)

    def _tick(self, output: Output) -> int | None:
        """The tick of a decaying window that a loss of the present state would be counted at, or one before it."""
        window = self.config.window
        if not isinstance(window, Decaying):
            return None
        # Of the times in steps nobody but the store hears before they are final.
        return self.request.batch_time.tick(window, self._named if self.stepped else output.panes)

    def _header(self, full: bool, cells: int, seen: PaneReport | None) -> BackupHeader:
        progress = self._reached(seen) if isinstance(self.feed, LaneFeed) else None
        return replace(BackupHeader.of(self.config, self.request), full=full, cells=cells, progress=progress)

    def _keep(self, home: StateStorage, panes: PaneStates, output: Output) -> int:
        """Keeps what other stages and the sink will read; the number of rows for the sink."""
        rows = self.operator.changed(panes.of(None)) if self.config.emit else None
        if rows is not None:
            output.kept[ROWS] = pack_packets([Packet(rows)])
        for port, data in output.kept.items():
            home.keep(self.request.batch, port, data)
        return 0 if rows is None else rows.num_rows
