"""A store on the heap, where writers die before, during and after a write, and objects decay."""

from __future__ import annotations

from collections.abc import Iterable

from afspark.errors import ObjectMissing
from afspark.store.base import Names, Store, check_name, check_prefix, not_writable
from afspark.store.identity import IDENTITY
from tests.simulation.world import World

_REFUSED = 0.25


class WrittenAtOnce:
    """Implements `BackgroundWrite`: it has ended when it was begun."""

    def __init__(self, store: Store, name: str, data: bytes) -> None:
        self.failure: BaseException | None = None
        try:
            store.put(name, data)
        except BaseException as error:  # noqa: BLE001 (raised by whoever waits for it)
            self.failure = error

    def wait(self, seconds: float | None = None) -> bool:
        return True


class MemoryStore(Store):
    """Objects by name; ``around`` is the world whose failures happen at writes, if any."""

    def __init__(self, around: World | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.around = around

    @property
    def path(self) -> str:
        return "memory:"

    @property
    def may_hang(self) -> bool:
        return False

    def put(self, name: str, data: bytes) -> None:
        check_name(name)
        if self.around is not None:
            self._risk(self.around, name, data)
        self.objects[name] = bytes(data)
        if self.around is not None:
            self.around.point(f"after put {name}")

    def _risk(self, around: World, name: str, data: bytes) -> None:
        if around.dying:
            raise not_writable(self.path, "nobody is there to write")
        if not around.counted_failures(where=f"put {name}"):
            return
        torn = around.rng.random()
        if torn < 0.5 and not name.endswith(f"/{IDENTITY}"):
            # An object cut short: no record will name it, or the name is never read. Stores replace an object as a
            # whole, and the identity is replaced where a query is started with another tolerance.
            self.objects[name] = data[: int(len(data) * around.rng.random())]
        if around.rng.random() < _REFUSED:
            around.say(f"put {name} is refused")
            raise not_writable(self.path, "out of order")
        around.fail(f"put {name}")

    def get(self, name: str) -> bytes:
        check_name(name)
        if name not in self.objects:
            raise ObjectMissing(f"No object {name}.", name=name)
        return self.objects[name]

    def list(self, prefix: str) -> Names:
        prefix = check_prefix(prefix)
        return sorted(name for name in self.objects if not prefix or name.startswith(f"{prefix}/"))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.objects.pop(check_name(name), None)
