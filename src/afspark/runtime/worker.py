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
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from afspark.errors import NoSpace, SegmentError
from afspark.model.operator import Operator
from afspark.model.windows import Decaying, PaneReport
from afspark.push.workerwire import BackupNumber
from afspark.runtime.baditems import as_failure
from afspark.runtime.clock import Clock
from afspark.runtime.damage import note_damage, noted_damage
from afspark.runtime.exchange import Packet, digest_of, pack_packets, pack_schema
from afspark.runtime.faults import Phase, strike
from afspark.runtime.host import spark_host
from afspark.runtime.intake import LaneAway, LaneFeed, Start
from afspark.runtime.lifecycle import MOST_STEPS, Action, Identity, Wanted, decide
from afspark.runtime.orders import Mission, Order, Report, Status, Trace
from afspark.runtime.panes import Panes, label
from afspark.runtime.quarantining import take_items
from afspark.runtime.residence import Address, Residence
from afspark.runtime.segment import SegmentAddress, SegmentRoot
from afspark.runtime.shift import ROWS, WINDOWS, Feed, Output, Shift, feedback_for, waiting_feedback
from afspark.runtime.steps import (
    PASSAGE,
    THETA,
    Passage,
    backup_name,
    begin_generation,
    find_unnamed,
    header_of,
    take_up,
)
from afspark.runtime.writes import Writes
from afspark.store import ObjectRef, extend, load_chain, seal

LOCK_SECONDS = 10.0


def serve(mission: Mission, order: Order, operator: Operator, feed: Feed) -> Report:
    """Carries out ``order``; every outcome is a report, only the death of the process is an exception."""
    host = spark_host(mission.driver_host)
    if host != order.home:
        return Report(worker=order.worker, status=Status.MISPLACED, host=host)
    directory = SegmentRoot(mission.segments, host).directory(mission.query_id, mission.operator_name, order.worker)

    def probe(phase: Phase) -> None:
        strike(mission.faults, order.batch, phase, directory)

    address = SegmentAddress(directory, mission.checkpoint)
    return attend(mission, order, operator, feed, address, host, probe)


def attend(
    mission: Mission,
    order: Order,
    operator: Operator,
    feed: Feed,
    address: Address,
    host: str,
    probe: Callable[[Phase], None],
) -> Report:
    """The same for any kind of residence. ``probe`` is called at every moment at which a failure can strike."""
    try:
        return _Task(mission, order, operator, feed, address, host, probe).run()
    except _Undeclared as found:
        return Report(
            worker=order.worker,
            status=Status.MISSING,
            host=host,
            detail=f"gone with what incarnation {found.trace.incarnation} had made final in this batch",
            trace=found.trace,
        )
    except NoSpace as error:
        return Report(worker=order.worker, status=Status.FAILED, host=host, error=error)
    except SegmentError as error:
        return Report(worker=order.worker, status=Status.BUSY, host=host, detail=str(error))
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        return Report(worker=order.worker, status=Status.FAILED, host=host, error=as_failure(error, operator))


