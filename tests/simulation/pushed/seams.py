"""Where the real code meets the simulated world, besides what all simulations replace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from afspark.push.consumer import lane_client as client
from afspark.push.receiver import lane_service as service
from afspark.push.receiver import producer_registry as registry
from afspark.push.receiver import receiver
from afspark.push.receiver import receiver_process as process
from afspark.push.wire.messages import Message
from afspark.push.wire.security import Access
from afspark.store import Store
from tests.simulation.cluster import SimulatedEnvironment
from tests.simulation.pushed.wire import FLIGHT, AtOnce, Client, Condition, Endpoint, Idle, SlowWrite
from tests.simulation.pushed.world import PushedWorld
from tests.simulation.world import world


def _here() -> PushedWorld:
    here = world()
    assert isinstance(here, PushedWorld)
    return here


def _now() -> float:
    return world().now


def _clock(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(
        time=lambda: _here().wall(),
        time_ns=lambda: int(world().now * 1e9),
        monotonic=_now,
        perf_counter=_now,
        sleep=lambda seconds: _here().sleep(seconds),
        **more,
    )


class PushedClock:
    """The clock of the host at work; whoever waits lets others act."""

    def time(self) -> float:
        return _here().wall()

    def monotonic(self) -> float:
        return _now()

    def sleep(self, seconds: float) -> None:
        _here().sleep(seconds)


class PushedEnvironment(SimulatedEnvironment):
    """Backups take their time."""

    clock = PushedClock()

    def start_write(self, store: Store, name: str, data: bytes) -> SlowWrite:
        return SlowWrite(store, name, data)


@contextmanager
def pushed_world() -> Iterator[None]:
    """The engine, receivers and lanes run in the world at work while this is open."""
    clock = _clock()
    one_thread = {"Lock": Condition, "Condition": Condition, "Event": Condition}
    seams: list[tuple[Any, str, Any]] = [
        (service, "time", clock),
        (registry, "time", clock),
        (receiver, "time", clock),
        (process, "time", clock),
        (service, "threading", SimpleNamespace(Thread=Idle, **one_thread)),
        (receiver, "threading", SimpleNamespace(Thread=AtOnce, **one_thread)),
        (receiver, "atexit", SimpleNamespace(register=lambda stop: None, unregister=lambda stop: None)),
        (receiver, "FlightEndpoint", Endpoint),
        (client, "flight", FLIGHT),
        (Message, "to_bytes", lambda message: message),
        (Message, "from_bytes", lambda message: message),
        (Access, "connect", lambda self, address, **options: Client(address)),
    ]
    with ExitStack() as stack:
        for owner, name, value in seams:
            stack.enter_context(patch.object(owner, name, value))
        yield
