"""Who counts as silent or gone, from what was asked and answered when."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from afspark.cluster.liveness import ASK_SECONDS, Absence, Liveness, Patience, StageUnderWay

HOSTS = {"0": "a", "1": "b", "2": "b"}
PATIENCE = Patience(silent=1.0, gone=2.0, removal=10.0)


class Driver:
    """Rounds of a watch on a clock of its own. ``slow``: how long each executor takes; those not in it are quick."""

    def __init__(self, patience: Patience = PATIENCE) -> None:
        self.now = 100.0
        self.liveness = Liveness(patience)
        self.frozen: set[str] = set()
        self.slow: dict[str, float] = {}
        self.due: dict[str, float] = {}

    def go(self, seconds: float, listed: Mapping[str, str] = HOSTS) -> None:
        for _ in range(round(seconds / ASK_SECONDS)):
            self.now += ASK_SECONDS
            self._look(listed)

    def watch(self, seconds: float) -> None:
        """Rounds as often as they are due."""
        until = self.now + seconds
        while self.now < until:
            self.now += self.liveness.next_look(self.now)
            self._look(HOSTS)

    def _look(self, listed: Mapping[str, str]) -> None:
        for name in [one for one, due in self.due.items() if due <= self.now and one not in self.frozen]:
            self.liveness.answered(name, self.due.pop(name))
        self.liveness.look(listed, self.now)
        for name in listed.keys() - self.due.keys():
            self.liveness.asked(name, self.now)
            self.due[name] = self.now + self.slow.get(name, 0.01)

    @property
    def kinds(self) -> list[tuple[str, Absence]]:
        return [(failure.executor, failure.kind) for failure in self.liveness.failures()]


def test_those_that_answer_are_never_missed() -> None:
    driver = Driver()
    driver.go(60)
    assert driver.kinds == [] and driver.liveness.missing_hosts() == set()


def test_one_that_owes_an_answer_is_silent_until_it_answers() -> None:
    driver = Driver()
    driver.go(5)
    frozen_at = driver.now
    driver.frozen = {"1"}
    driver.go(0.8)
    assert driver.liveness.silent_executors() == set(), "its time is not over"
    driver.go(0.8)
    assert driver.liveness.silent_executors() == {"1"}
    # The other executor of that host answers; the host's state may be held up all the same.
    assert driver.liveness.missing_hosts() == driver.liveness.given_up_hosts(driver.now) == {"b"}
    (failure,) = driver.liveness.failures()
    assert (failure.host, failure.executor, failure.kind) == ("b", "1", Absence.SILENT)
    assert failure.heard <= frozen_at < failure.noticed <= frozen_at + 1.0 + 2 * ASK_SECONDS
    driver.frozen = set()
    driver.go(0.5)
    assert driver.liveness.missing_hosts() == set()
    assert len(driver.kinds) == 1


@pytest.mark.parametrize("silent", [0.1, 0.5, 0.7, 5.0])
@pytest.mark.parametrize("calm", [1.0, 1.03, 1.07, 1.09])
def test_a_silence_is_noticed_as_soon_as_its_time_is_over(silent: float, calm: float) -> None:
    """And not with the next question after that."""
    driver = Driver(Patience.of(standby=True, silent=silent))
    driver.watch(calm)
    asked_at = driver.now
    driver.frozen = {"1"}
    driver.watch(2 * silent)
    (failure,) = driver.liveness.failures()
    assert failure.executor == "1"
    assert silent - 1e-6 <= failure.noticed - asked_at <= silent + 0.01
    assert failure.noticed <= failure.heard + driver.liveness.detection_seconds


def test_who_is_late_has_as_long_as_before() -> None:
    """More rounds are no reason to accuse anybody sooner."""
    driver = Driver(Patience.of(standby=True))
    driver.slow = dict.fromkeys(HOSTS, 0.49)
    driver.watch(20)
    assert driver.kinds == []


def test_one_that_stays_silent_is_removed_once() -> None:
    driver = Driver()
    driver.go(1)
    driver.frozen = {"0"}
    driver.go(9)
    assert driver.liveness.to_remove(driver.now) == []
    driver.go(2)
    assert driver.liveness.to_remove(driver.now) == ["0"]
    driver.liveness.removed("0")
    assert driver.liveness.to_remove(driver.now) == []
    driver.go(1, {"1": "b", "2": "b"})
    assert driver.kinds == [("0", Absence.SILENT)], "the same failure is told once"
    assert driver.liveness.missing_hosts() == {"a"}
    driver.go(1, {"1": "b", "2": "b", "3": "a"})
    assert driver.liveness.missing_hosts() == set()


def test_a_host_without_an_executor_is_given_up_after_a_while() -> None:
    driver = Driver()
    driver.go(1)
    driver.go(1, {"0": "a", "2": "b"})
    assert driver.kinds == [("1", Absence.GONE)] and driver.liveness.missing_hosts() == set()
    driver.go(1, {"0": "a"})
    assert driver.liveness.missing_hosts() == {"b"} and driver.liveness.given_up_hosts(driver.now) == set()
    driver.go(2, {"0": "a"})
    assert driver.liveness.given_up_hosts(driver.now) == {"b"}


def test_with_secondaries_a_host_without_executor_is_given_up_at_once() -> None:
    driver = Driver(Patience.of(standby=True))
    driver.go(1)
    driver.go(ASK_SECONDS, {"0": "a"})
    assert driver.liveness.given_up_hosts(driver.now) == {"b"}


@pytest.mark.parametrize("held_up", [0.7, 2.0, 20.0, 600.0])
def test_a_driver_that_was_held_up_itself_accuses_nobody(held_up: float) -> None:
    """What it asked before may have been answered meanwhile, or not even have been sent."""
    driver = Driver()
    driver.go(5)
    driver.now += held_up
    driver.liveness.look(HOSTS, driver.now)
    assert driver.liveness.silent_executors() == set()
    driver.go(5)
    assert driver.kinds == []


def test_a_driver_that_is_always_late_notices_a_silence_all_the_same() -> None:
    driver = Driver()
    driver.go(5)
    driver.frozen = {"1"}
    for _ in range(5):
        driver.now += 0.6
        driver.go(ASK_SECONDS)
    assert driver.liveness.silent_executors() == {"1"}


def test_a_pause_of_the_watch_accuses_nobody() -> None:
    driver = Driver()
    driver.frozen = {"0", "1", "2"}
    driver.go(0.5)
    driver.liveness.pause()
    driver.now += 600
    driver.frozen = set()
    driver.go(5)
    assert driver.kinds == []


def test_what_happened_while_nobody_watched_is_noticed_in_time() -> None:
    """A pause is no part of the time that it takes to notice a failure."""
    driver = Driver()
    driver.go(5)
    driver.liveness.pause()
    driver.due.clear()
    driver.now += 600
    driver.frozen = {"0"}
    driver.go(3, {name: host for name, host in HOSTS.items() if name != "2"})
    assert driver.kinds == [("2", Absence.GONE), ("0", Absence.SILENT)]
    took = [failure.noticed - failure.heard for failure in driver.liveness.failures()]
    assert took[0] == 0 and took[1] <= PATIENCE.silent + 2 * ASK_SECONDS


def test_where_all_are_slow_nobody_is_silent_so_soon() -> None:
    driver = Driver()
    for seconds, deadline in ((0.6, 1.2), (1.1, 2.7), (2.4, 4.0)):
        driver.slow = dict.fromkeys(HOSTS, seconds)
        driver.go(10)
        assert driver.liveness.deadline == pytest.approx(deadline)
    assert driver.kinds == []


def test_one_that_was_silent_does_not_make_the_next_silence_take_longer() -> None:
    driver = Driver()
    driver.go(5)
    driver.frozen = {"1"}
    driver.go(3)
    driver.frozen = set()
    driver.go(5)
    assert driver.liveness.deadline == 1.0


def test_a_stage_waits_for_hosts_of_its_own() -> None:
    stage = StageUnderWay("tag", frozenset({"a", "b"}))
    assert stage.waits_for({"b", "c"}) and not stage.waits_for({"c"}) and not stage.waits_for(set())
