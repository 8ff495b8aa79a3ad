"""Savepoints of a query at work, and of a checkpoint on which no query runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.offsets import newest_of
from afspark.coordinator.savepoint_contents import SPARK_STATE, refuse_what_cannot_be_saved
from afspark.coordinator.savepoint_copying import make_savepoint
from afspark.errors import AfsparkError, AnotherDriver, CheckpointError, UsageError
from afspark.sources.file_source import absolute
from afspark.store import CommitRecord, RecordLog, Store, open_store
from afspark.store.divided_store import whole_checkpoint
from afspark.store.epochs import read_history
from afspark.store.identity import require_identity
from afspark.store.lease import Lease
from afspark.store.naming import FOLDER
from afspark.store.savepoint import FOLDER_OF_NAMED, Savepoint, place_of, read_savepoint
from afspark.store.savepoint_requests import SavepointRequest, SavepointRequests

_GLANCE_SECONDS = 0.2


@contextmanager
def held_record(engine: Coordinator) -> Iterator[CommitRecord | None]:
    """The newest record that a savepoint can be made of, between two batches; None if Spark is about to commit it.

    Nothing that it names is deleted within the block, where batches may go on.
    """
    path = engine.checkpoint.path
    if engine.runs:
        record = refuse_what_cannot_be_saved(engine.identity, engine.commits.settle(), path)
    else:
        record = refuse_what_cannot_be_saved(engine.identity, _newest(engine.checkpoint), path)
    if engine.checkpoint.list(SPARK_STATE):
        raise UsageError(
            "Spark keeps state of its own for this query, which changes while it runs.",
            remedy="Stop the query, and use the command afspark savepoint.",
            path=path,
        )
    with engine.log.pinned(record):
        committed = newest_of(engine.checkpoint, "commits")
        yield record if committed is not None and committed >= record.batch else None


def save(engine: Coordinator, record: CommitRecord, place: str) -> Savepoint:
    """Makes a savepoint of a record that is held."""
    return make_savepoint(engine.checkpoint, open_store(place), record, engine.identity)


def savepoint_of(checkpoint: str | Path, name_or_path: str | os.PathLike[str]) -> tuple[str, Savepoint]:
    """Makes a savepoint of the query in ``checkpoint``; where it is, and what it holds.

    If a query runs there, its driver is asked for it, and this waits until it is made. Otherwise it is made of the
    newest record, here and now. `UsageError` if there is no checkpoint, or the savepoint's place is taken.
    """
    folder = open_store(checkpoint)
    store, identity = folder.below(FOLDER), require_identity(folder)
    place = absolute(place_of(absolute(str(checkpoint)), name_or_path))
    if _is_driven(store):
        requests = SavepointRequests(store)
        request = requests.put(place)
        try:
            if _await_answer(store, requests, request):
                return place, read_savepoint(open_store(place))
        finally:
            requests.withdraw(request)
    folder = whole_checkpoint(folder)
    record = refuse_what_cannot_be_saved(identity, _newest(folder), folder.path)
    return place, make_savepoint(folder, open_store(place), record, identity)


def answer_requests(store: Store, save_to: Callable[[str], object]) -> None:
    """Makes the savepoints that others have asked the driver for."""
    requests = SavepointRequests(store)
    for request in requests.waiting():
        try:
            save_to(request.place)
        except AfsparkError as error:
            requests.answer(request, error)
        else:
            requests.answer(request)


@dataclass(frozen=True)
class FoundSavepoint:
    """A savepoint that a checkpoint keeps under a name; ``trouble`` if it cannot be used."""

    name: str
    batch: int | None = None
    created: float | None = None
    bytes: int = 0
    trouble: str = ""


def found_savepoints(checkpoint: Store) -> list[FoundSavepoint]:
    """Those with a name of their own, by name. Their objects are not read."""
    names = {name.split("/")[1] for name in checkpoint.list(FOLDER_OF_NAMED) if name.count("/") > 1}
    return [_found(checkpoint, name) for name in sorted(names)]


def _found(checkpoint: Store, name: str) -> FoundSavepoint:
    try:
        savepoint = read_savepoint(checkpoint.below(f"{FOLDER_OF_NAMED}/{name}"))
    except (UsageError, CheckpointError) as error:
        return FoundSavepoint(name, trouble=str(error.fields.get("why", error.message)))
    return FoundSavepoint(name, savepoint.batch, savepoint.created, savepoint.bytes)


def _newest(checkpoint: Store) -> CommitRecord | None:
    """The newest record of a batch that Spark has committed."""
    committed = newest_of(checkpoint, "commits")
    records = read_history(checkpoint.below(FOLDER), -1 if committed is None else committed).records
    return records[max(records)][1] if records else None


def _is_driven(store: Store) -> bool:
    try:
        Lease(store, RecordLog(store), seconds=0.0).refuse_if_driven()
    except AnotherDriver:
        return True
    return False


def _await_answer(store: Store, requests: SavepointRequests, request: SavepointRequest) -> bool:
    """Whether the driver has made the savepoint; False if it has ended instead."""
    while not requests.answered(request):
        time.sleep(_GLANCE_SECONDS)
        if not _is_driven(store):
            # It may have answered just before its end.
            return requests.answered(request)
    return True
