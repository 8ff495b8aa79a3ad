"""One worker's task for one batch: find the resident state, bring it to the batch before, apply the batch.

Runs in Spark's Python workers. What to do with the segment found is read from the life cycle's table; nothing
here decides that a state is lost.
"""

from __future__ import annotations

import json
import secrets
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from afspark.errors import AfsparkError, NoSpace, OperatorFailed, SegmentError
from afspark.model.operator import Operator, WorkerContext
from afspark.model.states import State
from afspark.runtime.exchange import encode
from afspark.runtime.faults import Phase, strike
from afspark.runtime.host import spark_host
from afspark.runtime.lifecycle import Action, Identity, Wanted, decide
from afspark.runtime.orders import Mission, Order, Report, Status
from afspark.runtime.segment import Segment, SegmentRoot, examine, process_cache
from afspark.store import ObjectRef, load_chain, object_name, seal

LOCK_SECONDS = 10.0

#: File in a segment that names what its recovery had to pass over.
DAMAGE = "damaged.json"


class Feed:
    """The items of one worker in one batch, with what is known of their origin once they were consumed."""

    def __init__(
        self, batches: Iterable[pa.RecordBatch], *, size: int = 0, consumed: Mapping[str, str] | None = None
    ) -> None:
        self.batches = batches
        self.bytes = size
        self.consumed = consumed or {}

    @property
    def items(self) -> int:
        return int(getattr(self.batches, "items", 0))


@dataclass
class Clock:
    """Seconds spent per part of a task."""

    seconds: dict[str, float]

    def lap(self, part: str, since: float) -> float:
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - since
        return now


def serve(mission: Mission, order: Order, operator: Operator, feed: Feed) -> Report:
    """Carries out ``order``; every outcome is a report, only the death of the process is an exception."""
    host = spark_host(mission.driver_host)
    try:
        if host != order.home:
            return Report(worker=order.worker, status=Status.MISPLACED, host=host)
        return _Task(mission, order, operator, feed, host).run()
    except NoSpace as error:
        return Report(worker=order.worker, status=Status.FAILED, host=host, error=error)
    except SegmentError as error:
        return Report(worker=order.worker, status=Status.BUSY, host=host, detail=str(error))
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        return Report(worker=order.worker, status=Status.FAILED, host=host, error=as_failure(error, operator))


def as_failure(error: Exception, operator: Operator) -> AfsparkError:
    """The error as the driver will raise it; what user code raised keeps its trace as a field."""
    if isinstance(error, AfsparkError):
        return error
    return OperatorFailed(
        f"{type(operator).__name__} failed: {type(error).__name__}: {error}",
        trace="".join(traceback.format_exception(error)),
    )


