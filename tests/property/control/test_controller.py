"""Whatever is measured: the limit first, then the cost, and no moving to and fro."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from afspark.control import (
    Candidate,
    Decision,
    InForce,
    Measurement,
    Quantity,
    Scheme,
    Situation,
    UnitHistory,
    Unreplicated,
    decide,
)
from afspark.control.candidates import INTERVALS, MARGIN
from afspark.control.controller import SAVING, TIE
from afspark.policies import Adaptive, Costs
from tests.unit.control.measurements import NOW, UNIT, history, situation

weights = st.floats(0, 100)
costs = st.builds(Costs, cpu=weights, memory=weights, network=weights, hosts=weights)
policies = st.builds(
    Adaptive,
    recovery_seconds=st.floats(0.05, 100),
    costs=costs,
    cooldown=st.sampled_from([0, 10]),
    gap=st.booleans(),
    theta=st.none() | st.just(5),
)
times = st.floats(0, 20)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    found = history(
        state=draw(st.floats(0, 1e10)),
        written=draw(st.floats(0, 1e8)),
        write_seconds=draw(st.floats(0, 5)),
        items=draw(st.floats(0, 1e6)),
        throughput=draw(st.floats(1, 1e6)),
        received=draw(st.floats(0, 1e8)),
        sent=draw(st.floats(0, 1e8)),
        cpu=draw(st.floats(0, 2)),
        detection=draw(times),
        times={step: draw(times) for step in (Quantity.DEPLOY, Quantity.PROMOTION, Quantity.WIRE_SEND)},
    )
    if draw(st.booleans()):
        found = found.add(Quantity.TAKEOVER, at=NOW, seconds=draw(st.floats(0, 2)))
    missing = draw(st.sampled_from([None, None, Quantity.DEPLOY, Quantity.CHECKPOINT_WRITE, Quantity.RECEIVED]))
    known = UnitHistory({what: series for what, series in found.series.items() if what is not missing})
    return situation(known, replayable=draw(st.booleans()), stateful=draw(st.sampled_from([True, True, False])))


in_force = st.builds(
    InForce,
    protection=st.sampled_from([*Scheme, Unreplicated.BARRIER_SNAPSHOT]),
    interval=st.sampled_from(INTERVALS),
    since=st.floats(NOW - 20, NOW),
)


def kept_in_time(decision: Decision, before: InForce) -> Candidate | None:
    """What was in force, if it is a choice and its interval is still in time."""
    same = (one for one in decision.candidates if one.protection is before.protection)
    return next((one for one in same if one.interval == before.interval and one.seconds <= decision.limit), None)


@given(policies, situations(), st.none() | in_force)
def test_the_limit_is_kept_if_anything_keeps_it(policy: Adaptive, found: Situation, before: InForce | None) -> None:
    decision = decide(policy, found, before)
    if any(one.seconds <= decision.limit for one in decision.candidates):
        assert decision.chosen.seconds <= decision.limit
    else:
        assert decision.chosen.protection is Scheme.ACTIVE_REPLICATION
    assert decision.reason and decision.chosen in decision.candidates


@given(policies, situations(), in_force)
def test_nothing_worth_a_change_is_left(policy: Adaptive, found: Situation, before: InForce) -> None:
    """No candidate that leaves a margin is cheaper by more than a change has to save, once it has cooled down."""
    decision = decide(policy, found, before)
    if before.since > NOW - policy.cooldown or decision.chosen.seconds > decision.limit:
        return
    safe = [one for one in decision.candidates if one.seconds <= (1 - MARGIN) * decision.limit]
    assert all(decision.chosen.cost <= one.cost / (1 - SAVING) * (1 + TIE) + 1e-9 for one in safe)


@given(policies, situations(), in_force)
def test_ties_go_to_the_faster(policy: Adaptive, found: Situation, before: InForce) -> None:
    decision = decide(policy, found, before)
    chosen = decision.chosen
    if chosen.seconds > decision.limit or before.since > NOW - policy.cooldown:
        return
    same = [one for one in decision.candidates if one.cost == chosen.cost and one.seconds <= 0.8 * decision.limit]
    if decision.changes and chosen.protection is not before.protection:
        assert all(chosen.seconds <= one.seconds for one in same)
    else:
        tied = (1 + TIE) * min(one.cost for one in decision.candidates if one.seconds <= decision.limit)
        assert all((1 - MARGIN) * chosen.seconds <= one.seconds for one in same if one.cost <= tied)


@given(policies, situations(), in_force)
def test_during_the_cool_down_only_what_is_too_slow_is_left(
    policy: Adaptive, found: Situation, before: InForce
) -> None:
    decision = decide(policy, found, before)
    if before.since > NOW - policy.cooldown and kept_in_time(decision, before) is not None:
        assert not decision.changes and decision.in_force is before


@given(policies, situations(), st.none() | in_force)
def test_a_decision_is_the_same_again(policy: Adaptive, found: Situation, before: InForce | None) -> None:
    """What was just chosen stays, however often it is looked at in the same situation."""
    first = decide(policy, found, before)
    current = first.in_force
    for later in range(1, 6):
        again = decide(policy, situation_at(found, NOW + 1_000 * later), current)
        changed, current = again.changes, again.in_force
    assert not changed


def situation_at(found: Situation, now: float) -> Situation:
    """The same measurements at another time, right after a checkpoint."""
    shift = now - found.now
    moved = {
        what: tuple(
            Measurement(one.at + shift + (what is Quantity.CHECKPOINT_SIZE), one.seconds, one.amount) for one in series
        )
        for what, series in found.history.series.items()
    }
    return Situation(
        unit=UNIT, history=UnitHistory(moved), now=now, stateful=found.stateful, replayable=found.replayable
    )


@settings(max_examples=30)
@given(
    policy=st.builds(Adaptive, recovery_seconds=st.floats(1, 30), costs=costs, cooldown=st.just(10)),
    rates=st.lists(st.floats(0, 100_000), min_size=20, max_size=60),
)
def test_noise_does_not_move_a_unit_to_and_fro(policy: Adaptive, rates: list[float]) -> None:
    """Within a cool-down every change but the first makes a unit faster, because it was too slow."""
    found, current, changes = history(state=2e8), None, []
    for second, rate in enumerate(rates, 1):
        now = NOW + second
        found = found.add(Quantity.RECEIVED, at=now, seconds=1.0, amount=rate)
        found = found.add(Quantity.RECEIVED_BYTES, at=now, seconds=1.0, amount=1e3 * rate)
        found = found.add(Quantity.CPU, at=now, seconds=1.0, amount=rate / 1e5)
        found = found.add(Quantity.PROCESSED, at=now, seconds=0.2, amount=10_000.0)
        found = found.add(Quantity.CHECKPOINT_SIZE, at=now, amount=2e8 + 1e3 * rate)
        decision = decide(policy, situation(found, now=now), current)
        if decision.changes:
            changes.append(decision)
        current = decision.in_force
    for earlier, later in pairwise(changes):
        if later.at - earlier.at < policy.cooldown:
            assert "no longer in time" in later.reason
            assert later.chosen.seconds <= later.limit
