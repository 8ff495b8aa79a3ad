"""Opens the backup store a user named."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from afspark.errors import UsageError
from afspark.store.address_schemes import for_arrow, redact, scheme_of
from afspark.store.base import Store
from afspark.store.local import LocalStore
from afspark.store.remote import REMOTE_REMEDY, ArrowStore
from afspark.store.s3_store import S3Store
from afspark.store.throttle import Throttle, ThrottledStore

__all__ = ["Store", "open_store"]


def open_store(uri: str | Path, throttle: Throttle | None = None) -> Store:
    """The store at a local path or at a URI of one of :data:`~afspark.store.address_schemes.SCHEMES`.

    Connects nowhere: `Store.check_writable` tells whether the place can be used. A relative path is taken
    from the present working folder, so the store may be sent to other processes.

    >>> open_store("/data/checkpoint")
    LocalStore('/data/checkpoint')
    """
    address = str(uri)
    if not address.strip():
        raise UsageError("The address of the backup store is empty.", remedy="Give a path or a URI.", uri=address)
    known = for_arrow(address)
    store: Store
    match scheme_of(known):
        case "":
            store = LocalStore(known)
        case "file":
            store = LocalStore(_local_path(known))
        case "s3":
            store = S3Store(known)
        case _:
            store = ArrowStore(known)
    return store if throttle is None else ThrottledStore(store, throttle)


def _local_path(uri: str) -> str:
    try:
        return str(pafs.FileSystem.from_uri(uri)[1])
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{redact(uri)} names no local folder: {error}.", remedy=REMOTE_REMEDY, uri=uri) from error
