"""Runs schedules of pushed streams, and makes a failing one as short as it can be."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.pushed.schedule import draw
from tests.simulation.pushed.simulation import PushedSimulation
from tests.simulation.simulation import Broken, Outcome
from tests.simulation.world import entered

Only = frozenset[str]


@dataclass
class Failure:
    """How a schedule broke a promise, and the events that came to pass."""

    why: str
    trace: list[str]
    events: list[tuple[str, str]]


def attempt(seed: int, only: Only | None = None) -> Outcome | Failure:
    simulation = PushedSimulation(draw(seed), only)
    try:
        with entered(simulation.world):
            return simulation.run()
    except Exception as error:  # noqa: BLE001 (whatever ends a query is a failure to keep a promise)
        why = f"{type(error).__name__}: {error}"
        world = simulation.world
        return Failure(why, world.trace, world.events)


def simulate(seed: int, only: Only | None = None) -> Outcome:
    """Runs one schedule; raises `Broken`, with as few events as break it."""
    found = attempt(seed, only)
    if isinstance(found, Outcome):
        return found
    if only is None:
        found = shrunk(seed, found)
    names = ",".join(name for name, _ in found.events) or "none"
    listed = "; ".join(f"{name} {what}" for name, what in found.events) or "without any event"
    raise Broken(seed, f"{found.why} ({listed})", found.trace, "--pushed", f"--only {names}")


def shrunk(seed: int, failure: Failure) -> Failure:
    """The failure with events left out as long as there is one."""
    changed = True
    while changed:
        changed = False
        for name, _ in list(failure.events):
            rest = frozenset(other for other, _ in failure.events if other != name)
            found = attempt(seed, rest)
            if isinstance(found, Failure):
                failure, changed = found, True
                break
    return failure
