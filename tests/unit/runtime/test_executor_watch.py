"""What a watch has Spark do about executors that do not answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from py4j.protocol import Py4JError

from afspark.cluster.liveness import ASK_SECONDS, Absence, Patience
from afspark.cluster.spark.executor_watch import IDLE_SECONDS, ExecutorWatch

PATIENCE = Patience(silent=1.0, gone=0.0, removal=5.0)


class SteppedClock:
    """Time passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class FakeQuestion:
    executors: FakeExecutors
    executor: str

    @property
    def is_over(self) -> bool:
        return self.executor not in self.executors.frozen

    @property
    def is_answered(self) -> bool:
        return self.executor not in self.executors.unreachable


@dataclass
class FakeExecutors:
    """Executors that answer at once unless they are frozen; what was done to them."""

    known: dict[str, str] = field(default_factory=lambda: {"0": "a", "1": "b", "2": "c"})
    frozen: set[str] = field(default_factory=set)
    #: questions to them come to nothing
    unreachable: set[str] = field(default_factory=set)
    withheld: set[str] = field(default_factory=set)
    replaced: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    used: dict[str, frozenset[str]] = field(default_factory=dict)
    #: stages of which Spark was asked where they run
    asked: list[str] = field(default_factory=list)
    is_stopped: bool = False

    def hosts(self) -> dict[str, str]:
        return dict(self.known)

    def ask(self, executor: str) -> FakeQuestion:
        return FakeQuestion(self, executor)

    def forget(self, executor: str) -> None: ...

    def withhold_tasks(self, executor: str) -> None:
        self.withheld.add(executor)

    def give_tasks(self, executor: str) -> None:
        self.withheld.remove(executor)

    def replace(self, executor: str, why: str) -> None:
        self.replaced.append(executor)
        del self.known[executor]

    def used_by(self, tag: str) -> frozenset[str]:
        self.asked.append(tag)
        return self.used.get(tag, frozenset())

    def cancel(self, tag: str) -> None:
        self.cancelled.append(tag)


class Watched:
    """A watch whose rounds a test takes itself."""

    def __init__(self) -> None:
        self.clock, self.executors = SteppedClock(), FakeExecutors()
        self.begun = 0
        #: what is done aside waits here if it does not end at once
        self.held: list[Callable[[], None]] | None = None
        self.watch = ExecutorWatch(self.executors, self.clock, PATIENCE, start=self._begin, aside=self._aside)

    def _aside(self, work: Callable[[], None]) -> None:
        if self.held is None:
            work()
        else:
            self.held.append(work)

    def _begin(self, work: object) -> None:
        self.begun += 1

    def go(self, seconds: float) -> None:
        for _ in range(round(seconds / ASK_SECONDS)):
            self.watch.look()
            self.clock.sleep(ASK_SECONDS)


def test_a_stage_on_a_frozen_host_is_cancelled_and_others_are_not() -> None:
    watched = Watched()
    with watched.watch.stage({"a", "b"}) as frozen, watched.watch.stage({"a", "c"}) as healthy:
        watched.go(2)
        watched.executors.frozen.add("1")
        watched.go(2)
        assert set(watched.executors.cancelled) == {frozen.tag}
        assert frozen.is_cancelled and not healthy.is_cancelled
    assert watched.watch.missing_hosts() == {"b"} and watched.executors.withheld == {"1"}


def test_a_stage_that_reads_what_a_frozen_executor_keeps_is_cancelled() -> None:
    watched = Watched()
    with watched.watch.stage({"a"}) as reader, watched.watch.stage({"a"}):
        watched.executors.used = {reader.tag: frozenset({"0", "1"})}
        watched.executors.frozen.add("1")
        watched.go(2)
        assert set(watched.executors.cancelled) == {reader.tag}


