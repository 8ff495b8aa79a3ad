"""Who may take items off a lane: a process that was shut out stays so."""

from __future__ import annotations

import pytest

from afspark.push.receiver.lane_ownership import LaneOwnership
from afspark.push.wire.push_errors import Superseded


def test_the_process_that_takes_over_shuts_out_all_others_of_its_incarnation() -> None:
    lane = LaneOwnership(0)
    assert lane.claim(1, 5, "first", takes_over=True)
    assert not lane.claim(1, 5, "first")
    assert not lane.claim(1, 5, "second", takes_over=True)
    for takes_over in (False, True):
        with pytest.raises(Superseded):
            lane.claim(1, 5, "first", takes_over=takes_over)
    with pytest.raises(Superseded):
        lane.claim(1, 5, "third")
    assert not lane.claim(1, 5, "second")


def test_a_newer_incarnation_or_fence_needs_no_word_and_an_older_one_has_none() -> None:
    lane = LaneOwnership(0)
    lane.claim(1, 5, "first", takes_over=True)
    assert lane.claim(1, 6, "second") and lane.claim(2, 0, "third")
    for claim in ((1, 6, "second"), (1, 9, "fourth")):
        with pytest.raises(Superseded):
            lane.claim(*claim, takes_over=True)
