"""A unit that is moved again and again, and fails in the middle of it, is always protected."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from afspark.control import SWITCHES, Protection, Scheme, Unreplicated, actions

protections = st.sampled_from([*Scheme, *Unreplicated])


@given(st.lists(protections, min_size=2, max_size=30))
def test_any_journey_arrives_and_is_safe_at_every_moment(stops: list[Protection]) -> None:
    switches = SWITCHES[stops[0]]
    for before, after in pairwise(stops):
        for action in actions(before, after):
            switches = action.applied(switches)
            assert switches.is_legal and switches.protects_as is not None
        assert switches == SWITCHES[after]


@given(protections, protections)
def test_no_action_can_be_left_out(before: Protection, after: Protection) -> None:
    taken = actions(before, after)
    for left_out in range(len(taken)):
        switches = SWITCHES[before]
        for place, action in enumerate(taken):
            switches = switches if place == left_out else action.applied(switches)
        assert switches != SWITCHES[after]
