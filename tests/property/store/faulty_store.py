"""Failures as data: a store in memory, and one that tears, drops or corrupts chosen writes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from afspark.errors import ObjectMissing, StoreNotWritable
from afspark.store.base import Names, Store, check_name, check_prefix


class MemoryStore(Store):
    """Objects in a dictionary."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    @property
    def path(self) -> str:
        return "memory"

    def put(self, name: str, data: bytes) -> None:
        self.objects[check_name(name)] = bytes(data)

    def get(self, name: str) -> bytes:
        try:
            return self.objects[check_name(name)]
        except KeyError:
            raise ObjectMissing(f"No object {name}.", name=name) from None

    def list(self, prefix: str) -> Names:
        folder = check_prefix(prefix)
        return sorted(name for name in self.objects if not folder or name.startswith(folder + "/"))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.objects.pop(check_name(name), None)


class Crash(StoreNotWritable):
    """The writer died during a put."""


@dataclass(frozen=True)
class Tear:
    """A put stores the first ``share`` (0 to 1) of its bytes, then the writer dies."""

    share: float


@dataclass(frozen=True)
class Drop:
    """A put stores nothing; the writer dies, or, if ``silently``, believes it was stored."""

    silently: bool = False


@dataclass(frozen=True)
class Corrupt:
    """A put stores its bytes with one to three of them changed, and the writer does not notice."""

    seed: int


Fault = Tear | Drop | Corrupt


def corrupted(data: bytes, seed: int) -> bytes:
    """The data with one to three bytes changed, chosen by the seed."""
    chooser = random.Random(seed)
    changed = bytearray(data)
    for place in chooser.sample(range(len(data)), min(len(data), chooser.randint(1, 3))):
        changed[place] ^= chooser.randint(1, 255)
    return bytes(changed)


class FaultyStore(Store):
    """Passes everything on, except for the puts named in ``plan`` by their number from 0."""

    def __init__(self, inner: Store, plan: dict[int, Fault] | None = None) -> None:
        self.inner = inner
        self.plan = dict(plan or {})
        self.puts = 0

    @property
    def path(self) -> str:
        return self.inner.path

    def fail_next(self, fault: Fault) -> None:
        """The next put meets ``fault``."""
        self.plan[self.puts] = fault

    def put(self, name: str, data: bytes) -> None:
        fault = self.plan.pop(self.puts, None)
        self.puts += 1
        if isinstance(fault, Tear):
            self.inner.put(name, data[: int(fault.share * len(data))])
            raise Crash("torn", path=self.path)
        if isinstance(fault, Drop):
            if not fault.silently:
                raise Crash("dropped", path=self.path)
            return
        self.inner.put(name, corrupted(data, fault.seed) if isinstance(fault, Corrupt) else data)

    def get(self, name: str) -> bytes:
        return self.inner.get(name)

    def list(self, prefix: str) -> Names:
        return self.inner.list(prefix)

    def delete(self, names: Iterable[str]) -> None:
        self.inner.delete(names)
