"""Backups of a batch that no record names yet: how far its steps have come, and who wrote them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from afspark.model.windows import Window
from afspark.protocol.losses import LossEvidence
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.requests import TaskRequest
from afspark.push.wire.worker_messages import NO_BACKUP, BackupNumber
from afspark.store import Damage, ObjectRef, Sealed
from afspark.store.naming import OBJECTS, parse_object_name
from afspark.store.reading import read_sealed
from afspark.task.step_progress import StepProgress

#: Names of one backup's attempts.
_ATTEMPTS = 10**6


#: Where a backup's meta holds how far the batch had come.
PROGRESS = "passage"


#: … and the thresholds that it was made under
THETA = "theta"


@dataclass(frozen=True)
class UnnamedBackups:
    """What the store has of a batch that no record names yet: how far its steps have come, and who wrote them."""

    progress: StepProgress | None = None
    traces: tuple[LossEvidence, ...] = ()
    #: damaged, and not because their writer died while it wrote them
    rotten: tuple[str, ...] = ()

    def undeclared(self, request: TaskRequest, window: Window | None) -> LossEvidence | None:
        """The first incarnation whose loss is not counted yet, or not for all that it had seen."""
        return next(
            (one for one in self.traces if not one.is_counted(request.counted, request.batch_time, window)), None
        )


def attempt_of(number: int) -> int:
    """The last part of a backup's name: no other one has it, and it tells the ``number`` if the backup is damaged."""
    return number * _ATTEMPTS + secrets.randbelow(_ATTEMPTS)


def _rotten(damaged: Sequence[str], newest: BackupNumber) -> tuple[str, ...]:
    """Those after the ``newest`` sound one that had to be durable, because their writer has begun another one since.

    At most one backup is under way at a time, so only the last of all can have been cut short by a death.
    """
    origins = {name: parse_object_name(name) for name in damaged}
    after = sorted(
        (origin.incarnation, origin.attempt // _ATTEMPTS, name)
        for name, origin in origins.items()
        if origin is not None and (origin.incarnation, origin.attempt // _ATTEMPTS) > newest[1:]
    )
    if not after:
        return ()
    writer, last, _ = after[-1]
    return tuple(name for incarnation, number, name in after if incarnation == writer and number < last)


def find_unnamed(config: OperatorConfig, request: TaskRequest) -> UnnamedBackups:
    """What was backed up in the steps of the request's batch. Whoever wrote it must have been shut out before.

    The newest backup lists those before it, so that one whose process died before it could close its step, and
    whose step was done anew, is left out. One that was being written when its process died is damaged, and the
    one before it counts: nothing had been confirmed for it.
    """
    store = config.store
    names = [name for name in store.list(OBJECTS) if _is_step_of(name, config, request)]
    found = list(zip(names, read_sealed(store, names), strict=True))
    damaged = tuple(name for name, sealed in found if isinstance(sealed, Damage))
    steps = [(name, sealed) for name, sealed in found if not isinstance(sealed, Damage) and PROGRESS in sealed.meta]
    if not steps:
        return UnnamedBackups(StepProgress(damaged=damaged) if damaged else None, rotten=_rotten(damaged, NO_BACKUP))
    newest: dict[int, tuple[StepProgress, str, Sealed]] = {}
    for name, sealed in steps:
        progress = StepProgress.from_text(sealed.meta[PROGRESS])
        writer = progress.newest.incarnation
        if writer not in newest or progress.newest > newest[writer][0].newest:
            newest[writer] = progress, name, sealed
    progress, name, sealed = newest[max(newest)]
    own = ObjectRef.of(name, store.get(name), cells=sealed.meta["cells"], full=sealed.meta["full"])
    traces = tuple(
        LossEvidence(writer, last.panes, backup.meta.get(THETA, {}))
        for writer, (last, _, backup) in sorted(newest.items())
    )
    restored = replace(progress, backups=(*progress.backups, own), damaged=damaged)
    return UnnamedBackups(restored, traces, _rotten(damaged, progress.newest))


def _is_step_of(name: str, config: OperatorConfig, request: TaskRequest) -> bool:
    origin = parse_object_name(name)
    return (
        origin is not None
        and (origin.operator, origin.worker, origin.batch) == (config.operator_name, request.worker, request.batch)
        and origin.incarnation <= request.incarnation
    )
