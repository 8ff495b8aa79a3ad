"""What is kept of the effects of batches beyond their driver: little, whatever the number of panes. Pure."""

from __future__ import annotations

from collections.abc import Collection

from afspark.model.effect_digest import EffectDigest, hash_of
from afspark.protocol.reports import TaskReport
from afspark.task.effects import STATE

#: How the rows of a DataFrame were divided: after a restart Spark may divide them otherwise.
READING = "reading"


def recorded_effects(report: TaskReport, frames: Collection[str]) -> dict[str, EffectDigest]:
    """One digest for each state and port of a worker, and one of what it read of ``frames``."""
    found: dict[str, EffectDigest] = {}
    for label, digest in report.effects.items():
        # All panes of a state together.
        name = label.partition("@")[0] if label.startswith(STATE) else label
        found[name] = found.get(name, EffectDigest()).and_also(digest.within(label))
    return _with_reading(found, report, frames)


def effects_and_reading(report: TaskReport, frames: Collection[str]) -> dict[str, EffectDigest]:
    """All that a report has, and a digest of what its worker read of ``frames``."""
    return _with_reading(dict(report.effects), report, frames)


def _with_reading(
    found: dict[str, EffectDigest], report: TaskReport, frames: Collection[str]
) -> dict[str, EffectDigest]:
    read = sorted((label, one) for label, one in report.consumed.items() if label.rpartition(":")[0] in frames)
    return {**found, READING: EffectDigest(exact=int(hash_of(repr(read))))} if found and read else found