class _Undeclared(Exception):
    """The store has steps of an incarnation whose loss nobody has counted; only the driver can."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.trace = trace


class _Task:
    def __init__(
        self,
        mission: Mission,
        order: Order,
        operator: Operator,
        feed: Feed,
        address: Address,
        host: str,
        probe: Callable[[Phase], None],
    ) -> None:
        self.mission, self.order, self.operator, self.feed = mission, order, operator, feed
        self.address, self.host, self.probe = address, host, probe
        self.specs = operator.states()
        self.identity = Identity(
            query_id=mission.query_id,
            fingerprint=mission.fingerprint,
            operator=mission.operator_name,
            worker=order.worker,
            workers=mission.workers,
            checkpoint=mission.checkpoint,
        )
        self.wanted = Wanted(self.identity, order.incarnation, order.batch, order.hint, order.fence)
        self.clock = Clock({})
        self.damaged: tuple[str, ...] = ()
        self.restored_cells = 0
        self.writes = Writes(mission.store)
        self.stepped = mission.in_steps(order.programme)
        self.passage = Passage()
        self._supersede = False
        self._left_out = False
        #: what the newest backup of a step says of the panes, in case it is all that is left
        self._named: PaneReport | None = None

    def run(self) -> Report:
        self.probe(Phase.BETWEEN)
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
            self.damaged = noted_damage(home, self.order.batch)
            return self._carry_out(action, home, self._panes(home))

    def _carry_out(self, action: Action, home: Residence, panes: Panes) -> Report:
        batch = self.order.batch
        if action is Action.ALREADY_APPLIED:
            return Report.from_json(json.loads(home.report(batch)))
        if action in (Action.ROLL_BACK_THEN_APPLY, Action.ROLL_BACK, Action.STEP_BACK):
            if action is Action.STEP_BACK:
                home.step_back(batch)
            panes.rollback()
            home.clear_mark()
        if action in (Action.APPLY, Action.ROLL_BACK_THEN_APPLY) and self.order.apply:
            if self.stepped and (action is Action.ROLL_BACK_THEN_APPLY or home.step):
                take_up(home, self.mission, self.order)
            return self._apply(home, panes)
        if action not in (Action.CREATE, Action.RECOVER):
            # Whoever asked for the state alone may complete its recovery in the ledger.
            self.damaged = noted_damage(home, self.order.batch)
            return self._answer(Status.APPLIED, action.value)
        return self._answer(Status.BUSY, action.value)

    def _refused(self, action: Action) -> Report:
        lost = action in (Action.MISSING, Action.STALE)
        return self._answer(Status.MISSING if lost else Status.CONTRADICTORY, action.value)

    def _answer(self, status: Status, detail: str) -> Report:
        return Report(
            worker=self.order.worker,
            status=status,
            host=self.host,
            detail=detail,
            seconds=self.clock.seconds,
            damaged=self.damaged,
            restored_cells=self.restored_cells,
        )

    def _build(self, *, recover: bool) -> None:
        """Puts new, empty state in place, at the version before the batch; it counts as missing until it is whole."""
        started = time.perf_counter()
        if self.stepped:
            self._shut_out_others()
        with self.address.create(self.identity, self.order.incarnation) as home, home.lock(LOCK_SECONDS):
            home.raise_fence(self.wanted.fence)
            # A driver that died in the first batch has left no record, but perhaps backups of its steps.
            if recover or self.stepped:
                self._restore(home)
            home.restored(self.order.batch - 1)
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

    def _restore(self, home: Residence) -> None:
        self.probe(Phase.RECOVERING)
        order = self.order
        chain, previous = order.chain, order.previous
        rotten: tuple[str, ...] = ()
        if self.stepped:
            unnamed = find_unnamed(self.mission, order)
            if (undeclared := unnamed.undeclared(order, self.mission)) is not None:
                raise _Undeclared(undeclared)
            begin_generation(home, self.mission, order, unnamed.generation, unnamed.passage)
            reached = unnamed.passage or Passage()
            rotten = (*unnamed.rotten, *reached.uncovered)
            for backup in reached.backups:
                chain, previous = extend(chain, previous, backup)
        loaded = load_chain(self.mission.store, chain, previous)
        self.restored_cells = self._panes(home).restore(loaded.images, order.calendar.needed_from)
        for port, packets in waiting_feedback(loaded.images, order.batch - 1).items():
            home.keep(order.batch - 1, port, pack_packets(packets))
        damaged = [*(damage.name for damage in loaded.damaged), *rotten]
        if damaged:
            note_damage(home, self.order.batch, damaged)

    def _panes(self, home: Residence) -> Panes:
        window, first = self.mission.window, self.order.calendar.needed_from
        decaying = window if isinstance(window, Decaying) else None
        paned = window is not None and decaying is None
        return home.attach(
            "panes", lambda columns: Panes(columns, self.specs, paned=paned, first=first, decaying=decaying)
        )

    def _apply(self, home: Residence, panes: Panes) -> Report:
        order = self.order
        started = time.perf_counter()
        if order.calendar.needed_from is not None:
            panes.drop_below(order.calendar.needed_from)
        self._resume(home, panes)
        while True:
            panes.begin()
            home.begin(order.batch)
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
            self.probe(Phase.BACKING_UP)
            started = self.clock.lap("backup", started)
            if not more:
                break
            self._close_step(home, panes, output, settled=settled)
        report = self._report(home, panes, output, emitted=emitted, durable=durable)
        home.finish(order.batch, json.dumps(report.to_json()).encode())
        panes.end()
        return report

    def _processed(self, home: Residence, panes: Panes) -> Output:
        """Runs the operator over the items. Those that it cannot take are durable elsewhere when this returns."""

        def again() -> None:
            panes.rollback()
            home.clear_mark()
            panes.begin()
            home.begin(self.order.batch)
            self.operator = cloudpickle.loads(self.mission.pristine)

        run = partial(self._run, home, panes)
        output, left_out = take_items(
            run, again, self.mission, self.order, self.feed, self.operator.key, self.passage.bad
        )
        self._left_out = bool(left_out)
        self.passage = replace(self.passage, bad=(*self.passage.bad, *left_out))
        return output

    def _run(self, home: Residence, panes: Panes) -> Output:
        applying = partial(self.probe, Phase.APPLYING)
        # A state restored inside the batch has what comes before its items.
        first = home.step == 0 and not self.passage.backups
        shift = Shift(self.mission, self.order, self.operator, panes, applying, self.passage.panes, first=first)
        return shift.run(self.feed)

    # --- steps of a batch of pushed items -------------------------------------------------------------------

    def _resume(self, home: Residence, panes: Panes) -> None:
        """Takes up a batch where an earlier process left it, or begins it."""
        if not isinstance(self.feed, LaneFeed):
            return
        note = home.step_note(self.order.batch)
        self.passage = Passage() if note is None else Passage.from_text(note.decode())
        if home.step or self.passage.backups:
            self.writes = Writes(self.mission.store, self.passage.backups)
            # A backup of a step that was never closed must not be taken for the newest one.
            self._supersede = True
        else:
            self.passage = replace(self.passage, positions=self.feed.start)
        self.feed.resume(self.passage, self._start(home), stepped=self.stepped)
        if self.passage.writing:
            # The state takes a backup for durable that may not be. A whole image of what it takes for durable
            # makes that true, before any item that counts on it is confirmed.
            images = {label(name, pane): panes.stamped(state.dump()) for name, pane, state in panes.named()}
            self._write(home, images, full=True, seen=self.passage.panes)
            self.writes.wait()

    def _start(self, home: Residence) -> Start:
        newest = max(self.passage.newest, BackupNumber(self.order.batch, -1, 0))
        return Start(
            durable=newest,
            resumed=home.step > 0,
            restored=home.step == 0,
            losses_counted=self.order.losses_counted(exact=self.mission.exact),
            damaged=bool(self.passage.damaged or self.damaged),
        )

    def _admit_damage(self, home: Residence) -> None:
        """Damaged backups of steps, whose items were confirmed nevertheless, are no loss that any bound covers."""
        missed = isinstance(self.feed, LaneFeed) and self.feed.intake.misses_backup
        if missed and not set(self.passage.damaged) <= set(self.damaged):
            self.damaged = tuple(dict.fromkeys((*self.damaged, *self.passage.damaged)))
            note_damage(home, self.order.batch, self.damaged)

    def _close_step(self, home: Residence, panes: Panes, output: Output, *, settled: bool) -> None:
        assert isinstance(self.feed, LaneFeed)
        self.passage = self._reached(output.panes, writing=not settled)
        home.close_step(self.order.batch, self.passage.to_text().encode())
        self.order = replace(self.order, recheck=False)
        panes.end()

    def _reached(self, seen: PaneReport | None, *, writing: bool = False) -> Passage:
        """How far the batch has come, with all that is not final yet."""
        assert isinstance(self.feed, LaneFeed)
        done = replace(self.passage, panes=seen, backups=self.writes.durable, writing=writing, uncovered=self.damaged)
        return self.feed.passage(done)

    def _settled(self, seconds: float | None) -> bool:
        """Whether the backups of closed steps are durable, after so many seconds; then their items are confirmed."""
        settled = self.writes.wait(seconds)
        if settled and isinstance(self.feed, LaneFeed):
            self.feed.intake.confirm(self.passage.positions, self.passage.newest)
        return settled

    def _report(
        self,
        home: Residence,
        panes: Panes,
        output: Output,
        *,
        emitted: int,
        durable: bool,
    ) -> Report:
        return Report(
            worker=self.order.worker,
            status=Status.APPLIED,
            host=self.host,
            items=self.feed.items,
            bytes=self.feed.bytes,
            backups=self.writes.durable,
            positions=dict(self.feed.intake.positions) if isinstance(self.feed, LaneFeed) else None,
            gaps=tuple(gap.to_json() for gap in self.feed.intake.gaps) if isinstance(self.feed, LaneFeed) else (),
            bad=self.passage.bad,
            consumed=dict(self.feed.consumed),
            produced={port: digest_of(data) for port, data in output.kept.items() if port not in (ROWS, WINDOWS)},
            columns=pack_schema(output.schema) if output.schema is not None else "",
            fed_back={name: sum(batch.num_rows for batch in sent) for name, sent in output.feedback.items()},
            feedback_durable=durable,
            cells=sum(state.size for _, _, state in panes.named()),
            memory=home.columns.memory,
            drift=panes.drifts(self._tick(output)),
            theta=dict(self.order.theta),
            emitted=emitted,
            panes=output.panes,
            seconds=self.clock.seconds,
            damaged=self.damaged,
            restored_cells=self.restored_cells,
            behind=self.feed.intake.behind if isinstance(self.feed, LaneFeed) else 0,
        )

    def _back_up(self, home: Residence, panes: Panes, output: Output) -> bool:
        """Begins to write what must be durable before the batch, or a step of it, is final; whether feedback is."""
        order = self.order
        # What follows a damaged object in a chain is never read, so a new chain has to start here.
        full = order.full or bool(self.damaged)
        full = full and not any(backup.full for backup in self.writes.all)
        if panes.fading is not None and panes.fading.moved:
            # Pairs would follow backups in other units.
            full = min(order.theta.values()) < math.inf
        tick = self._tick(output)
        images: dict[str, pa.RecordBatch] = {}
        for name, pane, state in panes.named():
            state.settle()
            pairs = state.issue(self._theta(name, pane, panes, tick), everything=order.recheck)
            if full:
                images[label(name, pane)] = panes.stamped(state.dump())
            elif pairs is not None:
                images[label(name, pane)] = panes.stamped(pairs)
        waiting = sum(batch.num_rows for sent in output.feedback.values() for batch in sent)
        durable = waiting > order.items
        if durable:
            for target, sent in output.feedback.items():
                for number, batch in enumerate(sent):
                    images[f"{feedback_for(target)}@{order.batch}@{number}"] = batch
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
        logged = self.feed.intake.settle()
        named = self._is_named(output.panes)
        if self.mission.exact:
            named = self.feed.intake.positions == self.passage.positions
        # What was left out is known with the positions alone, so these must not go back behind it.
        return logged or self._supersede or self._left_out or not named

    def _is_named(self, seen: PaneReport | None) -> bool:
        if self._named is None and not self.order.counts:
            return False
        window = self.mission.window
        if window is not None and window.by == "count":
            # How many items were counted must not go back, or all windows after it would move.
            assert isinstance(self.feed, LaneFeed)
            return self.feed.intake.positions == self.passage.positions
        if seen is None or isinstance(window, Decaying):
            return True
        named = frozenset() if self._named is None else self._named.panes
        return seen.panes <= (named | self.order.calendar.exposed)

    def _write(
        self, home: Residence, images: Mapping[str, pa.RecordBatch], *, full: bool, seen: PaneReport | None
    ) -> None:
        # It names those before it, so they have to be durable.
        self._settled(None)
        cells = sum(image.num_rows for image in images.values())
        if isinstance(self.feed, LaneFeed):
            newest = BackupNumber(self.order.batch, self.order.incarnation, home.number_backup())
            self.passage = replace(self.passage, newest=newest)
        data = seal(self._meta(full, cells, seen), images)
        self.writes.begin(ObjectRef.of(self._object_name(), data, cells=cells, full=full), data)
        self._supersede = False
        self._named = seen or PaneReport(worker=self.order.worker)

    def _theta(self, state: str, pane: int | None, panes: Panes, tick: int | None) -> float:
        order = self.order
        if panes.fading is not None:
            return panes.fading.threshold(order.theta[state], tick)
        if pane is None:
            return order.theta[state]
        return order.pane_theta.get(pane, order.theta)[state]

    def _tick(self, output: Output) -> int | None:
        """The tick of a decaying window that a loss of the present state would be counted at, or one before it."""
        window = self.mission.window
        if not isinstance(window, Decaying):
            return None
        # Of the times in steps nobody but the store hears before they are final.
        return self.order.calendar.tick(window, self._named if self.stepped else output.panes)

    def _object_name(self) -> str:
        return backup_name(self.mission, self.order, max(0, self.passage.newest.number))

    def _meta(self, full: bool, cells: int, seen: PaneReport | None) -> dict[str, Any]:
        steps: dict[str, Any] = {}
        if isinstance(self.feed, LaneFeed):
            steps = {PASSAGE: self._reached(seen).to_text(), THETA: dict(self.order.theta), "cells": cells}
        return steps | header_of(self.mission, self.order) | {"full": full}

    def _keep(self, home: Residence, panes: Panes, output: Output) -> int:
        """Keeps what other stages and the sink will read; the number of rows for the sink."""
        rows = self.operator.changed(panes.of(None)) if self.mission.emit else None
        if rows is not None:
            output.kept[ROWS] = pack_packets([Packet(rows)])
        for port, data in output.kept.items():
            home.keep(self.order.batch, port, data)
        return 0 if rows is None else rows.num_rows
