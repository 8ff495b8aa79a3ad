"""What must hold after every batch, whatever was killed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from afspark.coordinator.batch_loop import FENCE_BITS, Coordinator
from afspark.coordinator.recovery.coverage import ALL_WORKERS
from afspark.coordinator.recovery.recoveries import UNNAMED
from afspark.coordinator.told_bounds import realised
from afspark.model.distances import distance
from afspark.model.windows import Decaying
from afspark.policies import Tolerance
from afspark.store import chain_to_restore, load_chain
from tests.simulation import observe
from tests.simulation.graph_world import GraphWorld
from tests.simulation.schedule import Schedule
from tests.simulation.truth import Cells, Truth, summed
from tests.simulation.world import World

ROUNDING = 1e-9


def covered(engine: Coordinator) -> bool:
    """Whether the ledger claims that bounds cover every loss so far."""
    return all(entry.covered is not False for entry in engine.ledger.entries())


def windows_are_known(engine: Coordinator) -> bool:
    """Whether no driver had to go on from window progress of an earlier batch."""
    return not any(entry.loss.worker == ALL_WORKERS for entry in engine.ledger.entries())


def state_is_within_bounds(engine: Coordinator, truth: Truth, schedule: Schedule, had: Sequence[Tolerance]) -> float:
    """The resident states differ from the truth by no more than the realised bound, and that is within Θ.

    ``had``: the policies so far. What no bound covers has an infinite one.
    """
    run = engine.run_of()
    window = schedule.window
    within = partial(_within, schedule, None if not covered(engine) else had)
    if window is None:
        return within(observe.states(run).get(0, {}), truth.panes.get(0, {}), realised(run)["state"])
    if isinstance(window, Decaying):
        tick, bound = run.latest_tick, realised(run)["state"]
        # Without a record the newest tick may be any.
        if tick is None or math.isinf(bound):
            return 0.0
        return within(observe.at_tick(run, tick), truth.at_tick(tick), bound)
    panes, united = observe.states(run), schedule.spec.kind == "set"
    worst = 0.0
    for number in truth.open_windows:
        inside = [panes[pane] for pane in range(number - window.panes + 1, number + 1) if pane in panes]
        bound = realised(run, number)["state"]
        worst = max(worst, within(summed(inside, united), truth.of_window(number), bound, number))
    return worst


def windows_are_complete(
    engine: Coordinator,
    expected: dict[int, Cells],
    delivered: dict[int, Cells],
    bounds: dict[int, float],
    schedule: Schedule,
    had: Sequence[Tolerance],
) -> float:
    """A batch delivers exactly the windows that ended before it, each within its bound."""
    if windows_are_known(engine):
        assert delivered.keys() == expected.keys(), f"windows {sorted(delivered)} delivered, {sorted(expected)} ended"
    within = partial(_within, schedule, None if not covered(engine) else had)
    both = delivered.keys() & expected.keys()
    return max((within(delivered[one], expected[one], bounds[one], one) for one in both), default=0.0)


def _within(
    schedule: Schedule,
    had: Sequence[Tolerance] | None,
    got: Cells,
    true: Cells,
    bound: float,
    window: int | None = None,
) -> float:
    """Observed ≤ told ≤ promised; without ``had`` nothing is promised."""
    true = {key: value for key, value in true.items() if value}
    apart = distance(schedule.combination.divergence, got, true)
    where = "" if window is None else f" in window {window}"
    # Items add up to the same only in the same order, if they are many ticks apart or cancel each other out.
    rounding = ROUNDING * max([1.0, *map(abs, true.values())]) if isinstance(schedule.window, Decaying) else 0.0
    most = bound * (1 + ROUNDING) + rounding
    assert apart <= most, f"off by {apart}{where}, the realised bound is {bound}: {got} for {true}"
    if had is None:
        return apart if math.isfinite(bound) else 0.0
    assert math.isfinite(bound), f"bound {bound}{where}, although every loss is covered"
    if not isinstance(schedule.window, Decaying):
        # Where nothing is replayed no bound covers a gap; what thresholds allow is limited all the same.
        most = max(tolerance.promise() or getattr(tolerance, "theta", None) or 0.0 for tolerance in had)
        assert bound <= most * (1 + ROUNDING), f"bound {bound}{where} is above the limit {most}"
    return apart


def items_are_accounted_for(engine: Coordinator, truth: Truth) -> None:
    """Late + kept + unplaced = all."""
    counters = engine.run_of().counters
    assert truth.late + truth.kept + truth.unplaced == truth.items
    if engine.log.newest() is None:
        return  # Where nothing is kept, a new driver counts anew.
    assert engine.items == truth.items, f"{engine.items} items counted, {truth.items} came"
    if engine.run_of().node.window is not None:
        assert (counters.late, counters.unplaced) == (truth.late, truth.unplaced), (
            f"{counters} counted, but {truth.late} were late and {truth.unplaced} without a time"
        )


def ledger_is_complete(engine: Coordinator, world: World) -> None:
    """One entry per lost incarnation; nothing is called damaged but what the schedule destroyed."""
    entries = engine.ledger.entries()
    for run in engine.runs:
        losses = [entry.loss for entry in entries if entry.loss.operator == run.name]
        for member in run.group.members:
            lost = [loss.incarnation for loss in losses if loss.worker == member.worker]
            assert sorted(lost) == list(range(member.incarnation)), (
                f"{run.name}/{member.worker} is at incarnation {member.incarnation}, the ledger tells of {lost}"
            )
    for entry in entries:
        if entry.recovery is not None:
            odd = {name for name in entry.recovery.damaged if not _is_unwritten(name)} - world.destroyed - {UNNAMED}
            assert not odd, f"{odd} called damaged, which nobody destroyed"
            assert not entry.recovery.differed, f"{entry.loss.cause}, although every operator is deterministic"


def _is_unwritten(name: str) -> bool:
    """Whether a driver has not written it, or died while it did."""
    return name.startswith("record of batch ") or name.endswith("/start")


def nothing_named_is_missing(engine: Coordinator, world: World) -> None:
    """What the newest record names is there and sound, unless the schedule destroyed it."""
    record = engine.log.newest()
    if record is None:
        return
    for operator in record.operators.values():
        for one in operator.workers:
            damaged = {damage.name for damage in load_chain(engine.store, *chain_to_restore(one)).damaged}
            assert damaged <= world.destroyed, f"{damaged - world.destroyed} of worker {one.worker} is damaged"


def one_primary_counts(engine: Coordinator, world: World) -> None:
    """Of each worker one state at most passes for the present primary, wherever it is, and it is at the worker's home.
    None is of an incarnation that the driver has not declared.

    A task of an earlier driver may have made one elsewhere before that driver had declared anything.
    """
    fence = engine.log.epoch_number << FENCE_BITS
    for run in engine.runs:
        members = {member.worker: member for member in run.group.members}
        for (host, operator, worker), segment in world.memory.items():
            if operator != run.name or worker not in members:
                continue
            member = members[worker]
            known = f"{operator}/{worker} is incarnation {member.incarnation} on {member.home}"
            assert segment.incarnation <= member.incarnation, f"{known}, and {host} has {segment.incarnation}"
            if segment.incarnation == member.incarnation and not segment.secondary and segment.fence >= fence:
                assert host == member.home, f"{known}, and {host} has a primary as well"


def losses_are_real(engine: Coordinator, world: GraphWorld, *, forgot: bool = False) -> None:
    """Nobody is declared lost whose state was there, on a host that could be reached. ``forgot``: a driver may have
    forgotten what the next one needs of a state that is still there.
    """
    for loss in (entry.loss for entry in engine.ledger.entries()):
        if "goes back" in loss.cause:
            continue
        excused = forgot or not loss.counted or not loss.limited or world.destroyed
        if "driver started" in loss.cause and excused:
            # It was being made when the driver before died, and is declared once more, without a bound, if a policy
            # without backups follows; or it goes on from a record that nobody can read.
            continue
        lost = (loss.operator, loss.worker, loss.incarnation)
        away = loss.cause.removeprefix("host ").removesuffix(" is gone").removesuffix(" is away")
        assert lost in world.gone or away in world.were_away, f"{lost} was declared lost ({loss.cause}), and was not"
