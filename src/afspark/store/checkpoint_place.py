"""Where a checkpoint is, as it says itself: so that a copy is told from one that was moved, and one that nobody has
named from those that are kept.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, replace
from typing import Any

from afspark.errors import AfsparkError, CorruptObject, ForeignObject, ObjectMissing
from afspark.store.address_schemes import with_keys_of, without_keys
from afspark.store.asking import Request
from afspark.store.base import Store
from afspark.store.drivers import Notice, read_notice
from afspark.store.epochs import epoch_claims
from afspark.store.filesystem import open_store
from afspark.store.format import seal, unseal
from afspark.store.identity import QueryIdentity, identify
from afspark.store.naming import FOLDER, IDENTITY, PLACE

_LOOK_SECONDS = 10.0


def settle_place(checkpoint: Store, address: str, identity: QueryIdentity, *, temporary: bool = False) -> QueryIdentity:
    """The identity under which a query runs on the checkpoint at ``address``, which remembers that address, and
    whether it is ``temporary``: nobody has named it.

    Workers' resident states are found by the query's number. A checkpoint that was moved keeps it, and finds them. A
    copy gets a number of its own as long as the checkpoint that it was copied from is there: otherwise both would work
    on the same states. Keys that an address may hold are not remembered: those of ``address`` are tried.
    """
    store = checkpoint.below(FOLDER)
    here = without_keys(address)
    found = _remembered(store)
    before = found.get("address", "")
    if before == here and bool(found.get("temporary")) == temporary:
        return identity
    if before not in ("", here) and _is_copy(store, before, address, identity.query_id):
        identity = replace(identity, query_id=secrets.token_hex(16))
        store.put(IDENTITY, seal({"kind": "identity", "identity": asdict(identity)}, {}))
    # Last: whoever was cut off before asks again.
    _remember(store, here, temporary=temporary)
    return identity


def is_forsaken(store: Store) -> bool:
    """Whether nobody goes on from the query in this store: nobody has named its checkpoint, and the process is gone
    that had made it.
    """
    if not _remembered(store).get("temporary"):
        return False
    newest = epoch_claims(store).newest()
    notice = Notice.from_bytes(read_notice(store, newest)) if newest is not None else None
    return notice is not None and notice.driver.lives() is False


def _is_copy(store: Store, before: str, address: str, query_id: str) -> bool:
    """Whether the query is at the address ``before`` too, and that is not this very place, which is at ``address``,
    under another name.
    """
    try:
        other = open_store(with_keys_of(address, before)).below(FOLDER)
        looking = Request(lambda: identify(other))
        # A client may ask for ever where nobody answers any more.
        found = looking.result() if looking.wait(_LOOK_SECONDS) else None
    except AfsparkError:
        return False  # what cannot be read is not known to be one
    if found is None or found.query_id != query_id:
        return False
    token = _remember(store, before)
    return _remembered(other).get("token") != token


def _remembered(store: Store) -> dict[str, Any]:
    """Where the checkpoint was when a query was started on it last; empty if nobody knows."""
    try:
        return dict(unseal(store.get(PLACE), PLACE).meta)
    except (ObjectMissing, CorruptObject, ForeignObject):
        return {}


def _remember(store: Store, address: str, *, temporary: bool = False) -> str:
    token = secrets.token_hex(8)
    store.put(PLACE, seal({"kind": "place", "address": address, "token": token, "temporary": temporary}, {}))
    return token
