"""What a user gets to see of a batch, and of all batches so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from afspark.bounds import divides_among_copies, realised
from afspark.runtime.orders import Report
from afspark.runtime.roster import Member, Terms
from afspark.store import Entry


@dataclass(frozen=True, kw_only=True)
class BatchProgress:
    """One committed batch."""

    batch: int
    items: int
    bytes: int
    seconds: float
    #: objects written, cells and bytes in them
    backups: Mapping[str, int]
    #: recoveries that this batch completed
    recoveries: int
    #: how often the stage was run
    tries: int
    emitted: int
    #: resident cells and bytes of all workers
    state: Mapping[str, int]
    #: per worker: host, thresholds in force, distance from the last backup, seconds per part of its task
    workers: Sequence[Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def summarise(
    *,
    batch: int,
    reports: Sequence[Report],
    members: Sequence[Member],
    terms: Terms,
    recovered: Sequence[Entry],
    tries: int,
    seconds: float,
) -> BatchProgress:
    """The progress of a batch from its reports."""
    written = [report.backup for report in reports if report.backup is not None]
    return BatchProgress(
        batch=batch,
        items=sum(report.items for report in reports),
        bytes=sum(report.bytes for report in reports),
        seconds=seconds,
        backups={
            "count": len(written),
            "cells": sum(ref.cells for ref in written),
            "bytes": sum(ref.bytes for ref in written),
        },
        recoveries=len(recovered),
        tries=tries,
        emitted=sum(report.emitted for report in reports),
        state={
            "cells": sum(report.cells for report in reports),
            "bytes": sum(report.memory for report in reports),
        },
        workers=[
            {
                "worker": report.worker,
                "host": report.host,
                "incarnation": members[report.worker].incarnation,
                "theta": terms.theta(members[report.worker].failures),
                "drift": dict(report.drift),
                "seconds": dict(report.seconds),
            }
            for report in sorted(reports, key=lambda report: report.worker)
        ],
    )


@dataclass
class Totals:
    """Sums over the batches of one run."""

    batches: int = 0
    items: int = 0
    bytes: int = 0
    seconds: float = 0.0
    recoveries: int = 0
    backups: dict[str, int] = field(default_factory=lambda: {"count": 0, "cells": 0, "bytes": 0})

    def add(self, progress: BatchProgress) -> None:
        self.batches += 1
        self.items += progress.items
        self.bytes += progress.bytes
        self.seconds += progress.seconds
        self.recoveries += progress.recoveries
        for name in self.backups:
            self.backups[name] += progress.backups[name]


def realised_bounds(terms: Terms, members: Sequence[Member]) -> dict[str, float]:
    """Per state, the most that the failures so far can have changed it; 0 before any failure."""
    bounds = {}
    for name, spec in terms.states.items():
        adds_up = divides_among_copies(keyed=terms.keyed, divergence=spec.divergence)
        if terms.tolerance.recovers:
            bounds[name] = realised((member.missing.get(name, 0.0) for member in members), adds_up=adds_up)
        else:
            bounds[name] = math.inf if any(member.incarnation for member in members) else 0.0
    return bounds
