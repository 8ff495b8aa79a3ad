"""Whose checkpoint this is."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from afspark.errors import CheckpointError, CorruptObject, ForeignObject, ObjectMissing, UsageError
from afspark.store.base import Store
from afspark.store.format import FORMAT_VERSION, OTHER_RELEASE, seal, unseal, written_by
from afspark.store.naming import FOLDER, IDENTITY, SAVEPOINT
from afspark.store.outage import WaitingStore
from afspark.store.settings_compared import SAME_PIPELINE, what_differs


@dataclass(frozen=True)
class QueryIdentity:
    """What the first driver of a checkpoint writes, once. ``created`` is in seconds since 1970.

    ``settings`` are those of the first start; the caller decides which of them may change later.
    """

    query_id: str
    fingerprint: str
    format_version: int
    created: float
    settings: dict[str, Any]


def claim(store: Store, fingerprint: str, settings: dict[str, Any]) -> QueryIdentity:
    """The identity of the query in this checkpoint, made now if the checkpoint is new.

    `CheckpointError` with ``expected`` and ``found`` if the checkpoint belongs to a pipeline with another
    fingerprint, is of another format version, or its identity cannot be read although there is more: the identity
    comes first, so a damaged one that is all there is was left by a start that got no further.
    """
    if store.has(SAVEPOINT):
        raise CheckpointError(
            f"{store.path} is a savepoint: no query runs on it.",
            remedy='Start with option("savepoint", …), on the command line --savepoint, and a checkpoint of its own.',
            path=store.path,
            expected=fingerprint,
            found=None,
        )
    found = _found(store)
    if not _is_whole(found) and not set(store.list("")) - {IDENTITY}:
        put_identity(store, fingerprint, settings)
        # Read back: if two drivers came at once, both go by the one that remained.
        found = store.get(IDENTITY)
    return _checked(store, found, fingerprint, settings)


def put_identity(store: Store, fingerprint: str, settings: Mapping[str, Any]) -> None:
    """Makes the checkpoint that of a new query."""
    identity = QueryIdentity(secrets.token_hex(16), fingerprint, FORMAT_VERSION, time.time(), dict(settings))
    store.put(IDENTITY, seal({"kind": "identity", "identity": asdict(identity)}, {}))


def has_identity(store: Store) -> bool:
    """Whether an identity was written as a whole."""
    return _is_whole(_found(store))


def _found(store: Store) -> bytes:
    try:
        return store.get(IDENTITY)
    except ObjectMissing:
        return b""


def _is_whole(data: bytes) -> bool:
    try:
        unseal(data)
    except CorruptObject:
        return False
    except ForeignObject:
        return True
    return True


def identify(store: Store) -> QueryIdentity | None:
    """The identity of whatever query this checkpoint belongs to, read only; None if there is none.

    `CheckpointError` as from `claim`, for another format or a damaged identity.
    """
    try:
        return _readable(store, store.get(IDENTITY))
    except ObjectMissing:
        return None


def require_identity(checkpoint: Store) -> QueryIdentity:
    """The identity of the query in this checkpoint folder, as `identify` gives it; `UsageError` if there is none."""
    identity = identify(checkpoint.below(FOLDER))
    if identity is None:
        raise UsageError(
            f"There is no checkpoint of afspark in {checkpoint.path}.",
            remedy="Name the folder given as checkpointLocation or --checkpoint.",
            path=checkpoint.path,
        )
    return identity


def attached(checkpoint: Store, wait_seconds: float) -> Store:
    """The checkpoint folder of a claimed query; if it goes away it is waited for and not made anew.

    Spark makes the folder itself again when it writes there, so it is known by the identity inside.
    """
    return WaitingStore(checkpoint, f"{FOLDER}/{IDENTITY}", seconds=wait_seconds)


def _checked(store: Store, data: bytes, fingerprint: str, settings: Mapping[str, Any]) -> QueryIdentity:
    identity = _readable(store, data, fingerprint)
    if identity.fingerprint != fingerprint:
        differs = what_differs(identity.settings, settings)
        raise CheckpointError(
            f"The checkpoint {store.path} belongs to another pipeline{': ' if differs else ''}{differs}.",
            remedy=f"{SAME_PIPELINE} Or use a new checkpoint folder.",
            path=store.path,
            differs=differs,
            expected=fingerprint,
            found=identity.fingerprint,
        )
    return identity


def _readable(store: Store, data: bytes, fingerprint: str | None = None) -> QueryIdentity:
    try:
        identity = QueryIdentity(**unseal(data, IDENTITY).meta["identity"])
    except ForeignObject as error:
        raise _of_another_release(store, error.found) from error
    except (CorruptObject, KeyError, TypeError) as error:
        raise CheckpointError(
            f"The identity of the checkpoint {store.path} is damaged.",
            remedy=f"Restore its file {IDENTITY!r} from a copy. If no batch ever completed, delete it all.",
            path=store.path,
            expected=fingerprint,
            found=None,
        ) from error
    if identity.format_version != FORMAT_VERSION:
        raise _of_another_release(store, identity.format_version)
    return identity


def _of_another_release(store: Store, found: Any) -> CheckpointError:
    """``found`` is a format version, or what stands where an object of afspark begins."""
    how = written_by(found) if isinstance(found, int) else "not written by afspark"
    return CheckpointError(
        f"The checkpoint {store.path} was {how}.",
        remedy=OTHER_RELEASE,
        path=store.path,
        expected=FORMAT_VERSION,
        found=found,
    )
