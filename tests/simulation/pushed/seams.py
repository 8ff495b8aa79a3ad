"""Where the real code meets the simulated world, besides what all simulations replace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from afspark.coordinator import batch_loop as engine
from afspark.coordinator import worker_group as group
from afspark.task import backup_writes as writes
from afspark.task import intake, receiving
from afspark.task.intake import Intake
from tests.simulation.cluster import spark
from tests.simulation.pushed.wire import SlowWrite
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


@contextmanager
def pushed_world() -> Iterator[None]:
    """The engine, receivers and lanes run in the world at work while this is open."""
    clock = _clock()
    seams: list[tuple[Any, str, Any]] = [
        (engine, "time", clock),
        (group, "time", clock),
        (intake, "time", clock),
        (receiving, "Intake", partial(Intake, clock=_now)),
        (writes, "threading", SimpleNamespace(Thread=SlowWrite)),
    ]
    with spark(), ExitStack() as stack:
        for owner, name, value in seams:
            stack.enter_context(patch.object(owner, name, value))
        yield
