"""Failures on purpose, carried out where a worker lives: each once, by a marker beside its state."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import NoReturn

from afspark.numbers import Batch
from afspark.protocol.fault_plan import FaultPhase, FaultPlan

_MARKERS = ".injected-"


def inject_failure(plan: FaultPlan, batch: Batch, phase: FaultPhase, segment: Path, process: int) -> None:
    """Destroys ``segment`` and kills ``process`` if the plan says so and it was not done before."""
    if not plan.failures or not plan.fails_at(batch, phase):
        return
    markers = segment.parent / f"{_MARKERS}{plan.name}"
    markers.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(markers / f"{batch}-{phase.name}-{segment.name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    destroy(segment, process)


def forget_injected(query: Path) -> None:
    """Removes the markers beside a query's segments."""
    for markers in query.glob(f"{_MARKERS}*"):
        shutil.rmtree(markers, ignore_errors=True)


def destroy(segment: Path, process: int) -> NoReturn:
    """The end of a host, as far as one worker can see it: its state goes, and the process that runs its tasks."""
    shutil.rmtree(segment, ignore_errors=True)
    os.kill(process, signal.SIGKILL)
    signal.pause()
    raise SystemExit(1)
