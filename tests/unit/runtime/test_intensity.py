"""What receivers report from batch to batch, and when a user is warned that L saves everything."""

from __future__ import annotations

import logging

import pytest

from afspark.coordinator.receivers.intensity import BATCHES, COUNTERS, Intensity


def stats(**counters: float) -> dict[str, dict[str, float]]:
    return {"grpc://a": dict.fromkeys([*COUNTERS, "pending_items"], 0.0) | counters}


def test_counters_are_differences_and_survive_a_restart_of_the_receiver() -> None:
    intensity = Intensity()
    assert intensity.of_batch({}) == {}
    assert intensity.of_batch(stats(accepted=100, logged=10, pending_items=7))["accepted"] == 100
    second = intensity.of_batch(stats(accepted=150, logged=10))
    assert (second["accepted"], second["logged"], second["pending"]) == (50, 0, 0)
    assert intensity.of_batch(stats(accepted=20))["accepted"] == 0


@pytest.mark.parametrize(
    ("logged", "allowed", "warned"), [(2_000, 10.0, True), (500, 10.0, False), (2_000, 0.0, False)]
)
def test_a_limit_that_saves_every_item_is_told_once(
    caplog: pytest.LogCaptureFixture, logged: int, allowed: float, warned: bool
) -> None:
    intensity = Intensity()
    since = {"accepted": 2_000.0, "logged": float(logged)}
    with caplog.at_level(logging.WARNING, "afspark"):
        told = [intensity.warn(since, 0.5, allowed, 2) for _ in range(2 * BATCHES)]
    assert told.count(True) == len(caplog.records) == int(warned)
    if warned:
        assert told.index(True) == BATCHES - 1
        assert "4000 items arrive per second" in caplog.text and "0.50 s" in caplog.text
