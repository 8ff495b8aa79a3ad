"""System failures as data: at which batch and in which phase every worker's state is destroyed.

A plan is made from a seed and travels with the tasks. A struck worker removes its own segment and then kills
the process that holds it with SIGKILL: its executor on a cluster, the Python worker where Spark runs locally.
Each strike hits each worker once: a marker file beside the segments remembers it through retries.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

from afspark.errors import UsageError
from afspark.runtime.host import executor_pid

_MARKERS = ".strikes-"


class Phase(StrEnum):
    """Moments in the life of a batch at which a failure can strike."""

    BETWEEN = "between"  # after the last batch was committed, before anything of this one
    APPLYING = "applying"  # in the middle of the updates, journal half full
    BACKING_UP = "backing up"  # updates done, backup object written, batch not finished
    COMMITTING = "committing"  # all workers are done, the driver has not written the record
    COMMITTED = "committed"  # the record is written, Spark has not committed the batch
    RECOVERING = "recovering"  # struck between batches, and again while the backup is restored


_IN_TASKS = (Phase.BETWEEN, Phase.APPLYING, Phase.BACKING_UP, Phase.RECOVERING)


@dataclass(frozen=True, order=True)
class Strike:
    """One system failure."""

    batch: int
    phase: Phase


@dataclass(frozen=True)
class FaultPlan:
    """The failures of a run. ``name`` keeps the markers of different plans apart."""

    strikes: frozenset[Strike] = field(default_factory=frozenset)
    name: str = ""

    @classmethod
    def seeded(cls, failures: int, *, batches: int, seed: int, name: str = "plan") -> FaultPlan:
        """``failures`` strikes at random moments of batches 1 … ``batches`` - 1, different where possible."""
        if failures == 0:
            return cls()
        moments = [Strike(batch, phase) for batch in range(1, batches) for phase in Phase]
        if failures > len(moments):
            raise UsageError(
                f"{failures} failures do not fit into {batches} batches.",
                remedy="Use a smaller --batch-size or a larger input.",
                failures=failures,
                batches=batches,
            )
        draw = random.Random(seed)
        chosen: list[Strike] = []
        by_batch = {batch: [m for m in moments if m.batch == batch] for batch in range(1, batches)}
        while len(chosen) < failures:  # one per batch first, so that each of them counts as a failure
            open_batches = [batch for batch in by_batch if by_batch[batch]]
            for batch in draw.sample(open_batches, min(len(open_batches), failures - len(chosen))):
                chosen.append(by_batch[batch].pop(draw.randrange(len(by_batch[batch]))))
        return cls(frozenset(chosen), name)

    def strikes_at(self, batch: int, phase: Phase) -> bool:
        """Whether a failure is due. A failure during recovery needs one to recover from first."""
        due = Strike(batch, phase) in self.strikes
        return due or (phase is Phase.BETWEEN and Strike(batch, Phase.RECOVERING) in self.strikes)

    def strikes_workers(self, batch: int) -> bool:
        """Whether tasks of a batch strike themselves."""
        return any(Strike(batch, phase) in self.strikes for phase in _IN_TASKS)


def strike(plan: FaultPlan, batch: int, phase: Phase, segment: Path) -> None:
    """Destroys ``segment`` and kills the process behind it if the plan says so and it was not done before."""
    if not plan.strikes or not plan.strikes_at(batch, phase):
        return
    markers = segment.parent / f"{_MARKERS}{plan.name}"
    markers.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(markers / f"{batch}-{phase.name}-{segment.name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    destroy(segment)


def forget_strikes(query: Path) -> None:
    """Removes the markers beside a query's segments."""
    for markers in query.glob(f"{_MARKERS}*"):
        shutil.rmtree(markers, ignore_errors=True)


def destroy(segment: Path) -> NoReturn:
    """The end of a host, as far as one worker can see it."""
    shutil.rmtree(segment, ignore_errors=True)
    executor = executor_pid()
    os.kill(executor if executor is not None else os.getpid(), signal.SIGKILL)
    signal.pause()
    raise SystemExit(1)