def test_a_stage_that_is_known_to_wait_ends_before_spark_is_asked_about_others() -> None:
    watched = Watched()
    asked_before: list[int] = []
    with watched.watch.stage({"a"}), watched.watch.stage({"b"}) as frozen, pytest.MonkeyPatch.context() as patch:
        patch.setattr(watched.executors, "cancel", lambda tag: asked_before.append(len(watched.executors.asked)))
        watched.executors.frozen.add("1")
        watched.go(2)
    assert frozen.is_cancelled and asked_before[0] == 0 and watched.executors.asked


def test_rounds_come_when_somebody_s_time_is_over() -> None:
    watched = Watched()
    watched.watch.patience = Patience.of(standby=True)
    watched.executors.frozen.add("1")
    with watched.watch.stage({"a"}):
        pass
    watched.watch._run()  # the thread: it ends by itself
    (failure,) = watched.watch.failures()
    assert failure.noticed - failure.heard == pytest.approx(0.5, abs=0.01)


def test_a_replacement_that_takes_long_holds_nobody_up() -> None:
    watched = Watched()
    watched.held = []
    watched.executors.frozen.add("1")
    with watched.watch.stage({"c"}) as waiting:
        watched.go(8)
        assert len(watched.held) == 1 and not watched.executors.replaced, "it is told once"
        watched.executors.frozen.add("2")
        watched.go(2)
        assert waiting.is_cancelled
    for work in watched.held:
        work()
    assert watched.executors.replaced == ["1"]


def test_a_replacement_that_fails_is_tried_again() -> None:
    watched = Watched()
    watched.held = []
    watched.executors.frozen.add("1")
    watched.go(8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watched.executors, "replace", _fail)
        watched.held.pop()()
    watched.go(1)
    watched.held.pop()()
    assert watched.executors.replaced == ["1"]
    watched.go(2)
    assert not watched.held


def _fail(executor: str, why: str) -> None:
    raise Py4JError(f"{executor}: {why}")


def test_a_stage_on_a_host_whose_executor_died_is_cancelled() -> None:
    watched = Watched()
    with watched.watch.stage({"a", "b"}) as stage:
        watched.go(1)
        del watched.executors.known["1"]
        watched.go(ASK_SECONDS)
        assert watched.executors.cancelled == [stage.tag]
    (failure,) = watched.watch.failures()
    assert (failure.host, failure.kind) == ("b", Absence.GONE)


def test_a_host_that_answers_again_is_given_tasks_again() -> None:
    watched = Watched()
    watched.executors.frozen.add("1")
    watched.go(3)
    assert watched.executors.withheld == {"1"}
    watched.executors.frozen.clear()
    watched.go(1)
    assert watched.executors.withheld == set() and watched.watch.missing_hosts() == set()
    assert watched.executors.replaced == []


def test_an_executor_that_stays_silent_is_replaced_once() -> None:
    watched = Watched()
    watched.executors.frozen.add("1")
    watched.go(10)
    assert watched.executors.replaced == ["1"] and watched.watch.missing_hosts() == {"b"}
    watched.executors.known["3"] = "b"
    watched.go(1)
    assert watched.watch.missing_hosts() == set()


def test_a_question_that_came_to_nothing_is_no_answer() -> None:
    watched = Watched()
    watched.executors.unreachable.add("1")
    watched.go(2)
    assert watched.watch.missing_hosts() == {"b"}
    watched.executors.unreachable.clear()
    watched.go(1)
    assert watched.watch.missing_hosts() == set()


def test_a_stage_that_has_ended_is_not_cancelled() -> None:
    watched = Watched()
    with watched.watch.stage({"b"}):
        watched.go(1)
    watched.executors.frozen.add("1")
    watched.go(3)
    assert watched.executors.cancelled == []


def test_nobody_is_watched_for_longer_than_anybody_cares() -> None:
    watched = Watched()
    with watched.watch.stage({"a"}):
        assert watched.begun == 1
    watched.watch._run()  # the thread: it ends by itself
    assert watched.clock.now >= 1000.0 + IDLE_SECONDS
    with watched.watch.stage({"a"}):
        assert watched.begun == 2
