"""A log store in memory."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from afspark.errors import ObjectMissing

Names = list[str]


class DictStore:
    """Objects in a dict; with ``die_after`` the next put writes that many bytes and dies."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.puts: Names = []
        self.die_after: int | None = None

    def put(self, name: str, data: bytes) -> None:
        if self.die_after is not None:
            self.objects[name] = data[: self.die_after]
            self.die_after = None
            raise KeyboardInterrupt
        self.puts.append(name)
        self.objects[name] = data

    def get(self, name: str) -> bytes:
        if name not in self.objects:
            raise ObjectMissing(f"No object {name}.", name=name)
        return self.objects[name]

    def list(self, prefix: str) -> Names:
        return sorted(name for name in self.objects if name.startswith(prefix + "/"))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.objects.pop(name, None)


@pytest.fixture
def log() -> DictStore:
    return DictStore()
