"""Savepoints that others ask of a driver at work: they put a request into its store, and it answers beside it.

A driver looks every few seconds, and must not list for that. So there is one more object while somebody waits, whose
name it knows: the driver deletes it before it lists, and whoever still waits puts it back.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from afspark.errors import AfsparkError, CorruptObject, ForeignObject, ObjectMissing, from_json
from afspark.store.base import Store
from afspark.store.format import seal, unseal
from afspark.store.naming import REQUESTS

_ANSWER = "-answer"
_SOMEBODY = "somebody-waits"


@dataclass(frozen=True)
class SavepointRequest:
    """A savepoint that somebody wants in ``place``."""

    token: str
    place: str


class SavepointRequests:
    """The requests in the store of one query."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, place: str) -> SavepointRequest:
        """Asks for a savepoint."""
        request = SavepointRequest(secrets.token_hex(8), place)
        self._store.put(f"{REQUESTS}/{request.token}", seal({"kind": "savepoint-request", "place": place}, {}))
        self._store.put(f"{REQUESTS}/{_SOMEBODY}", b"")
        return request

    def waiting(self) -> list[SavepointRequest]:
        """Those that nobody has answered; one listing if there may be some."""
        if not self._store.has(f"{REQUESTS}/{_SOMEBODY}"):
            return []
        self._store.delete([f"{REQUESTS}/{_SOMEBODY}"])
        names = {name.removeprefix(f"{REQUESTS}/") for name in self._store.list(REQUESTS)} - {_SOMEBODY}
        open_ones = sorted(name for name in names if not name.endswith(_ANSWER) and f"{name}{_ANSWER}" not in names)
        found = [(token, self._read(f"{REQUESTS}/{token}")) for token in open_ones]
        return [SavepointRequest(token, str(meta["place"])) for token, meta in found if meta]

    def answer(self, request: SavepointRequest, error: AfsparkError | None = None) -> None:
        """Says that the savepoint is made, or why not."""
        meta = {"kind": "savepoint-answer", "error": error.to_json() if error else None}
        self._store.put(f"{REQUESTS}/{request.token}{_ANSWER}", seal(meta, {}))

    def answered(self, request: SavepointRequest) -> bool:
        """Whether the driver has made the savepoint; raises what it could not be made for."""
        meta = self._read(f"{REQUESTS}/{request.token}{_ANSWER}")
        if meta is None:
            if not self._store.has(f"{REQUESTS}/{_SOMEBODY}"):
                # A driver that has begun to answer may have died since.
                self._store.put(f"{REQUESTS}/{_SOMEBODY}", b"")
            return False
        self.withdraw(request)
        if meta["error"] is not None:
            raise from_json(meta["error"])
        return True

    def withdraw(self, request: SavepointRequest) -> None:
        """Nobody waits for an answer any more."""
        mine = (request.token, f"{request.token}{_ANSWER}", _SOMEBODY)
        self._store.delete([f"{REQUESTS}/{name}" for name in mine])

    def _read(self, name: str) -> dict[str, Any] | None:
        """What an object says; None if it is not there, or not as a whole."""
        try:
            return unseal(self._store.get(name), name).meta
        except (ObjectMissing, CorruptObject, ForeignObject):
            return None
