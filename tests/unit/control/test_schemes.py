"""The six schemes are those of StreamMine3G's table 1 and figure 2."""

from __future__ import annotations

import pytest

from afspark.control import STEPS, SWITCHES, RecoveryStep, Scheme, Switches, Unreplicated
from afspark.control.schemes import protection
from afspark.policies import Approximate, BarrierSnapshot
from afspark.policies.replication import SCHEMES

#: deploy, read, wire to send, wire to receive, replay
TABLE_1 = {
    Scheme.ACTIVE_REPLICATION: (False, False, False, False, False),
    Scheme.ACTIVE_STANDBY: (False, False, False, False, False),
    Scheme.HOT_STANDBY: (False, False, True, False, True),
    Scheme.COLD_STANDBY: (False, False, True, True, True),
    Scheme.DEPLOYED: (False, True, True, True, True),
    Scheme.PASSIVE_REPLICATION: (True, True, True, True, True),
}
#: deployed, receives, holds state, processes, sends, checkpoints to its memory
FIGURE_2 = {
    Scheme.ACTIVE_REPLICATION: (True, True, True, True, True, False),
    Scheme.ACTIVE_STANDBY: (True, True, True, True, False, False),
    Scheme.HOT_STANDBY: (True, True, True, False, False, True),
    Scheme.COLD_STANDBY: (True, False, True, False, False, True),
    Scheme.DEPLOYED: (True, False, False, False, False, False),
    Scheme.PASSIVE_REPLICATION: (False, False, False, False, False, False),
}


def test_a_scheme_is_named_as_its_tolerance_is() -> None:
    assert [scheme.value for scheme in Scheme] == [tolerance.name for tolerance in SCHEMES]
    assert protection(BarrierSnapshot().name) is Unreplicated.BARRIER_SNAPSHOT
    assert protection(Approximate(1).name) is Unreplicated.APPROXIMATE
    assert protection("hot-standby") is Scheme.HOT_STANDBY
    with pytest.raises(ValueError, match="minibatch"):
        protection("minibatch")


@pytest.mark.parametrize("scheme", Scheme)
def test_the_steps_are_those_of_table_1(scheme: Scheme) -> None:
    of_paper = (
        RecoveryStep.DEPLOY,
        RecoveryStep.READ,
        RecoveryStep.WIRE_SEND,
        RecoveryStep.WIRE_RECEIVE,
        RecoveryStep.REPLAY,
    )
    assert tuple(step in STEPS[scheme] for step in of_paper) == TABLE_1[scheme]


def test_what_the_paper_leaves_out() -> None:
    """Nobody waits for detection where the secondary sends already; one that has state is promoted."""
    detected = [scheme for scheme in Scheme if RecoveryStep.DETECTION in STEPS[scheme]]
    promoted = [scheme for scheme in Scheme if RecoveryStep.PROMOTION in STEPS[scheme]]
    assert detected == list(Scheme)[1:] and promoted == list(Scheme)[1:4]
    waiting = [one for one, steps in STEPS.items() if RecoveryStep.WAIT in steps]
    assert waiting == list(Unreplicated)
    stage = (RecoveryStep.DETECTION, RecoveryStep.WAIT, RecoveryStep.READ, RecoveryStep.WIRE_RECEIVE)
    assert STEPS[Unreplicated.BARRIER_SNAPSHOT] == (*stage, RecoveryStep.REPLAY)
    assert STEPS[Unreplicated.APPROXIMATE] == stage


def test_steps_are_taken_in_order() -> None:
    order = list(RecoveryStep)
    assert all(list(steps) == sorted(steps, key=order.index) for steps in STEPS.values())


@pytest.mark.parametrize("scheme", Scheme)
def test_the_switches_are_those_of_figure_2(scheme: Scheme) -> None:
    one = SWITCHES[scheme]
    found = (one.deployed, one.receiving, one.holds_state, one.processing, one.sending, one.shipping)
    assert found == FIGURE_2[scheme]
    assert one.is_legal and one.protects_as is scheme


def test_only_what_has_no_copy_needs_the_store_often() -> None:
    storing = [one for one in SWITCHES if SWITCHES[one].storing]
    assert storing == [Scheme.DEPLOYED, Scheme.PASSIVE_REPLICATION, *Unreplicated]


@pytest.mark.parametrize(
    "switches",
    [
        Switches(receiving=True),
        Switches(holds_state=True),
        Switches(deployed=True, sending=True),
        Switches(deployed=True, receiving=True, processing=True),
        Switches(deployed=True, holds_state=True, processing=True),
        Switches(deployed=True, shipping=True),
        Switches(deployed=True, receiving=True, holds_state=True, sending=True),
        Switches(deployed=True, receiving=True, holds_state=True, processing=True, shipping=True),
    ],
    ids=repr,
)
def test_what_no_unit_may_be_in(switches: Switches) -> None:
    assert not switches.is_legal


def test_without_copy_and_checkpoint_nothing_protects() -> None:
    assert Switches().protects_as is None
    assert Switches(deployed=True, receiving=True).protects_as is None
    assert Switches(deployed=True, holds_state=True).protects_as is None
