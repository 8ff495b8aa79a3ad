"""Under gap recovery: what workers lack for good are whole batches, no more of them than the ledger tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from afspark.coordinator.batch_loop import Coordinator
from afspark.model.distances import distance
from afspark.model.windows import Decaying
from afspark.policies import Adaptive, Tolerance
from afspark.store import Loss
from tests.simulation import observe
from tests.simulation.invariants import ROUNDING
from tests.simulation.schedule import LARGEST_VALUE, Schedule
from tests.simulation.truth import Cells, Truth, summed


def what_is_missing_was_told(engine: Coordinator, truth: Truth, schedule: Schedule, had: Sequence[Tolerance]) -> None:
    """``had``: the policies so far, all of which ask for gaps."""
    run = engine.run_of()
    losses = [entry.loss for entry in engine.ledger.entries()]
    theta = max((one.theta or 0.0 for one in had if isinstance(one, Adaptive)), default=0.0)
    if schedule.window is None:
        for worker in range(schedule.workers):
            told = [loss for loss in losses if loss.worker == worker]
            got = observe.table(run, "state", only=worker)
            assert any(
                distance(schedule.combination.divergence, got, left) <= theta * (1 + ROUNDING)
                for left in _without_some(truth, worker, told)
            ), f"worker {worker} has {got}, and the ledger tells of {[(one.batch, one.gap_batches) for one in told]}"
    elif not theta:
        _windows_lack_no_more_items(engine, truth, schedule, sum(loss.gap_items for loss in losses))


def _without_some(truth: Truth, worker: int, told: Sequence[Loss]) -> Iterator[Cells]:
    """What a worker may have: everything, or that without as many batches and items as were told, at most."""
    came = [items[worker] for items in truth.dealt]
    most, items = sum(loss.gap_batches for loss in told), sum(loss.gap_items for loss in told)
    before = max((loss.batch for loss in told if loss.gap_batches), default=0)
    for count in range(min(most, before) + 1):
        for missing in combinations(range(min(before, len(came))), count):
            if sum(len(came[batch]) for batch in missing) <= items:
                yield truth.cells_of(item for batch, some in enumerate(came) if batch not in missing for item in some)


def _windows_lack_no_more_items(engine: Coordinator, truth: Truth, schedule: Schedule, told: int) -> None:
    """An item changes what windows hold by its value at most."""
    run, window, united = engine.run_of(), schedule.window, schedule.spec.kind == "set"
    if isinstance(window, Decaying):
        tick = run.latest_tick
        pairs = [] if tick is None else [(observe.at_tick(run, tick), truth.at_tick(tick))]
    else:
        assert window is not None
        panes = observe.states(run)
        needed = {number: range(number - window.panes + 1, number + 1) for number in truth.open_windows}
        pairs = [
            (summed([panes[pane] for pane in inside if pane in panes], united), truth.of_window(number))
            for number, inside in needed.items()
        ]
    for got, true in pairs:
        rounding = ROUNDING * max([1.0, *map(abs, true.values())]) * len(true)
        apart = distance("keys" if united else "manhattan", got, true)
        assert apart <= LARGEST_VALUE * told + rounding, f"{told} items were left out, and {got} is there for {true}"
