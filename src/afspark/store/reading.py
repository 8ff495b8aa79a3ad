"""Reads many objects at once and tells damage from failure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from afspark.errors import CorruptObject, ForeignObject, ObjectMissing
from afspark.store.base import Store, one_line
from afspark.store.format import Sealed, unseal

_READERS = 8
#: Seconds of reading one after the other beyond which threads are worth their start.
_WORTH_THREADS = 0.005


@dataclass(frozen=True)
class Damage:
    """An object that should be there and sound. ``reason``: "missing", "corrupt", or "foreign"."""

    name: str
    reason: str
    detail: str


def read_sealed(store: Store, names: Sequence[str]) -> list[Sealed | Damage]:
    """The content of each object, or what is wrong with it, in the order of ``names``.

    Only what will be the same at every try counts as damage. A store that cannot be reached raises its
    `StoreError`: going back to an older state because of a short outage would lose data for nothing.
    """
    found: list[Sealed | Damage] = []
    for at, name in enumerate(names):
        began = time.perf_counter()
        found.append(_read(store, name))
        rest = names[at + 1 :]
        if len(rest) > 1 and (time.perf_counter() - began) * len(rest) > _WORTH_THREADS:
            with ThreadPoolExecutor(min(_READERS, len(rest))) as pool:
                return found + list(pool.map(lambda name: _read(store, name), rest))
    return found


def _read(store: Store, name: str) -> Sealed | Damage:
    try:
        return unseal(store.get(name), name)
    except ObjectMissing as error:
        return Damage(name, "missing", one_line(error))
    except CorruptObject as error:
        return Damage(name, "corrupt", one_line(error))
    except ForeignObject as error:
        return Damage(name, "foreign", one_line(error))
