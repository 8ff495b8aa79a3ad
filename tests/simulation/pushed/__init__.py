"""Pushed streams in one process: receivers, producers and workers under seeded schedules of failures."""
