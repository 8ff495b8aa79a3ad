"""What a user gets to see of a batch, and of all batches so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from afspark.coordinator.durability import Durability
from afspark.coordinator.recovery.upstream import upstream_losses
from afspark.numbers import Batch
from afspark.protocol.reports import TaskReport
from afspark.store import LedgerEntry
from afspark.store.quarantine import Count, sum_counts
from afspark.store.request_counts import added

if TYPE_CHECKING:
    from afspark.coordinator.operator_run import OperatorRun


@dataclass(frozen=True, kw_only=True)
class BatchProgress:
    """One committed batch."""

    batch: Batch
    items: int
    bytes: int
    seconds: float
    #: where they went: the stages, the sinks, the commit record
    parts: Mapping[str, float]
    #: objects written, cells and bytes in them
    backups: Mapping[str, int]
    #: requests of the driver and the workers to the store since the batch before: puts, gets, lists, deletes
    requests: Mapping[str, int]
    #: recoveries that this batch completed
    recoveries: int
    #: how often the batch was tried
    tries: int
    emitted: int
    #: items that came too late for their window, and items without a usable time
    late: int
    unplaced: int
    #: items that operators could not take: operator, source, kind of reason, number
    bad: Sequence[Mapping[str, Any]]
    #: resident cells and bytes of all workers
    state: Mapping[str, int]
    #: what receivers took since the last batch: items accepted, acknowledged, logged, duplicates; pending now
    receivers: Mapping[str, float]
    #: what of the query is durable now, and what a failure would have applied again; None if nothing is backed up
    durable: Durability | None = None
    #: by operator: those whose losses may have changed what it received, which its bound leaves out
    upstream: Mapping[str, Sequence[str]]
    #: per worker: operator, whether that is one of the runtime's own, host, thresholds in force, distance from the
    #: last backup, seconds per part of its task, what its operator tells
    workers: Sequence[Mapping[str, Any]]
    #: by operator that has a model which others train: how it converges (`Convergence.to_json`, without the curve)
    training: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: per operator with states: resident cells and bytes, rows emitted, late items, what was backed up
    operators: Sequence[Mapping[str, Any]] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def summarise(  # noqa: PLR0913 - one argument for each thing that a batch is told of
    *,
    batch: Batch,
    runs: Sequence[OperatorRun],
    entrances: Sequence[OperatorRun],
    recovered: Sequence[LedgerEntry],
    tries: int,
    seconds: float,
    parts: Mapping[str, float],
    receivers: Mapping[str, float],
    requests: Mapping[str, int],
) -> BatchProgress:
    """The progress of a batch from its reports; ``entrances`` are the operators that read from sources, ``requests``
    those of the driver.
    """
    reports = [report for run in runs for report in run.reports]
    entering = [report for run in entrances for report in run.reports]
    written = [backup for report in reports for backup in report.backups]
    return BatchProgress(
        batch=batch,
        items=sum(report.items for report in entering),
        bytes=sum(report.bytes for report in entering),
        seconds=seconds,
        parts=parts,
        backups={
            "count": len(written),
            "cells": sum(ref.cells for ref in written),
            "bytes": sum(ref.bytes for ref in written),
        },
        requests=added(requests, *(report.work.requests for report in reports)),
        recoveries=len(recovered),
        tries=tries,
        emitted=sum(report.emitted for report in reports),
        late=sum(report.panes.late for report in reports if report.panes),
        unplaced=sum(report.panes.unplaced for report in reports if report.panes),
        bad=[{"operator": run.title, **asdict(count)} for run in runs for count in _bad(run)],
        state={
            "cells": sum(report.cells for report in reports),
            "bytes": sum(report.memory for report in reports),
        },
        receivers=receivers,
        upstream={run.title: lost for run in runs if not run.node.internal and (lost := upstream_losses(run))},
        workers=[entry for run in runs if not run.node.internal for entry in _workers(run)],
        training={run.title: run.convergence.to_json() for run in runs if run.convergence is not None},
        operators=[_operator(run) for run in runs if not run.node.internal and run.node.operator.states()],
    )


def _bad(run: OperatorRun) -> tuple[Count, ...]:
    return sum_counts(count for one in run.left_out for count in one.counts)


def _operator(run: OperatorRun) -> dict[str, Any]:
    written = [backup for report in run.reports for backup in report.backups]
    return {
        "operator": run.title,
        "workers": run.node.workers,
        "cells": sum(report.cells for report in run.reports),
        "bytes": sum(report.memory for report in run.reports),
        "emits": run.node.emits,
        "emitted": sum(report.emitted for report in run.reports),
        "late": sum(report.panes.late for report in run.reports if report.panes),
        "seconds": sum(report.work.seconds for report in run.reports),
        "backup_cells": sum(ref.cells for ref in written),
        "backup_bytes": sum(ref.bytes for ref in written),
    }


def _workers(run: OperatorRun) -> list[dict[str, Any]]:
    return [_worker(run, report) for report in sorted(run.reports, key=lambda report: report.worker)]


def _worker(run: OperatorRun, report: TaskReport) -> dict[str, Any]:
    member = run.group.member(report.worker)
    return {
        "operator": run.title,
        "worker": report.worker,
        "host": report.host,
        "incarnation": member.incarnation,
        "theta": run.group.budget_of(member.worker).theta(member.counted_failures),
        "drift": dict(report.drift),
        "seconds": dict(report.seconds),
        "metrics": dict(report.metrics),
    }


@dataclass
class Totals:
    """Sums over the batches of one run."""

    batches: int = 0
    items: int = 0
    bytes: int = 0
    seconds: float = 0.0
    recoveries: int = 0
    late: int = 0
    unplaced: int = 0
    bad: int = 0
    backups: dict[str, int] = field(default_factory=lambda: {"count": 0, "cells": 0, "bytes": 0})
    receivers: dict[str, float] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=added)

    def add(self, progress: BatchProgress) -> None:
        self.batches += 1
        self.items += progress.items
        self.bytes += progress.bytes
        self.seconds += progress.seconds
        self.recoveries += progress.recoveries
        self.late += progress.late
        self.unplaced += progress.unplaced
        self.bad += sum(one["items"] for one in progress.bad)
        self.requests = added(self.requests, progress.requests)
        for name in self.backups:
            self.backups[name] += progress.backups[name]
        for name, value in progress.receivers.items():
            self.receivers[name] = value if name == "pending" else self.receivers.get(name, 0.0) + value
