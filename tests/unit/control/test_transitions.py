"""Every scheme is reached from every other, and on the way a unit is never worse off than at both ends."""

from __future__ import annotations

from itertools import permutations

import pytest

from afspark.control import SWITCHES, TRANSITIONS, Scheme, SchemeAction, Unreplicated, actions

PAIRS = list(permutations(Scheme, 2))


def row(text: str) -> tuple[SchemeAction, ...]:
    return tuple(map(SchemeAction, text.split()))


def faults(before: Scheme, after: Scheme, taken: tuple[SchemeAction, ...]) -> list[str]:
    """What is wrong with a row of the table."""
    order, found = list(Scheme), []
    slower = max(order.index(before), order.index(after))
    switches = SWITCHES[before]
    for action in taken:
        if getattr(switches, action.switch) is action.on:
            found.append(f"{action}: superfluous")
        if action is SchemeAction.WIRE and switches.holds_state and not switches.shipping:
            found.append(f"{action}: items before its queue are missing from its state")
        if action is SchemeAction.LOAD_STATE and not switches.receiving and SchemeAction.WIRE in taken:
            found.append(f"{action}: before it receives")
        switches = action.applied(switches)
        if not switches.is_legal:
            found.append(f"{action}: illegal")
        elif switches.protects_as is None or order.index(switches.protects_as) > slower:
            found.append(f"{action}: not protected")
    if switches != SWITCHES[after]:
        found.append("leads elsewhere")
    if len({action.switch for action in taken}) < len(taken):
        found.append("a switch is touched twice")
    return found


def test_there_are_thirty() -> None:
    assert set(TRANSITIONS) == set(PAIRS) and len(PAIRS) == 30


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_transition_leads_there_and_protects_on_the_way(before: Scheme, after: Scheme) -> None:
    assert faults(before, after, TRANSITIONS[before, after]) == []


@pytest.mark.parametrize(
    ("before", "after", "taken", "fault"),
    [
        (Scheme.HOT_STANDBY, Scheme.ACTIVE_STANDBY, "+process -ship", "+process: illegal"),
        (Scheme.ACTIVE_REPLICATION, Scheme.HOT_STANDBY, "-process -send +ship", "-process: illegal"),
        (Scheme.HOT_STANDBY, Scheme.PASSIVE_REPLICATION, "-ship -receive -state -deploy +store", "-receive: not"),
        (Scheme.DEPLOYED, Scheme.COLD_STANDBY, "-store +state +ship", "-store: not protected"),
        (Scheme.DEPLOYED, Scheme.HOT_STANDBY, "+state +receive +ship -store", "+state: before it receives"),
        (Scheme.COLD_STANDBY, Scheme.ACTIVE_STANDBY, "-ship +receive +process", "+receive: items"),
        (Scheme.ACTIVE_REPLICATION, Scheme.ACTIVE_STANDBY, "-send +store -store", "a switch"),
        (Scheme.ACTIVE_REPLICATION, Scheme.ACTIVE_STANDBY, "-send -send", "-send: superfluous"),
        (Scheme.ACTIVE_REPLICATION, Scheme.HOT_STANDBY, "-send -process", "leads elsewhere"),
        (Scheme.DEPLOYED, Scheme.PASSIVE_REPLICATION, "", "leads elsewhere"),
    ],
)
def test_a_wrong_row_would_be_noticed(before: Scheme, after: Scheme, taken: str, fault: str) -> None:
    assert any(one.startswith(fault) for one in faults(before, after, row(taken)))


def test_what_the_paper_says_of_sending() -> None:
    assert actions(Scheme.ACTIVE_REPLICATION, Scheme.ACTIVE_STANDBY) == (SchemeAction.STOP_SENDING,)
    assert actions(Scheme.ACTIVE_STANDBY, Scheme.ACTIVE_REPLICATION) == (SchemeAction.START_SENDING,)


def test_protections_without_a_secondary_go_the_ways_of_passive_replication() -> None:
    absent = [Scheme.PASSIVE_REPLICATION, *Unreplicated]
    assert all(actions(one, other) == () for one in absent for other in absent)
    for one in absent:
        assert actions(Scheme.HOT_STANDBY, one) == row("+store -ship -receive -state -deploy")
        assert actions(one, Scheme.DEPLOYED) == row("+deploy")
    assert actions(Scheme.DEPLOYED, Scheme.DEPLOYED) == ()


def test_every_action_is_used_and_has_an_opposite() -> None:
    used = {action for taken in TRANSITIONS.values() for action in taken}
    assert used == set(SchemeAction)
    assert {(action.switch, not action.on) for action in used} == {(action.switch, action.on) for action in used}