class _Task:
    def __init__(self, mission: Mission, order: Order, operator: Operator, feed: Feed, host: str) -> None:
        self.mission, self.order, self.operator, self.feed, self.host = mission, order, operator, feed, host
        self.identity = Identity(
            query_id=mission.query_id,
            fingerprint=mission.fingerprint,
            operator=mission.operator_name,
            worker=order.worker,
            workers=mission.workers,
            checkpoint=mission.checkpoint,
        )
        self.wanted = Wanted(self.identity, order.incarnation, order.batch, order.hint, order.fence)
        root = SegmentRoot(mission.segments, host)
        self.directory = root.directory(mission.query_id, mission.operator_name, order.worker)
        self.clock = Clock({})
        self.damaged: tuple[str, ...] = ()
        self.restored_cells = 0

    def run(self) -> Report:
        self._probe(Phase.BETWEEN)
        action = decide(examine(self.directory), self.wanted)
        if action is Action.CREATE or action is Action.RECOVER:
            self._build(recover=action is Action.RECOVER)
        elif action.refused:
            return self._refused(action)
        segment = process_cache().get(self.directory)
        if segment is None:
            return self._answer(Status.BUSY, "vanished")
        with segment.lock(LOCK_SECONDS):
            # Decided again under the lock: an earlier attempt may have ended while this one waited for it.
            action = decide(segment.found(), self.wanted)
            if action.refused:
                return self._refused(action)
            segment.raise_fence(self.wanted.fence)
            return self._carry_out(action, segment, self._states(segment))

    def _carry_out(self, action: Action, segment: Segment, states: Mapping[str, State]) -> Report:
        batch = self.order.batch
        if action is Action.ALREADY_APPLIED:
            return Report.from_json(json.loads(segment.report(batch)))
        if action in (Action.ROLL_BACK_THEN_APPLY, Action.ROLL_BACK, Action.STEP_BACK):
            if action is Action.STEP_BACK:
                segment.step_back(batch)
            for state in states.values():
                state.rollback()
            segment.clear_mark()
        if action in (Action.APPLY, Action.ROLL_BACK_THEN_APPLY) and self.order.apply:
            return self._apply(segment, states)
        if action not in (Action.CREATE, Action.RECOVER):
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
        """Puts a new segment in place, at the version before the batch; it counts as missing until it is whole."""
        started = time.perf_counter()
        segment = Segment.create(self.directory, self.identity, self.order.incarnation, restoring=True)
        try:
            with segment.lock(LOCK_SECONDS):
                if recover:
                    self._restore(segment)
                segment.restored(self.order.batch - 1)
        finally:
            segment.close()
        self.clock.lap("recovery" if recover else "creation", started)

    def _restore(self, segment: Segment) -> None:
        self._probe(Phase.RECOVERING)
        loaded = load_chain(self.mission.store, self.order.chain, self.order.previous)
        for name, state in self._states(segment).items():
            state.restore(loaded.images.get(name, ()))
            self.restored_cells += state.size
        if loaded.damaged:
            # Kept with the state until its first batch: this process may die before it can report.
            names = [damage.name for damage in loaded.damaged]
            (segment.directory / DAMAGE).write_text(json.dumps(names))

    def _states(self, segment: Segment) -> dict[str, State]:
        specs = self.operator.states()
        return segment.attach(
            "states", lambda columns: {name: spec.open(columns, name) for name, spec in specs.items()}
        )

    def _apply(self, segment: Segment, states: Mapping[str, State]) -> Report:
        order = self.order
        started = time.perf_counter()
        damage = segment.directory / DAMAGE
        self.damaged = tuple(json.loads(damage.read_text())) if damage.exists() else ()
        for state in states.values():
            state.acknowledge()
            state.begin()
        segment.begin(order.batch)
        try:
            self._process(states)
            started = self.clock.lap("process", started)
            backup = self._back_up(states)
            emitted = self._emit(segment, states)
        except BaseException:
            for state in states.values():
                state.rollback()
            segment.clear_mark()
            raise
        self._probe(Phase.BACKING_UP)
        self.clock.lap("backup", started)
        report = Report(
            worker=order.worker,
            status=Status.APPLIED,
            host=self.host,
            items=self.feed.items,
            bytes=self.feed.bytes,
            backup=backup,
            consumed=dict(self.feed.consumed),
            cells=sum(state.size for state in states.values()),
            memory=segment.columns.memory,
            drift={name: state.drift() for name, state in states.items()},
            emitted=emitted,
            seconds=self.clock.seconds,
            damaged=self.damaged,
            restored_cells=self.restored_cells,
        )
        segment.finish(order.batch, json.dumps(report.to_json()).encode())
        damage.unlink(missing_ok=True)
        return report

    def _process(self, states: Mapping[str, State]) -> None:
        context = WorkerContext(
            worker=self.order.worker,
            workers=self.mission.workers,
            batch=self.order.batch,
            missing=self.order.missing,
        )
        self.operator.begin(states, context)
        for items in self.feed.batches:
            self.operator.process(items, states)
            self._probe(Phase.APPLYING)
        self.operator.finish(states)
        self._probe(Phase.APPLYING)

    def _back_up(self, states: Mapping[str, State]) -> ObjectRef | None:
        """Writes what must be durable before the batch may end; None if nothing must."""
        # What follows a damaged object in a chain is never read, so a new chain has to start here.
        full = self.order.full or bool(self.damaged)
        images: dict[str, pa.RecordBatch] = {}
        for name, state in states.items():
            state.settle()
            pairs = state.issue(self.order.theta[name], everything=self.order.recheck)
            if full:
                images[name] = state.dump()
            elif pairs is not None:
                images[name] = pairs
        if not images:
            return None
        order, mission = self.order, self.mission
        name = object_name(
            mission.epoch, mission.operator_name, order.worker, order.incarnation, order.batch, secrets.randbelow(10**9)
        )
        meta = {
            "query": mission.query_id,
            "operator": mission.operator_name,
            "worker": order.worker,
            "incarnation": order.incarnation,
            "batch": order.batch,
            "full": full,
        }
        data = seal(meta, images)
        mission.store.put(name, data)
        return ObjectRef.of(name, data, cells=sum(i.num_rows for i in images.values()), full=full)

    def _emit(self, segment: Segment, states: Mapping[str, Any]) -> int:
        if not self.mission.emit:
            return 0
        rows = self.operator.changed(states)
        if rows is None:
            return 0
        segment.write_output(self.order.batch, encode([rows]))
        return rows.num_rows

    def _probe(self, phase: Phase) -> None:
        strike(self.mission.faults, self.order.batch, phase, self.directory)
