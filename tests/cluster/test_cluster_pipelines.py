"""Three operators with windows and feedback on two real hosts, of which one is lost, and a driver that is killed."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import Driver
from tests.cluster.machines import HOSTS
from tests.spark.stages import write_events
from tests.spark.streams import Place

FILES = 12
THETA = 300.0


@pytest.mark.parametrize("tolerance", [["minibatch"], ["approximate", THETA]], ids=["minibatch", "approximate"])
def test_a_host_lost_under_a_pipeline(driver: Driver, place: Place, tolerance: list[object]) -> None:
    truth = write_events(place, FILES)
    answer = driver.run(place, tolerance, stages=True, events={"0": ["lose", HOSTS[0]], "1": ["kill", HOSTS[1]]})
    got = {(window, key): count for window, key, count in answer["windows"]}
    bounds = dict(answer["bounds"])
    windows = {window for window, _ in truth}
    assert set(bounds) == windows and answer["twice"] == []
    for window in windows:
        keys = {key for at, key in truth.keys() | got.keys() if at == window}
        errors = [abs(truth.get((window, key), 0) - got.get((window, key), 0)) for key in keys]
        assert max(errors) <= bounds[window] <= (0 if tolerance == ["minibatch"] else THETA)
    assert answer["ledger"] and answer["total"]["windows"] == len(windows) and answer["total"]["ended"] == 1
    assert answer["hosts"] == list(HOSTS)
    if tolerance == ["minibatch"]:
        assert answer["gate"] == {"passed": FILES * 800, "fed": 2 * len(windows)}


def test_a_killed_driver_keeps_windows_and_feedback(driver: Driver, place: Place) -> None:
    """Killed between its own record of a batch and Spark's: the batch runs again, nothing is applied twice."""
    truth = write_events(place, FILES)
    assert driver.run(place, ["minibatch"], stages=True, events={"0": ["die_after_record", "1"]}) == {}
    answer = driver.run(place, ["minibatch"], stages=True)
    windows = {window for window, _ in truth}
    assert answer["total"] == {"total": FILES * 800, "windows": len(windows), "ended": 1}
    assert answer["gate"] == {"passed": FILES * 800, "fed": 2 * len(windows)}
    assert all(truth[window, key] == count for window, key, count in answer["windows"])
    assert answer["ledger"] == []
