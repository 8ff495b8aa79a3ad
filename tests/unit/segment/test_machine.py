"""Segment and transition table together, with a process that may die between any two steps.

The machine plays the driver: it hands out tasks, sees them die, retries them, declares losses, takes batches
back and commits them. The worker's state counts how often each batch was applied, so a batch that was applied
twice or left out shows in the counts.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from afspark.protocol.lifecycle import Absent, Action, Hint, Identity, Wanted, decide
from afspark.resident import Segment, SegmentCache
from tests.unit.segment.journalled import JournalledArray

ME = Identity(query_id="q", fingerprint="f", operator="count", worker=0, workers=1)
SHARED_MEMORY = "/dev/shm"
MOST_BATCHES = 512
MOST_STEPS = 13
EVERY_STEP = 99
IN_PLACE = {
    Action.APPLY,
    Action.ALREADY_APPLIED,
    Action.ROLL_BACK_THEN_APPLY,
    Action.ROLL_BACK,
    Action.STEP_BACK,
    Action.NOTHING,
}
KILLS = st.lists(st.integers(0, MOST_STEPS), max_size=3)


class Task:
    """One attempt of the worker's task; `steps` stops wherever its process may be killed."""

    def __init__(self, cache: SegmentCache, place: Path, wanted: Wanted) -> None:
        self._cache = cache
        self._place = place
        self._wanted = wanted
        self.action: Action | None = None
        self.report: bytes | None = None

    def steps(self) -> Iterator[None]:
        segment = self._cache.get(self._place)
        if segment is None:
            self.action = decide(Absent(), self._wanted)
        else:
            with segment.lock(1.0):
                self.action = decide(segment.found(), self._wanted)
                if self.action in IN_PLACE:
                    yield from self._work(segment)
        if self.action in {Action.CREATE, Action.RECOVER}:
            yield from self._fill()

    def _fill(self) -> Iterator[None]:
        yield
        segment = self._cache.create(self._place, ME, self._wanted.incarnation, restoring=True)
        yield
        with segment.lock(1.0):
            # The backup of this test holds every committed batch.
            self._state(segment).values[: self._wanted.batch] = 1
            yield
            segment.restored(self._wanted.batch - 1)
            yield
            yield from self._work(segment)

    def _work(self, segment: Segment) -> Iterator[None]:
        batch = self._wanted.batch
        state = self._state(segment)
        segment.raise_fence(self._wanted.fence)
        yield
        if self.action is Action.STEP_BACK:
            segment.step_back(batch)
            yield
        if self.action in {Action.STEP_BACK, Action.ROLL_BACK, Action.ROLL_BACK_THEN_APPLY}:
            state.rollback()
            yield
            segment.clear_mark()
            yield
        if self._wanted.hint is Hint.ROLLBACK:
            return
        if self.action is not Action.ALREADY_APPLIED:
            state.begin()
            yield
            segment.begin(batch)
            yield
            yield from state.add_stepwise(np.array([batch, MOST_BATCHES + batch]), 1)
            yield
            segment.finish(batch, b"report of %d" % batch)
            yield
        self.report = segment.report(batch)

    @staticmethod
    def _state(segment: Segment) -> JournalledArray:
        return segment.attach("state", lambda columns: JournalledArray(columns, 2 * MOST_BATCHES))


