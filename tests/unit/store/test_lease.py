"""The lease of a driver: who lives is not disturbed, who has died is not waited for."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from afspark.errors import AnotherDriver, StoreAway
from afspark.store import RecordLog, Store, drivers, open_store
from afspark.store.drivers import Driver, Notice
from afspark.store.lease import Lease
from afspark.store.local import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afspark.store.lease.time.sleep", lambda seconds: pytest.fail("it waited"))


def lease(store: Store, seconds: float = 600.0) -> Lease:
    return Lease(store, RecordLog(store), seconds=seconds)


def another_process(store: Store, seconds: float = 600.0, machine: Callable[[], str] | None = None) -> int:
    """A process that has the lease and goes on until it is killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        if machine is not None:
            drivers._machine = machine  # in a process that ends
        lease(store, seconds).take()
        os.write(writer, b"taken")
        time.sleep(600)
        os._exit(0)
    assert os.read(reader, 5) == b"taken"
    return child


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def test_a_process_is_alive_until_it_has_ended() -> None:
    child = os.fork()
    if child == 0:
        time.sleep(600)
    driver = Driver(host="h", process=child, began=drivers._began(child), machine=drivers._machine())
    assert driver.lives() is True and Driver.here().lives() is True
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert driver.lives() is False, "what is left of a process until its parent hears of its end does not live"
    os.waitpid(child, 0)
    assert driver.lives() is False


def test_a_number_given_again_is_another_process() -> None:
    here = Driver.here()
    assert here.began is not None
    assert Driver(host="h", process=here.process, began=here.began - 1, machine=here.machine).lives() is False
    assert Driver(host="h", process=here.process, began=here.began, machine="another").lives() is None


@pytest.mark.usefixtures("impatient")
def test_a_driver_of_this_machine_is_seen_at_once(store: Store) -> None:
    child = another_process(store)
    with pytest.raises(AnotherDriver) as caught:
        lease(store).take()
    assert caught.value.process == child and caught.value.since <= time.time()
    kill(child)
    lease(store).take()


def test_a_driver_elsewhere_lives_while_it_renews_its_lease(store: Store) -> None:
    child = another_process(store, seconds=1.0, machine=lambda: "another machine")
    with pytest.raises(AnotherDriver) as caught:
        lease(store).take()
    assert caught.value.process == child
    kill(child)
    lease(store).take()


@pytest.mark.usefixtures("impatient")
def test_nobody_waits_for_a_driver_that_has_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lease(store)
    first.take()
    first.release()
    assert not first.held
    monkeypatch.setattr(drivers, "_machine", lambda: "another machine")
    lease(store).take()


def test_a_query_of_this_process_may_be_about_to_end(store: Store) -> None:
    first = lease(store)
    first.take()
    with pytest.raises(AnotherDriver):
        lease(store, seconds=0.2).take()
    ending = threading.Timer(0.3, first.release)
    ending.start()
    lease(store).take()
    ending.join()


def test_who_is_taken_over_from_is_fenced_and_waited_for(store: Store) -> None:
    first = lease(store)
    first.take()

    class Ending(RecordLog):
        def announce(self, notice: Notice) -> None:
            super().announce(notice)
            with pytest.raises(AnotherDriver):
                first._log.refuse_if_superseded()
            first.release()

    second = Lease(store, Ending(store), seconds=600.0)
    second.take(takeover=True)
    assert second.held
    with pytest.raises(AnotherDriver):
        first.take(takeover=True)


def test_a_lease_may_be_taken_again_if_nobody_came_meanwhile(store: Store) -> None:
    first = lease(store)
    first.take()
    epoch = first._log.epoch
    first.release()
    with first.kept():
        first.take()
        assert first.held and first._log.epoch == epoch
        with pytest.raises(AnotherDriver):
            lease(store, seconds=0.0).take()
    assert not first.held
    with first.kept():
        pass
    lease(store).take()
    with pytest.raises(AnotherDriver):
        first.take()


@pytest.mark.usefixtures("impatient")
def test_an_epoch_without_a_driver_is_nobodys(store: Store) -> None:
    RecordLog(store).open_epoch(-1)
    (name,) = [name for name in store.list("epochs") if name.endswith("/driver")]
    store.delete([name])
    lease(store).take()


class AwayStore(LocalStore):
    """Refuses writes while it is ``away``."""

    away = False

    def put(self, name: str, data: bytes) -> None:
        if self.away:
            raise StoreAway("gone", path=self.path, seconds=0.0)
        super().put(name, data)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("takeover", [False, True])
def test_a_query_of_this_process_that_ended_while_the_store_was_away_is_no_driver(
    tmp_path: Path, takeover: bool
) -> None:
    store = AwayStore(str(tmp_path))
    first = lease(store)
    first.take()
    store.away = True
    first.release()
    store.away = False
    again = lease(store)
    again.take(takeover=takeover)
    again.release()
