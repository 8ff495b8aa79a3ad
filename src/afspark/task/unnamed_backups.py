"""Backups of a batch that no record names yet: how far its steps have come, and who wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from afspark.numbers import Incarnation
from afspark.protocol.losses import LossEvidence
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.requests import TaskRequest
from afspark.push.wire.worker_messages import NO_BACKUP, BackupNumber
from afspark.store import Damage, ObjectRef
from afspark.store.naming import OBJECTS, parse_object_name
from afspark.store.reading import read_sealed
from afspark.task.backup_header import BackupHeader
from afspark.task.backup_numbers import GENERATION, generation_after, is_mark
from afspark.task.step_progress import StepProgress


@dataclass(frozen=True)
class UnnamedBackups:
    """What the store has of a batch that no record names yet: how far its steps have come, and who wrote them."""

    progress: StepProgress | None = None
    traces: tuple[LossEvidence, ...] = ()
    #: damaged, and not because their writer died while it wrote them
    rotten: tuple[str, ...] = ()
    #: above the numbers of all backups of the batch, also of those that processes which are dead may yet complete
    generation: int = GENERATION

    def undeclared(self, request: TaskRequest, config: OperatorConfig) -> LossEvidence | None:
        """The first incarnation whose loss is not counted yet, or not for all that it had seen.

        Under an exact policy only those matter that worked under another one, before a restart.
        """
        traces = [trace for trace in self.traces if trace.may_lose or not config.exact]
        return next(
            (one for one in traces if not one.is_counted(request.counted, request.batch_time, config.window)), None
        )


def _rotten(damaged: Sequence[str], newest: BackupNumber) -> tuple[str, ...]:
    """Those after the ``newest`` sound one that had to be durable, because their writer has begun another one since.

    A process has at most one backup under way at a time, so only its last one can have been cut short by its death.
    The marks from where on processes number hold nothing, and a process that dies while it writes one leaves its
    numbers to the next.
    """
    origins = {name: parse_object_name(name) for name in damaged}
    after = sorted(
        (origin.incarnation, origin.number, name)
        for name, origin in origins.items()
        if origin is not None and not is_mark(origin.number) and (origin.incarnation, origin.number) > newest[1:]
    )
    last = {(incarnation, number // GENERATION): number for incarnation, number, _ in after}
    return tuple(name for incarnation, number, name in after if number < last[incarnation, number // GENERATION])


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
    headers = [(name, BackupHeader.from_json(one.meta)) for name, one in found if not isinstance(one, Damage)]
    steps = [(name, header, header.progress) for name, header in headers if header.progress is not None]
    origins = [origin for one in names if (origin := parse_object_name(one)) is not None]
    generation = generation_after(max((origin.number for origin in origins), default=0))
    if not steps:
        known = StepProgress(damaged=damaged) if damaged else None
        return UnnamedBackups(known, rotten=_rotten(damaged, NO_BACKUP), generation=generation)
    newest: dict[Incarnation, tuple[str, BackupHeader, StepProgress]] = {}
    for name, header, progress in steps:
        writer = Incarnation(progress.newest.incarnation)
        if writer not in newest or progress.newest > newest[writer][2].newest:
            newest[writer] = name, header, progress
    name, header, progress = newest[max(newest)]
    own = ObjectRef.of(name, store.get(name), cells=header.cells, full=header.full)
    traces = tuple(
        LossEvidence(writer, last.panes, backup.theta) for writer, (_, backup, last) in sorted(newest.items())
    )
    restored = replace(progress, backups=(*progress.backups, own), damaged=damaged)
    return UnnamedBackups(restored, traces, _rotten(damaged, progress.newest), generation)


def _is_step_of(name: str, config: OperatorConfig, request: TaskRequest) -> bool:
    origin = parse_object_name(name)
    return (
        origin is not None
        and (origin.operator, origin.worker, origin.batch) == (config.operator_name, request.worker, request.batch)
        and origin.incarnation <= request.incarnation
    )
