"""Random schedules of pushed streams: what is told after every batch covers what was lost and is
within the promise, and every stream comes to its end.

Of the 10,000 schedules `make test` runs 250, `make thorough` all, and `make soak` a hundred thousand. They draw
Θ, L and Γ from 0 to more than there is, windows of every kind, keys of the operator or of something else, one or
several lanes, with or without a relay; and what goes wrong: see `TROUBLES`. A failing seed is printed with as few
events as break the promise, and with the command that replays them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from afspark.coordinator.batch_loop import Coordinator
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.push.wire.push_errors import Superseded
from tests.simulation.pushed.running import attempt, simulate
from tests.simulation.pushed.schedule import HUNTED, TROUBLES, draw
from tests.simulation.pushed.simulation import PushedSimulation
from tests.simulation.simulation import Outcome
from tests.simulation.world import entered

EACH, SUITE, ALL = 250, 1, 40


@pytest.mark.parametrize(
    "part", [part if part < SUITE else pytest.param(part, marks=pytest.mark.thorough) for part in range(ALL)]
)
def test_promises_hold_under_any_schedule(part: int) -> None:
    outcomes = [simulate(seed) for seed in range(part * EACH, (part + 1) * EACH)]
    # Schedules in which nothing happens prove nothing.
    assert sum(outcome.losses for outcome in outcomes) > EACH / 4
    assert sum(outcome.drivers for outcome in outcomes) > EACH
    assert max(outcome.worst for outcome in outcomes) > 0


def test_schedules_draw_everything() -> None:
    drawn = [draw(seed) for seed in range(2 * EACH)]
    assert {trouble for one in drawn for trouble in one.troubles} == set(TROUBLES)
    assert {one.hunted for one in drawn} == {None, *HUNTED}
    assert {type(one.window).__name__ for one in drawn} == {"NoneType", "Hopping", "Sliding", "Decaying"}
    policies = {"Approximate", "MiniBatch", "UpstreamBackup", "BarrierSnapshot", "Nothing"}
    assert {type(one.tolerance).__name__ for one in drawn} == policies


@pytest.mark.parametrize("seed", [3, 50, 101])
def test_a_seed_replays_event_by_event(seed: int) -> None:
    first, again = attempt(seed), attempt(seed)
    assert isinstance(first, Outcome) and isinstance(again, Outcome)
    assert _told(first) == _told(again)


class LateTasks(PushedSimulation):
    """After every batch, each of its tasks wakes up once more and asks for its lane."""

    asked = 0

    def _driver(self) -> Coordinator:
        if self.engine is None:
            engine = super()._driver()
            run_stage = engine.cluster.run_stage

            def noting(config: Any, work: Any, requests: Sequence[TaskRequest], inputs: Any) -> list[TaskReport]:
                if config.pushed:
                    self.sent += requests
                return run_stage(config, work, requests, inputs)

            self.sent: list[TaskRequest] = []
            engine.cluster.run_stage = noting  # type: ignore[method-assign]
        return super()._driver()

    def _look(self, batch: int) -> None:
        super()._look(batch)
        endpoint = self._endpoint()
        assert endpoint is not None and self.sent
        for request in self.sent:
            ownership = endpoint.context.lanes[request.worker].lane.ownership
            with pytest.raises(Superseded):
                ownership.claim(request.incarnation, request.fence, "a task that wakes up", takes_over=True)
            self.asked += 1


@pytest.mark.parametrize("seed", range(12))
def test_a_lane_is_closed_to_the_tasks_of_a_batch_that_is_over(seed: int) -> None:
    """Also if the batch had no items. One that has lost its state would confirm what nobody looks for."""
    late = LateTasks(replace(draw(seed), troubles=(), failures=0, corrupts=False, drains=False), frozenset())
    with entered(late.world):
        late.run()
    assert late.asked >= late.schedule.batches


def _told(outcome: Outcome) -> list[str]:
    """The steps, without the random parts of object names."""
    return [step.split("objects/")[0].split("epochs/")[0].split("source/")[0] for step in outcome.trace]
