"""Pushed streams in one process: receivers, producers and workers under seeded schedules of failures."""

from tests.simulation.pushed.running import simulate

__all__ = ["simulate"]
