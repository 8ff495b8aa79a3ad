"""The folder of a campaign: whose it is, and what is there of it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from afspark.errors import UsageError
from afspark.lab.application import Application, Builder
from afspark.lab.campaign_units import AFFECTED, GOLDEN, TRIALS
from afspark.lab.function_code import function_digest
from afspark.lab.study_inputs import items_digest
from afspark.lab.study_plan import StudyPlan


@contextmanager
def sole_study(work: Path) -> Iterator[None]:
    """Keeps the studies of other processes out of a folder."""
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w") as file:
        try:
            # Of this process alone: one that it has forked and that outlives it must not keep the next start out.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise UsageError(
                f"A study is running in {str(work)!r}.",
                remedy="Wait until it has ended, or take another folder.",
                path=str(work),
            ) from error
        yield


def claim(plan: StudyPlan) -> list[str]:
    """Makes the folder that of this study; what the user should know if there are results in it already.

    What another study has left, which ended before its first trial did, is removed.
    """
    mark = plan.work / "study"
    there = results_there(plan)
    if not mark.exists() or mark.read_text() != plan.fingerprint():
        if there:
            raise UsageError(
                f"{str(plan.work)!r} holds results of another study.",
                remedy="Take another folder, or remove this one.",
                path=str(plan.work),
            )
        for pattern in ("repetition-*", AFFECTED):
            for folder in plan.work.glob(pattern):
                shutil.rmtree(folder)
        mark.write_text(plan.fingerprint())
    return [f"The study went on from {there:,} trials that were there."] if there else []


def results_there(plan: StudyPlan) -> int:
    """How many trials have results."""
    folder = plan.work / TRIALS
    if not folder.is_dir():
        return 0
    return sum(name.endswith(".json") and GOLDEN not in name for name in os.listdir(folder))


def identity(builder: Builder, application: Application, tables: Sequence[pa.Table]) -> str:
    """What the pipeline and its inputs are: its plan, the function that builds it with its file, and all items."""
    whole = hashlib.blake2b(application.instrumented({}).fingerprint().encode(), digest_size=8)
    whole.update(function_digest(builder).encode())
    for table in tables:
        whole.update(items_digest(table).encode())
    return whole.hexdigest()
