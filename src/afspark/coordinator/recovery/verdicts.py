"""What follows from a worker's report. Pure.

Only the driver declares a loss: a report of a missing segment becomes a verdict here, and `recoveries` carries it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from afspark.protocol.replicas import Replica
from afspark.protocol.reports import Status, TaskReport


class Verdict(Enum):
    """What follows from one worker's report."""

    DONE = "done"
    RETRY = "retry"  # nothing was touched; run the stage again
    AWAIT_HOST = "await host"  # the home has no executor at the moment; it may come back with the state
    LOST = "lost"  # the state is gone
    REFUSE = "refuse"  # the state contradicts the checkpoint; going on would corrupt results
    FAIL = "fail"  # user code or input raised; the report carries the error


def judge(replica: Replica, report: TaskReport | None, alive: Iterable[str]) -> Verdict:
    """The verdict over one replica of a worker; ``alive`` are the hosts that have an executor now."""
    if report is None:
        return Verdict.RETRY
    match report.status:
        case Status.APPLIED:
            return Verdict.DONE
        case Status.FAILED:
            return Verdict.FAIL
        case Status.BUSY:
            return Verdict.RETRY
        case Status.MISSING:
            return Verdict.LOST
        case Status.CONTRADICTORY:
            return Verdict.REFUSE
        case Status.MISPLACED:
            return Verdict.RETRY if replica.home in alive else Verdict.AWAIT_HOST


def reasons(reports: Iterable[TaskReport]) -> list[str]:
    """Why workers have not done what they were asked to, in their words; what others have done is no reason."""
    return sorted({report.detail for report in reports if report.detail and report.status is not Status.APPLIED})
