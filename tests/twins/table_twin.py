"""Plain twin of the hash table kernels: a dict that numbers keys in order of first appearance."""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class Numbering:
    """Numbers for keys, as ``locate`` and ``find`` give them."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def locate(self, keys: Iterable[Hashable]) -> list[int]:
        return [self._numbers.setdefault(key, len(self._numbers)) for key in keys]

    def find(self, keys: Iterable[Hashable]) -> list[int | None]:
        return [self._numbers.get(key) for key in keys]

    def erase_from(self, entries: int) -> None:
        self._numbers = {key: number for key, number in self._numbers.items() if number < entries}

    @property
    def keys(self) -> list[Hashable]:
        return list(self._numbers)
