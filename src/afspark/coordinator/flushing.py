"""What a commit record says of workers whose states are durable as a whole, because the query was stopped. Pure.

A restore reads what was backed up at rest, and nothing is lost with a state that is gone by then. So the record says
that its incarnation has completed nothing: the end of such a one is never counted. A state that survives until the next
start builds on the backups before those at rest, whose thresholds the record keeps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from afspark.coordinator.operator_run import OperatorRun
from afspark.protocol.reports import TaskReport
from afspark.store import CommitRecord, ObjectRef, OperatorRecord, WorkerRecord


def protected(runs: Iterable[OperatorRun]) -> frozenset[str]:
    """The operators whose workers are given back something if they lose their state."""
    return frozenset(run.name for run in runs if run.group.budget.tolerance.needs_records)


def is_flushed(record: CommitRecord, operators: Collection[str]) -> bool:
    """Whether nothing is lost with the workers of these operators."""
    return not any(worker.completed for worker in _workers(record, operators))


def is_backed_up(record: CommitRecord, operators: Collection[str]) -> bool:
    """Whether the backups of these operators are their whole states as it is."""
    return all(worker.is_whole for worker in _workers(record, operators))


def flushed(
    record: CommitRecord, operators: Collection[str], reports: Mapping[str, Sequence[TaskReport]]
) -> CommitRecord:
    """The record of the last batch, once workers have backed up at rest what no backup held."""
    made = {(name, report.worker): report.backups for name, found in reports.items() for report in found}

    def saved(name: str, operator: OperatorRecord) -> OperatorRecord:
        workers = (_saved(one, made.get((name, one.worker), ()), record.replays) for one in operator.workers)
        return replace(operator, workers=tuple(workers))

    found = {
        name: saved(name, operator) if name in operators else operator for name, operator in record.operators.items()
    }
    return replace(record, operators=found)


def _saved(worker: WorkerRecord, backups: tuple[ObjectRef, ...], replays: bool) -> WorkerRecord:
    hole = worker.hole and not any(backup.full for backup in backups)
    return replace(
        worker,
        at_rest=backups or worker.at_rest,
        # Feedback that waited in no backup is in this one, but not in those that a survivor is given if it is lost in
        # the next batch and nobody replays that.
        waiting=0 if replays else worker.waiting,
        hole=hole,
        completed=worker.completed if hole else 0,
    )


def _workers(record: CommitRecord, operators: Collection[str]) -> list[WorkerRecord]:
    return [worker for name in operators if name in record.operators for worker in record.operators[name].workers]
