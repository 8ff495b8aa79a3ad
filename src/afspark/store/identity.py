"""Whose checkpoint this is."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from afspark.errors import CheckpointError, CorruptObject, ForeignObject, ObjectMissing, UsageError
from afspark.store.base import Store
from afspark.store.divided_store import DividedStore
from afspark.store.format import FORMAT_VERSION, OTHER_RELEASE, seal, unseal, written_by
from afspark.store.naming import FOLDER, IDENTITY, SAVEPOINT
from afspark.store.outage import WaitingStore
from afspark.store.pipeline_changes import ChangeFinding, compared, refusals, summed_up
from afspark.store.pipeline_description import PipelineDescription


@dataclass(frozen=True)
class QueryIdentity:
    """What the first driver of a checkpoint writes, and one that starts with a changed pipeline writes anew.

    ``created`` is in seconds since 1970; ``fingerprint`` is that of the first pipeline, by which hosts know the query's
    states; ``settings`` describe the pipeline of the last start.
    """

    query_id: str
    fingerprint: str
    format_version: int
    created: float
    settings: dict[str, Any]
    #: operators that started with an empty state later than the query, by id: records of epochs below that number say
    #: nothing of what they have now
    anew: dict[str, int] = field(default_factory=dict)


def claim(store: Store, fingerprint: str, settings: dict[str, Any], discard: Collection[str] = ()) -> QueryIdentity:
    """The identity of the query in this checkpoint, made now if the checkpoint is new; otherwise it is left as it is.

    `CheckpointError` with ``expected`` and ``found`` if the checkpoint belongs to a pipeline whose state the one with
    ``settings`` cannot keep, and may not ``discard``, is of another format version, or its identity cannot be read
    although there is more: the identity comes first, so a damaged one that is all there is was left by a start that got
    no further.
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
    identity = _readable(store, found, fingerprint)
    refuse_changes(
        f"The checkpoint {store.path}",
        store.path,
        changes_between(identity.settings, settings, discard),
        expected=fingerprint,
        found=identity.fingerprint,
    )
    return identity


def changes_between(
    there: Mapping[str, Any], here: Mapping[str, Any], discard: Collection[str] = ()
) -> list[ChangeFinding]:
    """What a pipeline with the settings ``here`` makes of the state of one with those ``there``."""
    return compared(PipelineDescription.from_json(there), PipelineDescription.from_json(here), discard)


def refuse_changes(what: str, path: str, findings: Sequence[ChangeFinding], **fields: Any) -> None:
    """`CheckpointError` if any of the findings is a refusal."""
    refused = refusals(findings)
    if refused:
        differs = summed_up(refused)
        remedy = refused[0].remedy
        raise CheckpointError(
            f"{what} belongs to another pipeline: {differs}.", remedy=remedy, path=path, differs=differs, **fields
        )


def put_identity(store: Store, fingerprint: str, settings: Mapping[str, Any]) -> None:
    """Makes the checkpoint that of a new query."""
    write_identity(
        store, QueryIdentity(secrets.token_hex(16), fingerprint, FORMAT_VERSION, time.time(), dict(settings))
    )


def write_identity(store: Store, identity: QueryIdentity) -> None:
    """Makes durable whose checkpoint this is."""
    fields = asdict(identity)
    if not identity.anew:
        # So that releases which do not know it can read what they would have written themselves.
        del fields["anew"]
    store.put(IDENTITY, seal({"kind": "identity", "identity": fields}, {}))


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
    if isinstance(checkpoint, DividedStore):
        return DividedStore(attached(checkpoint.store, wait_seconds), checkpoint.sparks)
    return WaitingStore(checkpoint, f"{FOLDER}/{IDENTITY}", seconds=wait_seconds)


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
