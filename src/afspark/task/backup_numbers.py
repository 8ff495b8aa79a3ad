"""How the backups of one batch are numbered, so that those of several processes cannot be confused.

A process that is dead may have left a backup under way that becomes durable later. It must never pass for newer than
those that are made after it, nor have the number of one. So every process that builds a state, or takes up the batch of
another one, numbers from a mark that is above all numbers before, and durable before anything else is written.
"""

from __future__ import annotations

import secrets

from afspark.numbers import Batch
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.requests import TaskRequest
from afspark.resident.storage import StateStorage
from afspark.store import object_name, seal
from afspark.task.backup_header import BackupHeader
from afspark.task.step_progress import StepProgress

#: How many backups a process may number before it meets the numbers of the next one that works on the same batch.
GENERATION = 2**20


def generation_after(number: int) -> int:
    """Where a process begins to number, after one that had come to ``number``."""
    return (number // GENERATION + 1) * GENERATION


def is_mark(number: int) -> bool:
    """Whether it is the number of what says from where on a process numbers, and of no backup."""
    return number % GENERATION == 0


def backup_name(config: OperatorConfig, request: TaskRequest, number: int) -> str:
    """A name that no other backup has; it tells the ``number`` of this one even if it is damaged."""
    return object_name(
        config.epoch, config.operator_name, request.worker, request.incarnation, request.batch, new_attempt(), number
    )


def new_attempt() -> int:
    """What tells the name of an object from those of other attempts to write it."""
    return secrets.randbelow(10**6)


def begin_generation(
    storage: StateStorage,
    config: OperatorConfig,
    request: TaskRequest,
    generation: int,
    reached: StepProgress | None = None,
) -> None:
    """Makes durable from where on this process numbers. ``reached``: how far the batch has come that it takes up."""
    header = BackupHeader.of(config, request)
    config.store.put(backup_name(config, request, generation), seal(header.to_json(), {}))
    storage.restored_at(request.batch, None if reached is None else reached.to_text().encode(), generation)


def leave(storage: StateStorage, batch: Batch) -> None:
    """After an attempt that did not come to its end: what it was writing may have been cut short."""
    storage.restored_at(batch, None, generation_after(storage.number_backup()) - 1)


def is_left(storage: StateStorage) -> bool:
    """Whether the last attempt did not come to its end."""
    return storage.backups % GENERATION == GENERATION - 1


def take_up(storage: StateStorage, config: OperatorConfig, request: TaskRequest) -> None:
    """Begins a generation before a process goes on with a batch that another one had begun."""
    begin_generation(storage, config, request, generation_after(storage.number_backup()))
