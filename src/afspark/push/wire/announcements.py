"""Where receivers listen, as they announce it in the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from afspark.errors import StoreError
from afspark.store import unseal

ADDRESSES = "addresses"


@dataclass(frozen=True)
class Announced:
    """Where a receiver listens, for which lanes, and after how many failures."""

    number: int
    address: str
    lanes: tuple[int, ...]
    failures: int
    #: how many items each of its lanes can have lost by them
    lost: float
    #: names the driver's start that it belongs to
    opened_by: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "lanes": list(self.lanes)}


def announced(store: Any) -> Iterator[Announced]:
    """The newest announcement of every receiver."""
    newest: dict[str, Announced] = {}
    for name in store.list(ADDRESSES):
        try:
            found = unseal(store.get(name), name).meta["announced"]
        except StoreError:
            continue  # withdrawn meanwhile, or half written by one that died
        # Those of earlier versions say when they were made instead.
        found.pop("at", None)
        newest[name.split("/")[1]] = Announced(**{**found, "lanes": tuple(found["lanes"])})
    yield from newest.values()
