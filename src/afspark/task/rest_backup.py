"""A backup of a state at rest, between two batches: what a restore from the backups before it would lack.

It leaves the state as it was. The next backup of the state does not build on it, so that it does no harm if nobody ever
names it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from afspark.numbers import Batch
from afspark.policies import NoBackup, ThresholdBackup
from afspark.protocol.parcels import open_packets
from afspark.protocol.ports import feedback_for
from afspark.resident.storage import StateStorage
from afspark.store import ObjectRef, seal
from afspark.store.base import not_writable
from afspark.store.images import FeedbackPart, ImageKey
from afspark.task.backup import Moment, choose_images, stamped_images
from afspark.task.backup_header import BackupHeader
from afspark.task.backup_numbers import backup_name
from afspark.task.pane_states import PaneStates
from afspark.task.task_context import TaskContext


@dataclass(frozen=True)
class RestBackup:
    """A sealed backup on its way to the store."""

    ref: ObjectRef
    data: bytes


def take_at_rest(
    task: TaskContext, home: StateStorage, panes: PaneStates, *, feedback: bool = True
) -> RestBackup | None:
    """What the backups of the last batch lack of the state and, with ``feedback``, of that; None if they lack nothing,
    or the worker's policy has nothing backed up.

    Nobody may take that batch back any more.
    """
    config, request = task.config, task.request
    plan = request.backup
    if isinstance(plan, NoBackup):
        return None
    if isinstance(plan, ThresholdBackup):
        # What has changed in earlier batches is no longer known by its journal.
        plan = replace(plan, recheck=True)
    panes.begin()
    home.begin(Batch(request.batch + 1), request.covered)
    try:
        chosen = choose_images(plan, Moment(panes=panes))
        images: dict[ImageKey, pa.RecordBatch] = dict(stamped_images(chosen.images, panes))
        if feedback:
            images |= _feedback(task, home)
    finally:
        panes.rollback()
        home.clear_mark()
    if not images and not chosen.full:
        return None
    cells = sum(image.num_rows for image in images.values())
    header = replace(
        BackupHeader.of(config, request), theta=plan.allows(task.operator.states()), full=chosen.full, cells=cells
    )
    name = backup_name(config, request, home.number_backup() if config.retained else 0)
    data = seal(header.to_json(), images)
    return RestBackup(ObjectRef.of(name, data, cells=cells, full=chosen.full), data)


def _feedback(task: TaskContext, home: StateStorage) -> dict[ImageKey, pa.RecordBatch]:
    batch = task.request.batch
    kept = {target: home.kept(batch, feedback_for(target)) for target in task.config.feeds_back}
    return {
        FeedbackPart(target, batch, number): packet.items
        for target, data in kept.items()
        if data is not None
        for number, packet in enumerate(open_packets(data))
    }


def put_at_rest(task: TaskContext, backup: RestBackup, seconds: float) -> None:
    """Makes a backup durable; raises what the store has refused it with, or that it took longer than that."""
    store = task.config.store
    write = task.environment.start_write(store, backup.ref.name, backup.data)
    if not write.wait(seconds):
        raise not_writable(store.path, f"{len(backup.data):,} bytes took longer than {seconds:g} s")
    if write.failure is not None:
        raise write.failure
