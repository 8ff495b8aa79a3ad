"""A checkpoint that hangs while the query works on it: it stops, and what still hangs then harms no later start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from afspark.errors import StoreAway
from afspark.policies import BarrierSnapshot, MiniBatch, Tolerance
from afspark.store import open_store
from afspark.task.backup_writes import BackgroundWrite, ThreadedJob
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Hosts, Hurried, Rig
from tests.unit.store.hanging import HangingStore

pytestmark = pytest.mark.some(3)

BATCH = 2


class Waiting(Hurried):
    """Every batch takes three seconds."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class BehindHosts(Hosts):
    """Records are written by a thread, as on a cluster."""

    def in_background(self, job: Callable[[], None]) -> BackgroundWrite:
        return ThreadedJob(job)


class Hung:
    """A rig on a store that hangs when it is told to."""

    def __init__(self, make_rig: MakeRig, **settings: Any) -> None:
        self.rig, self.truth = make_rig(batches=12, store_wait_seconds=0.1, **settings)
        self.clock = Waiting()
        self.rig.hosts = BehindHosts(clock=self.clock)
        self.store = HangingStore(str(self.rig.checkpoint))
        self.rig.open_store = lambda place: self.store

    def take(self, batch: int) -> None:
        self.clock.now += 3.0

    def stop(self, what: str) -> None:
        """Runs until it hangs in a write of ``what``, and closes the query."""
        self.rig.go(BATCH, deliver=self.take)
        self.store.hangs = lambda kind, name: kind == "put" and what in name
        with pytest.raises(StoreAway) as caught:
            self.rig.go(deliver=self.take)
        self.rig.driver.close()
        assert "\n" not in str(caught.value) and caught.value.path == self.store.path
        assert self.store.begun and not self.store.late

    def restart(self) -> Rig:
        """A start on the same place, which is well for whoever comes new."""
        self.rig.open_store = open_store
        self.rig.start()
        return self.rig

    def let_go(self) -> None:
        """What hung comes to its end."""
        self.store.gate.set()
        deadline = time.monotonic() + 20
        while len(self.store.late) < len(self.store.begun):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def assert_exact(self) -> None:
        assert self.rig.counts() == self.truth and self.rig.bound() == 0


@pytest.fixture
def hang(make_rig: MakeRig) -> Iterator[Callable[..., Hung]]:
    made: list[Hung] = []

    def make(**settings: Any) -> Hung:
        made.append(Hung(make_rig, **settings))
        return made[-1]

    yield make
    for one in made:
        one.store.gate.set()


@pytest.mark.some(4)
@pytest.mark.parametrize("seconds", [0.0, 10.0], ids=["waiting", "behind"])
@pytest.mark.parametrize("tolerance", [MiniBatch(), BarrierSnapshot(batches=1)], ids=["minibatch", "snapshot"])
@pytest.mark.parametrize("what", ["/records/", "/objects/"])
@pytest.mark.parametrize("late", ["before", "meanwhile", "afterwards"])
def test_it_stops_the_query_and_costs_nothing(
    hang: Callable[..., Hung], what: str, tolerance: Tolerance, seconds: float, late: str
) -> None:
    """What hung comes to its end before the next start, while that one works, or when it has ended."""
    hung = hang(tolerance=tolerance, max_replay_seconds=seconds)
    hung.stop(what)
    if late == "before":
        hung.let_go()
    rig = hung.restart()
    rig.go(3)
    if late == "meanwhile":
        hung.let_go()
    rig.go()
    hung.assert_exact()
    assert rig.ledger == []
    rig.driver.close()
    if late == "afterwards":
        hung.let_go()
    # All that is left is what the store has.
    rig.lose()
    rig.start()
    rig.driver.ready()
    hung.assert_exact()
    assert all(entry.recovery is not None and entry.recovery.covered for entry in rig.ledger)


@pytest.mark.parametrize("seconds", [0.0, 10.0], ids=["waiting", "behind"])
def test_hosts_that_are_lost_as_well_cost_nothing(hang: Callable[..., Hung], seconds: float) -> None:
    hung = hang(max_replay_seconds=seconds)
    hung.stop("/objects/")
    hung.rig.lose()
    rig = hung.restart()
    rig.go(2)
    hung.let_go()
    rig.go()
    hung.assert_exact()
    assert all(entry.recovery is not None and entry.recovery.covered for entry in rig.ledger)


@pytest.mark.parametrize("seconds", [0.0, 10.0], ids=["waiting", "behind"])
@pytest.mark.parametrize("what", ["/records/", "/objects/"])
def test_a_store_that_stutters_stops_nothing(hang: Callable[..., Hung], what: str, seconds: float) -> None:
    hung = hang(max_replay_seconds=seconds)
    hung.rig.go(BATCH, deliver=hung.take)
    hung.store.hangs = lambda kind, name: kind == "put" and what in name
    threading.Timer(0.5, hung.store.gate.set).start()
    hung.rig.go(deliver=hung.take)
    assert hung.store.late
    hung.assert_exact()
    assert hung.rig.ledger == []
    hung.rig.driver.close()
