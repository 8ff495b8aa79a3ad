"""A worker or a store that is too slow makes producers wait; nothing is dropped and memory stays bounded."""

from __future__ import annotations

import pytest

from tests.unit.push.flooding import Flood, run


@pytest.mark.parametrize(
    "flood",
    [
        Flood(name="worker that stops", seconds=1.0, reads=10e6, pause=(0.3, 0.8), buffer_bytes=8 << 20),
        Flood(name="slow store", seconds=1.0, reads=10e6, throttle=(0.02, 5e6), buffer_bytes=8 << 20),
    ],
    ids=lambda flood: flood.name,
)
def test_a_flood_is_held_back(flood: Flood) -> None:
    outcome = run(flood)
    assert not outcome.wrong
    assert outcome.received == outcome.sent > 0
    assert outcome.blocked > 0
    assert outcome.peak <= outcome.allowed, str(outcome)