class Driver(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(dir=SHARED_MEMORY if os.path.isdir(SHARED_MEMORY) else None)
        self._place = Path(self._folder.name) / "q" / "count-0"
        self._cache = SegmentCache()
        self._batch = 0  # the batch being worked on; all before it are committed
        self._incarnation = 0
        self._fence = 0
        self._hint = Hint.CREATE
        self._reported = False

    def teardown(self) -> None:
        self._cache.clear()
        self._folder.cleanup()

    def _run(self, wanted: Wanted, kill_after: int) -> Task:
        task = Task(self._cache, self._place, wanted)
        steps = task.steps()
        for _, _ in zip(range(kill_after), steps, strict=False):
            pass
        if kill_after < EVERY_STEP:
            self._kill(steps)
        return task

    def _kill(self, steps: Iterator[None]) -> None:
        # Whatever the dead process knew is gone; what it mapped stays.
        self._cache.clear()
        self._cache = SegmentCache()
        del steps

    def _wanted(self, hint: Hint) -> Wanted:
        return Wanted(ME, self._incarnation, self._batch, hint, self._fence)

    @rule(kills=KILLS)
    def attempts_die(self, kills: list[int]) -> None:
        for kill_after in kills:
            self._attempt(kill_after)

    @rule(kills=KILLS)
    def batch_ends(self, kills: list[int]) -> None:
        self.attempts_die(kills)
        self._attempt(EVERY_STEP)
        assert self._reported

    def _attempt(self, kill_after: int) -> None:
        task = self._run(self._wanted(self._hint), kill_after)
        if task.action is not None:
            assert not task.action.refused
        if task.report is not None:
            assert task.report == b"report of %d" % self._batch
            self._reported = True

    @precondition(lambda self: self._reported and self._batch < MOST_BATCHES - 1)
    @rule()
    def commit(self) -> None:
        segment = Segment.open(self._place)
        assert segment is not None
        state = JournalledArray(segment.columns, 2 * MOST_BATCHES)
        assert (segment.version, segment.marked) == (self._batch, False)
        assert state.values[: self._batch + 1].tolist() == [1] * (self._batch + 1)
        assert state.values[MOST_BATCHES + self._batch] == 1
        assert not state.values[self._batch + 1 : MOST_BATCHES].any()
        segment.close()
        self._batch += 1
        self._hint = Hint.RESUME
        self._reported = False

    @precondition(lambda self: self._reported)
    @rule(kills=KILLS, driver_dies=st.booleans())
    def other_contents_were_seen(self, kills: list[int], driver_dies: bool) -> None:
        self._fence += 1
        self._reported = False
        # A driver that dies over it forgets what it wanted; the next one just runs the batch again.
        for kill_after in kills if driver_dies else [*kills, EVERY_STEP]:
            task = self._run(self._wanted(Hint.ROLLBACK), kill_after)
            assert task.action in {None, Action.STEP_BACK, Action.ROLL_BACK, Action.NOTHING}

    @rule(host_dies=st.booleans(), kills=KILLS)
    def loss_is_declared(self, host_dies: bool, kills: list[int]) -> None:
        if host_dies:
            self._lose_host()
            if self._hint is Hint.RESUME:
                assert self._run(self._wanted(Hint.RESUME), EVERY_STEP).action is Action.MISSING
        self._incarnation += 1
        self._hint = Hint.RECOVER
        self._reported = False
        self.attempts_die(kills)

    def _lose_host(self) -> None:
        self._cache.clear()
        segment = Segment.open(self._place)
        if segment is not None:
            segment.destroy()

    @rule(hint=st.sampled_from(Hint), batches=st.integers(0, 2), incarnations=st.integers(0, 1))
    def zombie_wakes(self, hint: Hint, batches: int, incarnations: int) -> None:
        segment = Segment.open(self._place)
        if segment is None:
            return
        before = segment.found()
        if before.incarnation == self._incarnation and before.fence == self._fence > 0:
            wanted = Wanted(ME, self._incarnation - incarnations, self._batch - batches, hint, self._fence - 1)
            assert self._run(wanted, EVERY_STEP).action is Action.SUPERSEDED
        assert segment.found() == before
        segment.close()

    @invariant()
    def no_batch_is_ever_counted_twice(self) -> None:
        segment = Segment.open(self._place)
        if segment is not None:
            counts = JournalledArray(segment.columns, 2 * MOST_BATCHES).values
            assert counts.max() <= 1
            segment.close()


Driver.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestDriver = Driver.TestCase


@pytest.fixture
def driver() -> Iterator[Driver]:
    """A driver that has committed two batches."""
    machine = Driver()
    for _ in range(2):
        machine.batch_ends([])
        machine.commit()
    yield machine
    machine.teardown()


PAIRS = list(product(range(MOST_STEPS + 1), repeat=2))


@pytest.mark.parametrize("lost", ["nothing", "host", "incarnation"])
def test_every_pair_of_kills(driver: Driver, lost: str) -> None:
    for first, second in PAIRS:
        if lost != "nothing":
            driver.loss_is_declared(host_dies=lost == "host", kills=[])
        driver.batch_ends([first, second])
        driver.commit()


@pytest.mark.parametrize("driver_dies", [False, True])
def test_every_pair_of_kills_around_a_batch_taken_back(driver: Driver, driver_dies: bool) -> None:
    for first, second in PAIRS:
        driver.batch_ends([])
        driver.other_contents_were_seen([first], driver_dies=driver_dies)
        driver.batch_ends([second])
        driver.commit()


def test_no_task_takes_more_steps_than_are_killed(driver: Driver) -> None:
    driver.loss_is_declared(host_dies=True, kills=[])
    task = Task(driver._cache, driver._place, driver._wanted(Hint.RECOVER))
    assert sum(1 for _ in task.steps()) <= MOST_STEPS
