"""Two drivers of one checkpoint at the same time, each a process of its own that is frozen and woken for real."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from afspark.cluster.local.processes import answer, begin
from afspark.coordinator.committer import Committer
from afspark.errors import AnotherDriver
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Nothing, Tolerance
from afspark.store import RecordLog, Store
from afspark.store.lease import Lease
from afspark.store.local import LocalStore
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig
from tests.unit.runtime.sparkless import Rig, die
from tests.unit.runtime.test_engine_failures import worst

FROZEN = 3


def freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class FirstDriver:
    """A driver that runs until it freezes itself."""

    def __init__(self, rig: Rig, script: Callable[[], Any]) -> None:
        rig.engine = None

        def until_refused() -> AnotherDriver:
            try:
                script()
            except AnotherDriver as error:
                return error
            raise AssertionError("it went on beside another driver")

        self.process = begin(until_refused)
        _, status = os.waitpid(self.process[0], os.WUNTRACED)
        assert os.WIFSTOPPED(status), "the driver was meant to freeze"

    def wake(self) -> AnotherDriver:
        """What it says in the end."""
        os.kill(self.process[0], signal.SIGCONT)
        ended, told = answer(self.process)
        assert ended and isinstance(told, AnotherDriver), told
        return told


def frozen_in_a_batch(rig: Rig) -> FirstDriver:
    return FirstDriver(rig, lambda: rig.go(deliver=lambda batch: freeze() if batch == FROZEN else None))


@pytest.mark.parametrize("tolerance", [MiniBatch(), Approximate(400.0), Nothing()], ids=lambda one: one.name)
def test_a_start_beside_a_living_driver_is_refused_or_takes_over(make_rig: MakeRig, tolerance: Tolerance) -> None:
    rig, truth = make_rig(tolerance=tolerance)
    first = frozen_in_a_batch(rig)
    rig.start(takeover=False)
    with pytest.raises(AnotherDriver) as caught:
        rig.go()
    assert (caught.value.host, caught.value.process) == (socket.gethostname(), first.process[0])
    assert "takeover=True" in caught.value.remedy and "new" not in caught.value.remedy
    assert rig.committed == FROZEN - 1
    rig.start(takeover=True)
    rig.go()
    told = first.wake()
    assert (told.host, told.process) == (socket.gethostname(), os.getpid())
    assert "start" not in told.remedy
    assert rig.counts() == truth
    assert rig.ledger == [], "nobody declared the other one's state gone"


def test_a_killed_driver_is_followed_at_once(make_rig: MakeRig) -> None:
    rig, truth = make_rig()
    rig.drive_and_die(lambda: rig.go(deliver=lambda batch: die() if batch == FROZEN else None))
    started = time.monotonic()
    rig.start(takeover=False, lease_seconds=600.0).take_lease()
    assert time.monotonic() - started < 60.0, "it waited"
    rig.go()
    rig.driver.close()
    assert rig.counts() == truth


@pytest.mark.parametrize("tolerance", [MiniBatch(), Approximate(100.0)], ids=lambda one: one.name)
def test_no_batch_is_committed_that_no_record_names(make_rig: MakeRig, tolerance: Tolerance) -> None:
    """The second driver dies before its first batch; the first one must not go on behind its back."""
    rig, truth = make_rig(tolerance=tolerance)
    first = frozen_in_a_batch(rig)

    def take_over_and_die() -> None:
        rig.start().take_lease()
        die()

    rig.drive_and_die(take_over_and_die)
    first.wake()
    assert rig.committed == FROZEN - 1
    rig.lose()
    rig.start(takeover=False)
    rig.go()
    assert worst(truth, rig.counts()) <= rig.bound() <= (100.0 if isinstance(tolerance, Approximate) else 0.0)
    assert all(entry.recovery is not None and entry.recovery.covered for entry in rig.ledger)


@pytest.mark.parametrize("lost", [None, "before", "after"])
@pytest.mark.parametrize("tolerance", [MiniBatch(), BarrierSnapshot(batches=3)], ids=lambda one: one.name)
def test_a_batch_that_an_old_driver_commits_without_a_record_is_replayed(
    make_rig: MakeRig, tolerance: Tolerance, lost: str | None
) -> None:
    """It has looked for others before it froze, and finds the second one with its next batch; that one is dead by then,
    and may have declared a loss.
    """
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=tolerance, record_seconds=1000.0)
    rig, truth = one.rig, one.truth
    first = frozen_in_a_batch(rig)
    if lost == "before":
        rig.lose(0)
    rig.drive_and_die(lambda: (rig.start().ready(), die()))
    first.wake()
    assert rig.committed == FROZEN
    if lost == "after":
        rig.lose()
    rig.start(takeover=False)
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


class FreezingStore(LocalStore):
    """The driver freezes when ``armed`` says so and something is to be deleted."""

    armed: Callable[[], bool] = staticmethod(lambda: False)

    def standing(self, folder: str) -> FreezingStore:
        return self  # a test arms this one

    def delete(self, names: Iterable[str]) -> None:
        listed = list(names)
        if listed and self.armed():
            freeze()
        super().delete(listed)


class FreezingLog(RecordLog):
    """The driver freezes in ``what``, at one batch: when it has "looked" for others, or has "listed" names."""

    def __init__(self, store: Store, rig: Rig, what: str, moment: str) -> None:
        super().__init__(store)
        self.rig, self.what, self.moment = rig, what, moment
        self.acting: list[bool] = []

    def sweep(self) -> list[str]:
        self._begin("sweep")
        return super().sweep()

    def prune(self, keep: int = 8, slack: int = 8) -> list[str]:
        self._begin("prune")
        return super().prune(2, 0) if self.what == "prune" else super().prune(keep, slack)

    def _begin(self, what: str) -> None:
        if what == self.what:
            self.acting.append(self.rig.committed == FROZEN - 1)

    def refuse_if_superseded(self) -> None:
        super().refuse_if_superseded()
        if self.armed("looked"):
            freeze()

    def armed(self, moment: str) -> bool:
        """Whether to freeze at this moment; once."""
        return moment == self.moment and bool(self.acting) and self.acting.pop()


def _frozen_while_deleting(rig: Rig, what: str, moment: str) -> FirstDriver:
    """A driver that freezes in ``what``: right after it has looked for newer ones, or with its list in hand."""

    def script() -> None:
        store = FreezingStore(str(rig.checkpoint))
        rig.open_store = lambda place: store
        engine = rig.start()
        log = FreezingLog(engine.store, rig, what, moment)
        engine.log = engine.commits._log = engine.commits.records._log = log
        engine.lease = Lease(engine.store, log, seconds=engine.options.lease_seconds)
        engine.commits = Committer(engine.cluster, log, engine._stages, engine.commits.pace, engine.commits._effects)
        store.armed = partial(log.armed, "listed")  # type: ignore[method-assign]
        rig.go()

    if what == "sweep":
        # The first record of a driver, with something to be swept of the one before.
        rig.drive_and_die(lambda: rig.go(deliver=lambda batch: die() if batch == FROZEN else None))
    return FirstDriver(rig, script)


@pytest.mark.parametrize("moment", ["looked", "listed"])
@pytest.mark.parametrize("what", ["sweep", "prune"])
def test_an_old_driver_that_wakes_before_it_deletes_takes_nothing_that_is_needed(
    make_rig: MakeRig, what: str, moment: str
) -> None:
    rig, truth = make_rig(tolerance=MiniBatch(), batches=7)
    first = _frozen_while_deleting(rig, what, moment)
    rig.start()
    rig.go(2)
    first.wake()
    rig.lose()
    rig.start()
    rig.go()
    assert rig.counts() == truth
    assert {entry.recovery.damaged for entry in rig.ledger if entry.recovery} == {()}
