"""How often a store was asked for something: what an object store is paid by."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Mapping

KINDS = ("puts", "gets", "lists", "deletes")
"""A look whether an object is there counts as a get; objects that are deleted together count one by one."""

_counted: dict[str, Counter[str]] = {}
_lock = threading.Lock()


def _renew() -> None:
    """A forked child must neither inherit a lock that some thread of its parent held, nor tell what that has told."""
    global _lock  # noqa: PLW0603 (the lock of this process)
    _lock = threading.Lock()
    _counted.clear()


os.register_at_fork(after_in_child=_renew)


def count(store: str, kind: str, times: int = 1) -> None:
    """Notes requests of this process to the store of that token."""
    with _lock:
        _counted.setdefault(store, Counter())[kind] += times


def take(store: str) -> dict[str, int]:
    """The requests of this process since this was asked last, by kind."""
    with _lock:
        found = _counted.pop(store, Counter())
    return {kind: found[kind] for kind in KINDS}


def added(*counts: Mapping[str, int]) -> dict[str, int]:
    """The sum of several counts.

    >>> added({"puts": 1}, {"puts": 1, "gets": 3})
    {'puts': 2, 'gets': 3, 'lists': 0, 'deletes': 0}
    """
    return {kind: sum(one.get(kind, 0) for one in counts) for kind in KINDS}


def described(counts: Mapping[str, int]) -> str:
    """Counts for people.

    >>> described({"puts": 2, "gets": 1, "lists": 0, "deletes": 0})
    '2 puts, 1 get, 0 lists, 0 deletes'
    """
    return ", ".join(f"{counts.get(kind, 0):,} {kind if counts.get(kind, 0) != 1 else kind[:-1]}" for kind in KINDS)
