"""A savepoint: a checkpoint in a place of its own, as it was at one barrier, from which queries can be started.

It is complete once its list of objects is, which is written last and has the checksum of every one of them. Whoever
dies before that leaves nothing that passes for a savepoint.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

from afspark.errors import CheckpointError, CorruptObject, ForeignObject, ObjectMissing, UsageError
from afspark.numbers import Batch
from afspark.store.address_schemes import joined
from afspark.store.base import Store, without_probes
from afspark.store.format import OTHER_RELEASE, seal, unseal
from afspark.store.naming import FOLDER, SAVEPOINT

LIST = f"{FOLDER}/{SAVEPOINT}"
FOLDER_OF_NAMED = "savepoints"
"""Where a checkpoint keeps savepoints that have a name and no address."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class SavedObject:
    """An object of a savepoint: one of another size or checksum is not that object."""

    name: str
    size: int
    checksum: str

    def is_whole(self, data: bytes) -> bool:
        return len(data) == self.size and checksum_of_all(data) == self.checksum


@dataclass(frozen=True, kw_only=True)
class Savepoint:
    """What a savepoint holds: the query ``query_id`` at the end of ``batch``. ``created``: seconds since 1970."""

    token: str
    query_id: str
    fingerprint: str
    settings: Mapping[str, Any]
    batch: Batch
    created: float
    objects: tuple[SavedObject, ...]

    @property
    def bytes(self) -> int:
        return sum(one.size for one in self.objects)


def place_of(checkpoint: str, name_or_path: str | os.PathLike[str]) -> str:
    """Where a savepoint goes: a bare name belongs to the checkpoint, other text and a `Path` are places of their own.

    >>> place_of("/data/checkpoint", "before-upgrade"), place_of("/data/checkpoint", "s3://b/one")
    ('/data/checkpoint/savepoints/before-upgrade', 's3://b/one')
    """
    remedy = "Give a name, a folder or the address of a store."
    if isinstance(name_or_path, os.PathLike):
        return os.fspath(name_or_path)
    if not isinstance(name_or_path, str):
        raise UsageError(f"{name_or_path!r} is no place for a savepoint.", remedy=remedy)
    if not name_or_path.strip():
        raise UsageError("The savepoint has no name.", remedy=remedy)
    if _NAME.fullmatch(name_or_path):
        return joined(checkpoint, f"{FOLDER_OF_NAMED}/{name_or_path}")
    return name_or_path


def checksum_of_all(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def begin_savepoint(place: Store) -> str:
    """Makes an empty place for a savepoint; the token of whoever makes it. What an earlier try left is removed.

    `UsageError` if there is a savepoint, or anything else.
    """
    present = without_probes(place.list(""))
    if present:
        begun = LIST in present and _read(place).get("complete") is not True
        if not begun:
            what = "has a savepoint already" if LIST in present else "is not empty"
            raise UsageError(f"{place.path} {what}.", remedy="Name another place.", path=place.path)
        # The list goes last: what remains of a savepoint that is being removed must not look foreign.
        place.delete([name for name in present if name != LIST])
    token = secrets.token_hex(16)
    place.put(LIST, _sealed({"token": token, "complete": False}))
    return token


def complete_savepoint(place: Store, savepoint: Savepoint) -> None:
    """The last thing that is written. `CheckpointError` if somebody else has begun one in the same place since."""
    if _read(place).get("token") != savepoint.token:
        raise CheckpointError(
            f"Somebody else makes a savepoint in {place.path} as well.", remedy="Name another place.", path=place.path
        )
    document = asdict(savepoint) | {"objects": [[one.name, one.size, one.checksum] for one in savepoint.objects]}
    place.put(LIST, _sealed({**document, "complete": True}))


def abandon_savepoint(place: Store, token: str) -> None:
    """Removes what its maker has left of a savepoint, unless somebody else makes or has made one in its place."""
    if _read(place).get("token") == token:
        # The list goes last: what remains of a savepoint must not look foreign.
        place.delete([*(name for name in place.list("") if name != LIST), LIST])


def read_savepoint(place: Store) -> Savepoint:
    """The savepoint in that place; `UsageError` if there is none, `CheckpointError` if it is not complete."""
    try:
        found = unseal(place.get(LIST), LIST).meta
    except ObjectMissing:
        raise UsageError(
            f"There is no savepoint in {place.path}.",
            remedy="query.savepoint and afspark savepoint say where they have put one.",
            path=place.path,
        ) from None
    except ForeignObject as error:
        raise CheckpointError(
            f"The savepoint in {place.path} is of another release.", remedy=OTHER_RELEASE, path=place.path
        ) from error
    except CorruptObject as error:
        raise _unusable(place, "the list of its objects is damaged") from error
    if found.get("complete") is not True:
        raise _unusable(place, "whoever began it did not come to its end")
    try:
        objects = tuple(SavedObject(*one) for one in found["objects"])
        fields = {name: found[name] for name in Savepoint.__dataclass_fields__}
        return Savepoint(**{**fields, "objects": objects})
    except (KeyError, TypeError) as error:
        raise _unusable(place, "the list of its objects is damaged") from error


def read_saved(place: Store, one: SavedObject) -> bytes:
    """An object of a savepoint; `CheckpointError` if it is gone or damaged."""
    try:
        data = place.get(one.name)
    except ObjectMissing as error:
        raise _unusable(place, f"{one.name} is gone") from error
    if not one.is_whole(data):
        raise _unusable(place, f"{one.name} is damaged")
    return data


def _unusable(place: Store, why: str) -> CheckpointError:
    return CheckpointError(
        f"The savepoint in {place.path} cannot be used: {why}.", remedy="Use another one.", path=place.path, why=why
    )


def _sealed(meta: Mapping[str, Any]) -> bytes:
    return seal({"kind": SAVEPOINT, **meta}, {})


def _read(place: Store) -> dict[str, Any]:
    """What the list says; nothing if it was torn."""
    try:
        return unseal(place.get(LIST), LIST).meta
    except (ObjectMissing, CorruptObject):
        return {}
