"""What the driver knows of its workers, and what it concludes from their reports. Pure: no I/O, no Spark.

Only the driver declares a loss. A report of a missing segment, or a home that stays away, becomes a verdict
here; the batch loop carries it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from afspark.bounds import Place
from afspark.model.states import StateSpec
from afspark.policies import Thresholds, Tolerance, counts_as_failure, thresholds_in_force
from afspark.runtime.lifecycle import Hint
from afspark.runtime.orders import Order, Report, Status
from afspark.store import CompactionRule, ObjectRef, WorkerRecord, extend


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The agreement all workers of an operator run under."""

    tolerance: Tolerance
    states: Mapping[str, StateSpec]
    workers: int
    keyed: bool
    weight: float = 1.0
    fan_out: float = 1.0
    downstream: int = 0
    compaction: CompactionRule = field(default_factory=CompactionRule)

    @property
    def place(self) -> Place:
        return Place(
            workers=self.workers,
            keyed=self.keyed,
            weight=self.weight,
            fan_out=self.fan_out,
            downstream=self.downstream,
        )

    def thresholds(self, failures: int) -> Thresholds:
        """Everything in force for a worker with that many counted failures, and why."""
        return thresholds_in_force(self.tolerance, self.states, failures=failures, place=self.place)

    def theta(self, failures: int) -> dict[str, float]:
        """Thresholds in force per state for a worker with that many counted failures."""
        return dict(self.thresholds(failures).theta)

    def loss(self, failures: int) -> dict[str, float]:
        """What the next counted failure can take per state; nothing is promised where nothing is kept."""
        return self.theta(failures) if self.tolerance.recovers else dict.fromkeys(self.states, 0.0)


@dataclass(frozen=True, kw_only=True)
class Member:
    """One worker as the driver sees it between two batches."""

    worker: int
    home: str
    incarnation: int = 0
    failures: int = 0
    #: batches this incarnation has completed
    completed: int = 0
    hint: Hint = Hint.CREATE
    chain: tuple[ObjectRef, ...] = ()
    previous: tuple[ObjectRef, ...] = ()
    #: per state, what counted failures may have taken so far
    missing: Mapping[str, float] = field(default_factory=dict)
    recheck: bool = False
    #: the next backup must be a full image, because the chain has a hole
    restart_chain: bool = False

    def order(self, batch: int, terms: Terms, fence: int = 0) -> Order:
        return Order(
            worker=self.worker,
            batch=batch,
            incarnation=self.incarnation,
            hint=self.hint,
            fence=fence,
            home=self.home,
            theta=terms.theta(self.failures),
            missing=self.missing,
            full=self.restart_chain or terms.compaction.due(self.chain),
            recheck=self.recheck,
            chain=self.chain if self.hint is Hint.RECOVER else (),
            previous=self.previous if self.hint is Hint.RECOVER else (),
        )

    def lost(self, terms: Terms, home: str) -> Member:
        """The next incarnation, after this one was declared lost; it will live at ``home``."""
        counted = counts_as_failure(completed=self.completed)
        missing = dict(self.missing)
        if counted:
            for name, most in terms.loss(self.failures).items():
                missing[name] = missing.get(name, 0.0) + most
        return replace(
            self,
            home=home,
            incarnation=self.incarnation + 1,
            failures=self.failures + counted,
            completed=0,
            hint=Hint.RECOVER,
            missing=missing,
        )

    def applied(self, report: Report) -> Member:
        """After a batch was applied; names the backup it wrote."""
        chain, previous = self.chain, self.previous
        if report.backup is not None:
            chain, previous = extend(chain, previous, report.backup)
        hole = self.restart_chain and not (report.backup is not None and report.backup.full)
        return replace(
            self,
            completed=self.completed + 1,
            hint=Hint.RESUME,
            chain=chain,
            previous=previous,
            recheck=False,
            restart_chain=hole,
        )

    def record(self, terms: Terms) -> WorkerRecord:
        return WorkerRecord(
            worker=self.worker,
            incarnation=self.incarnation,
            failures=self.failures,
            completed=self.completed,
            host=self.home,
            theta=terms.theta(self.failures),
            chain=self.chain,
            previous=self.previous,
        )


class Verdict(Enum):
    """What follows from one worker's report."""

    DONE = "done"
    RETRY = "retry"  # nothing was touched; run the stage again
    AWAIT_HOST = "await host"  # the home has no executor at the moment; it may come back with the state
    LOST = "lost"  # the state is gone
    REFUSE = "refuse"  # the state contradicts the checkpoint; going on would corrupt results
    FAIL = "fail"  # user code or input raised; the report carries the error


def judge(member: Member, report: Report | None, alive: Iterable[str]) -> Verdict:
    """The verdict over one worker; ``alive`` are the hosts that have an executor now."""
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
            return Verdict.RETRY if member.home in alive else Verdict.AWAIT_HOST


def digests_agree(reports: Iterable[Report]) -> bool:
    """Whether all workers applied the same output of every map partition.

    After a fetch failure Spark recomputes lost map outputs. A map function that is not deterministic may then
    give some workers other items than those the rest has applied already.
    """
    seen: dict[str, str] = {}
    return all(
        seen.setdefault(partition, digest) == digest
        for report in reports
        for partition, digest in report.consumed.items()
    )
