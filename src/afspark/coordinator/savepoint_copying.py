"""Makes savepoints, and new checkpoints of them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from afspark.coordinator.savepoint_contents import SavepointPart, parts_of
from afspark.errors import AfsparkError, CheckpointError, ObjectMissing, UsageError
from afspark.graph.pipeline import Pipeline
from afspark.store import CommitRecord, QueryIdentity, Store, checksum_of, seal, unseal
from afspark.store.base import without_probes
from afspark.store.identity import changes_between, has_identity, put_identity, refuse_changes
from afspark.store.naming import FOLDER, ORIGIN
from afspark.store.savepoint import (
    FOLDER_OF_NAMED,
    SavedObject,
    Savepoint,
    abandon_savepoint,
    begin_savepoint,
    checksum_of_all,
    complete_savepoint,
    read_saved,
    read_savepoint,
)

_COPIES = 4
"""How many objects are copied at once, and in memory."""

_ORIGIN = f"{FOLDER}/{ORIGIN}"

Given = TypeVar("Given")
Made = TypeVar("Made")


def make_savepoint(checkpoint: Store, place: Store, record: CommitRecord, identity: QueryIdentity) -> Savepoint:
    """Copies the query at the end of the record's batch to ``place``; complete when this returns.

    Nothing that the record names may be deleted meanwhile. `UsageError` if the place is taken. `CheckpointError` if
    something is damaged, or gone: then nothing is left behind.
    """
    place.check_writable()
    token = begin_savepoint(place)
    try:
        saved = _each(parts_of(checkpoint, record), partial(_save, checkpoint, place))
        # With a number of its own: nobody takes it for the query that it was made from.
        put_identity(place.below(FOLDER), identity.fingerprint, identity.settings)
        savepoint = Savepoint(
            token=token,
            query_id=identity.query_id,
            fingerprint=identity.fingerprint,
            settings=identity.settings,
            batch=record.batch,
            created=time.time(),
            objects=tuple(sorted(saved, key=lambda one: one.name)),
        )
        complete_savepoint(place, savepoint)
        return savepoint
    except BaseException:
        with suppress(AfsparkError):
            abandon_savepoint(place, token)
        raise


def start_from_savepoint(
    place: Store, checkpoint: Store, pipeline: Pipeline, discard: Collection[str] = ()
) -> Savepoint:
    """Fills an empty ``checkpoint`` with what the savepoint in ``place`` holds; it belongs to a query of its own.

    `UsageError` if there is no savepoint or the checkpoint is not empty; `CheckpointError` if the savepoint cannot be
    used, or belongs to a pipeline whose state this one cannot keep and may not ``discard``. One that died on the way
    may be tried again.
    """
    savepoint = read_savepoint(place)
    refuse_changes(
        f"The savepoint in {place.path}",
        place.path,
        changes_between(savepoint.settings, pipeline.settings(), discard),
        expected=pipeline.fingerprint(),
        found=savepoint.fingerprint,
    )
    refuse_unless_empty(checkpoint, savepoint)
    origin = {"kind": ORIGIN, "path": place.path, "token": savepoint.token, "batch": savepoint.batch}
    checkpoint.put(_ORIGIN, seal(origin, {}))
    try:
        _each(savepoint.objects, partial(_take, place, checkpoint))
    except AfsparkError:
        with suppress(AfsparkError):
            checkpoint.delete([*(one.name for one in savepoint.objects), _ORIGIN])
        raise
    # Spark refuses to run two queries of one number at once.
    checkpoint.put("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
    # Last: without an identity nobody goes on from a checkpoint.
    put_identity(checkpoint.below(FOLDER), savepoint.fingerprint, dict(savepoint.settings))
    return savepoint


def origin_of(checkpoint: Store) -> str | None:
    """The savepoint that a checkpoint was begun from; None if from none."""
    try:
        return str(unseal(checkpoint.get(_ORIGIN), _ORIGIN).meta["path"])
    except (AfsparkError, KeyError):
        return None


def refuse_unless_empty(checkpoint: Store, savepoint: Savepoint) -> None:
    """`UsageError` unless a checkpoint is empty, or holds what an earlier try to start from ``savepoint`` left."""
    names = without_probes(checkpoint.list(""))
    present = [name for name in names if not name.startswith(f"{FOLDER_OF_NAMED}/")]
    # Whoever began to fill it has come no further than this.
    if not set(present) - {_ORIGIN}:
        return
    begun = _token_of(checkpoint) == savepoint.token and not has_identity(checkpoint.below(FOLDER))
    if not begun:
        raise UsageError(
            f"The checkpoint {checkpoint.path} is not empty.",
            remedy="Leave the savepoint out to go on from the checkpoint, or name a new folder to start from it.",
            path=checkpoint.path,
        )


def _token_of(checkpoint: Store) -> str | None:
    """The savepoint that somebody has begun to fill the checkpoint from."""
    try:
        return str(unseal(checkpoint.get(_ORIGIN), _ORIGIN).meta["token"])
    except (AfsparkError, KeyError):
        return None


def _save(checkpoint: Store, place: Store, part: SavepointPart) -> SavedObject:
    data = part.data
    if data is None:
        try:
            data = checkpoint.get(part.name)
        except ObjectMissing as error:
            raise _not_made(checkpoint, f"{part.name} is gone") from error
    if part.checksum is not None:
        unseal(data, part.name)
        if checksum_of(data) != part.checksum:
            raise _not_made(checkpoint, f"{part.name} is not what its record names")
    place.put(part.name, data)
    return SavedObject(part.name, len(data), checksum_of_all(data))


def _take(place: Store, checkpoint: Store, one: SavedObject) -> None:
    checkpoint.put(one.name, read_saved(place, one))


def _not_made(checkpoint: Store, why: str) -> CheckpointError:
    return CheckpointError(
        f"No savepoint was made of {checkpoint.path}: {why}.",
        remedy="afspark inspect --verify says what else is damaged.",
        path=checkpoint.path,
        why=why,
    )


def _each(given: Iterable[Given], work: Callable[[Given], Made]) -> list[Made]:
    with ThreadPoolExecutor(_COPIES) as pool:
        return list(pool.map(work, given))
