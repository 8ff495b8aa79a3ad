"""Which objects of an item log are still needed: those that hold an entry which no worker has confirmed yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from afspark.push.receiver.lane_entries import LaneEntry


class LogObjects:
    """Counts the unreleased entries of every object; one without any is garbage."""

    def __init__(self) -> None:
        self._live: dict[str, int] = {}
        self._holders: dict[str, list[str]] = {}
        self._garbage: list[str] = []

    def hold(self, names: Mapping[LaneEntry, str]) -> list[str]:
        """Entries were written, each to the object of that name: the producers, once for each object of theirs."""
        holders: dict[str, dict[str, None]] = {}
        for entry, name in names.items():
            self._live[name] = self._live.get(name, 0) + (not entry.released)
            holders.setdefault(name, {})[entry.producer] = None
        for name, producers in holders.items():
            self._holders[name] = list(producers)
            if not self._live[name]:
                del self._live[name]
                self._garbage.append(name)
        return [producer for producers in holders.values() for producer in producers]

    def release(self, name: str) -> None:
        """One of the object's entries was released."""
        self._live[name] -= 1
        if not self._live[name]:
            del self._live[name]
            self._garbage.append(name)

    def drop(self, names: Iterable[str]) -> None:
        """Objects that need not be kept unless they hold something else."""
        self._garbage += [name for name in names if name not in self._live]

    def take_garbage(self) -> list[str]:
        garbage, self._garbage = self._garbage, []
        return garbage

    def deleted(self, names: Iterable[str]) -> list[str]:
        """The producers, once for each object of theirs that is gone."""
        return [producer for name in names for producer in self._holders.pop(name, ())]
