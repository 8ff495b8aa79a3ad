"""Schemes that change on real executors, by their user or the controller, and replicas that do not do the same."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.cluster.conftest import Driver
from tests.cluster.machines import HOSTS
from tests.spark.streams import Place, text, write_text

FILES = 4 * 8


def test_a_query_changes_its_scheme_while_batches_go_on_and_a_host_is_lost(driver: Driver, place: Place) -> None:
    changes = ["active-standby", "hot-standby", "passive-replication", "active-replication"]
    answer = driver.run(place, changes=changes, lose_under="hot-standby")
    assert list(answer["reached"]) == changes, "each was in force before the next was asked for"
    truth: Counter[str] = Counter()
    for number in range(answer["files"]):
        truth.update(text(number).split())
    assert answer["counts"] == truth and answer["bound"] == 0
    (entry,) = answer["ledger"]
    # It slept, and had all that its primary had in memory.
    assert (entry["worker"], entry["host"], entry["restored_cells"]) == (0, HOSTS[1], 0)
    assert answer["reached"]["hot-standby"] < entry["batch"] + 1 <= answer["reached"]["passive-replication"]


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.thorough)])
def test_the_controller_decides_and_a_host_is_lost(driver: Driver, place: Place, seconds: float) -> None:
    truth = write_text(place.input, FILES)
    answer = driver.run(place, ["adaptive", seconds], keyed=True, workers=2, events={"4": ["lose", HOSTS[0]]})
    assert answer["counts"] == truth and answer["bound"] == 0
    decided = answer["decisions"]
    for worker in (0, 1):
        own = [one for one in decided if one["worker"] == worker]
        assert (own[0]["from"], own[0]["to"]) == (None, "active-replication")
        assert [one["from"] for one in own[1:]] == [one["to"] for one in own[:-1]]
    for one in decided:
        (chosen,) = [candidate for candidate in one["candidates"] if candidate["protection"] == one["to"]]
        assert one["reason"] and chosen["cost"] >= 0
    (entry,) = answer["ledger"]
    assert entry["worker"] == 0 and entry["covered"] and entry["host"] in HOSTS
    assert entry["steps"]["seconds"] > 0


@pytest.mark.parametrize("scheme", ["active-replication", pytest.param("active-standby", marks=pytest.mark.thorough)])
def test_replicas_that_do_something_else_are_found_out(driver: Driver, place: Place, scheme: str) -> None:
    """Nobody was lost; what the query says from then on is that no bound covers what it has."""
    write_text(place.input, 12)
    answer = driver.run(place, [scheme, 3600], keyed=True, workers=2, differs=True)
    told = [entry for entry in answer["ledger"] if entry["differed"]]
    assert told and len(told) == len(answer["ledger"])
    assert all("both replicas of worker" in entry["cause"] and not entry["covered"] for entry in told)
    assert answer["bound"] == float("inf")
