"""System failures as data: at which batch and in which phase every worker's state is destroyed.

A plan is made from a seed and travels with the tasks. A worker that fails removes its own segment and then
kills the process that holds it with SIGKILL: its executor on a cluster, the Python worker where Spark runs locally.
Each failure hits each worker once: a marker file beside the segments remembers it through retries.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum

from afspark.errors import UsageError


class FaultPhase(StrEnum):
    """Moments in the life of a batch at which a failure can happen."""

    BETWEEN = "between"  # after the last batch was committed, before anything of this one
    APPLYING = "applying"  # in the middle of the updates, journal half full
    BACKING_UP = "backing up"  # updates done, backup object written, batch not finished
    COMMITTING = "committing"  # all workers are done, the driver has not written the record
    COMMITTED = "committed"  # the record is written, Spark has not committed the batch
    RECOVERING = "recovering"  # a failure between batches, and another while the backup is restored


_IN_TASKS = (FaultPhase.BETWEEN, FaultPhase.APPLYING, FaultPhase.BACKING_UP, FaultPhase.RECOVERING)


@dataclass(frozen=True, order=True)
class InjectedFailure:
    """One system failure."""

    batch: int
    phase: FaultPhase


@dataclass(frozen=True)
class FaultPlan:
    """The failures of a run. ``name`` keeps the markers of different plans apart.

    ``only``: the operator and the number of the one worker that fails; None: all of them do.
    """

    failures: frozenset[InjectedFailure] = field(default_factory=frozenset)
    name: str = ""
    only: tuple[str, int] | None = None

    @classmethod
    def seeded(cls, failures: int, *, batches: int, seed: int, name: str = "plan") -> FaultPlan:
        """``failures`` failures at random moments of batches 1 … ``batches`` - 1, different where possible."""
        if failures == 0:
            return cls()
        moments = [InjectedFailure(batch, phase) for batch in range(1, batches) for phase in FaultPhase]
        if failures > len(moments):
            raise UsageError(
                f"{failures} failures do not fit into {batches} batches.",
                remedy="Use a smaller --batch-size or a larger input.",
                failures=failures,
                batches=batches,
            )
        draw = random.Random(seed)
        chosen: list[InjectedFailure] = []
        by_batch = {batch: [m for m in moments if m.batch == batch] for batch in range(1, batches)}
        while len(chosen) < failures:  # one per batch first, so that each of them counts as a failure
            open_batches = [batch for batch in by_batch if by_batch[batch]]
            for batch in draw.sample(open_batches, min(len(open_batches), failures - len(chosen))):
                chosen.append(by_batch[batch].pop(draw.randrange(len(by_batch[batch]))))
        return cls(frozenset(chosen), name)

    def fails_at(self, batch: int, phase: FaultPhase) -> bool:
        """Whether a failure is due. A failure during recovery needs one to recover from first."""
        due = InjectedFailure(batch, phase) in self.failures
        return due or (phase is FaultPhase.BETWEEN and InjectedFailure(batch, FaultPhase.RECOVERING) in self.failures)

    def hits(self, operator: str, worker: int) -> bool:
        """Whether this worker is one of those that fail."""
        return bool(self.failures) and self.only in (None, (operator, worker))

    def fails_workers(self, batch: int) -> bool:
        """Whether a failure happens inside the tasks of a batch."""
        return any(InjectedFailure(batch, phase) in self.failures for phase in _IN_TASKS)
