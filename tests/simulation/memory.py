"""A worker's resident state on the heap (see `segment.Segment`, which does the same with files)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from afspark.errors import SegmentError
from afspark.model.states import HeapColumns
from afspark.protocol.lifecycle import RESTORING, Absent, Found, Identity, Present
from afspark.resident import Survivor
from afspark.resident.kept_files import is_swept, kept_from
from afspark.resident.side_files import SideFiles, queued_in
from afspark.resident.spool import Spooled, next_spooled
from afspark.store import Store
from tests.simulation.world import world

Place = tuple[str, str, int]


class RiskyColumns(HeapColumns):
    """Columns whose owner may die whenever one comes, grows or goes. ``require``: whether there still is a folder."""

    def __init__(self, require: Callable[[], None]) -> None:
        super().__init__()
        self._require = require

    def open(self, name: str, dtype: np.dtype[Any], length: int) -> np.ndarray[Any, Any]:
        if name not in self._arrays:
            self._require()
        return super().open(name, dtype, length)

    def grow(self, name: str, length: int) -> np.ndarray[Any, Any]:
        if name in self._arrays and length > len(self._arrays[name]):
            world().point(f"growing {name}")
            self._require()
        return super().grow(name, length)

    def drop(self, name: str) -> None:
        if name in self._arrays:
            world().point(f"dropping {name}")
        super().drop(name)

    @property
    def memory(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    def copy_to(self, twin: RiskyColumns) -> None:
        """Copies all columns, as another process would find them."""
        twin._arrays = {name: array.copy() for name, array in self._arrays.items()}


class MemorySegment:
    """Implements `StateStorage`. Every change of its header is a step at which its process may die.

    Header and columns are mapped, so that a process which has them goes on with them when the folder is removed; its
    files are found through the open folder, in which nothing can be made or grow any more by then.
    """

    def __init__(self, place: Place, identity: Identity, incarnation: int, *, secondary: bool = False) -> None:
        self.place, self.identity, self.incarnation, self.secondary = place, identity, incarnation, secondary
        self.version, self.marked, self.fence = RESTORING, False, 0
        self.step = self.backups = 0
        self.kept_from = RESTORING
        self.columns = RiskyColumns(self._require_folder)
        self.locked = False
        self._files: dict[str, bytes] = {}
        self._attached: dict[str, Any] = {}

    def left_behind(self) -> MemorySegment:
        """What a new process finds when the one at work has died."""
        twin = MemorySegment(self.place, self.identity, self.incarnation, secondary=self.secondary)
        twin.version, twin.marked, twin.fence = self.version, self.marked, self.fence
        twin.step, twin.backups, twin.kept_from = self.step, self.backups, self.kept_from
        self.columns.copy_to(twin.columns)
        twin._files = dict(self._files)
        return twin

    @property
    def files(self) -> dict[str, bytes]:
        """What is in the folder now."""
        self._require_folder()
        return self._files

    def _require_folder(self) -> None:
        if world().memory.get(self.place) is not self:
            raise SegmentError(f"{self.place} has been removed")

    def found(self) -> Present:
        return Present(
            self.identity, self.incarnation, self.version, self.marked, self.fence, self.kept_from, self.secondary
        )

    @contextmanager
    def lock(self, timeout_seconds: float) -> Iterator[MemorySegment]:
        if self.locked:
            world().wake(self.place[0])
        if self.locked:
            raise SegmentError(f"{self.place} is busy")
        self.locked = True
        try:
            yield self
        except BaseException:
            self._attached.clear()
            raise
        finally:
            self.locked = False

    def attach(self, key: str, make: Callable[[Any], Any]) -> Any:
        if key not in self._attached:
            self._attached[key] = make(self.columns)
        return self._attached[key]

    def raise_fence(self, fence: int) -> None:
        self.fence = max(self.fence, fence)

    def promote(self, incarnation: int) -> None:
        if self.secondary:
            world().was_promoted(self.place, incarnation, len(queued_in(self.side_files)))
        self.incarnation = incarnation
        world().point("promoted by half")
        self.secondary = False

    def restored(self, version: int, since: int = RESTORING) -> None:
        self._require(since, marked=False)
        self.kept_from = version
        self._store(version, False, "restored")

    def begin(self, batch: int, covered: int | None = None) -> None:
        self._require(batch - 1, marked=False)
        if self.step == 0:
            self._sweep(batch - 1, covered)
            for one in self._spooled():
                if one.batch >= batch:
                    del self.files[one.file]
        self._store(batch - 1, True, "begin")

    def close_step(self, batch: int, note: bytes) -> None:
        self._require(batch - 1, marked=True)
        self._write(f"step-{batch}-{self.step + 1}", note)
        world().point("before close_step")
        self.step, self.marked = self.step + 1, False
        world().point("after close_step")

    def step_note(self, batch: int) -> bytes | None:
        return self.files.get(f"step-{batch}-{self.step}")

    def restored_at(self, batch: int, note: bytes | None, backups: int) -> None:
        self.backups = backups
        if note is not None:
            self._write(f"step-{batch}-0", note)

    def number_backup(self) -> int:
        self.backups += 1
        return self.backups

    def keep(self, batch: int, port: str, data: bytes | memoryview) -> None:
        if self.version != RESTORING:
            self._require(batch - 1, marked=True)
        self._write(f"out-{batch}-{port}", bytes(data))

    def kept(self, batch: int, port: str) -> bytes | None:
        if not self.kept_from <= batch <= self.version:
            raise SegmentError(f"at version {self.version}, which keeps nothing of batch {batch}")
        return self.files.get(f"out-{batch}-{port}")

    def spool(self, batch: int, name: str, data: bytes, spare: int = 0) -> None:
        self._require(batch - 1, marked=True)
        self._write(next_spooled(self._spooled(), batch, name).file, data)

    def spooled(self) -> tuple[str, ...]:
        return tuple(one.name for one in self._spooled())

    def upload(self, store: Store, count: int) -> None:
        """Writes the oldest of what waits to the store."""
        for one in self._spooled()[:count]:
            store.put(one.name, self.files[one.file])
            world().point("before a spooled backup goes")
            self.files.pop(one.file, None)

    def _spooled(self) -> list[Spooled]:
        return sorted(found for file in self.files if (found := Spooled.parse(file)))

    def note(self, text: str | None) -> None:
        if text is None:
            self.files.pop("note", None)
        else:
            self._write("note", text.encode())

    def noted(self) -> str | None:
        found = self.files.get("note")
        return None if found is None else found.decode()

    def finish(self, batch: int, report: bytes, covered: int | None = None) -> None:
        self._require(batch - 1, marked=True)
        self._write(f"report-{batch}.", report)
        self._store(batch, False, "finish")
        self._sweep(batch, covered)

    def advance(self, batch: int, covered: int, *, alone: bool = False) -> None:
        self._require(self.version, marked=True)
        if alone:
            self.kept_from = batch
        self._store(batch, False, "advance")
        self._sweep(batch, covered)

    @property
    def side_files(self) -> SideFiles:
        return SideFiles(
            lambda: list(self.files),
            lambda name: len(self.files.get(name, b"")),
            self.files.get,
            self._write,
            lambda name: self.files.pop(name, None),
        )

    def clear_mark(self) -> None:
        self._require(self.version, marked=True)
        self._store(self.version, False, "clear_mark")

    def step_back(self, batch: int) -> None:
        self._require(batch, marked=False)
        self._store(batch - 1, True, "step_back")

    def report(self, batch: int) -> bytes:
        if not self.kept_from < batch <= self.version:
            raise SegmentError(f"at version {self.version}, which has no report of batch {batch}")
        return self.files[f"report-{batch}."]

    def _store(self, version: int, marked: bool, what: str) -> None:
        world().point(f"before {what}")
        self.step = self.step if version == self.version else 0
        self.version, self.marked = version, marked
        world().point(f"after {what}")

    def _write(self, name: str, data: bytes) -> None:
        world().point(f"before writing {name}")
        self.files[name] = bytes(data)

    def _require(self, version: int, *, marked: bool) -> None:
        if (self.version, self.marked) != (version, marked):
            raise SegmentError(f"at version {self.version}, mark {self.marked}; expected {version}, {marked}")

    def _sweep(self, last: int, covered: int | None) -> None:
        self.kept_from = kept_from(last, covered, self.kept_from)
        files = self.files
        for name in [name for name in files if is_swept(name, last, self.kept_from)]:
            del files[name]


def is_newer(old: MemorySegment, identity: Identity, incarnation: int) -> bool:
    """Whether what is in a place must not be replaced by an incarnation."""
    return old.identity == identity and old.incarnation > incarnation


class MemoryAddress:
    """Implements `StateAddress` in the world's memory."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def examine(self) -> Found:
        found = world().memory.get(self.place)
        return Absent() if found is None else found.found()

    @contextmanager
    def create(self, identity: Identity, incarnation: int, *, secondary: bool = False) -> Iterator[MemorySegment]:
        here = world()
        here.recovering = incarnation > 0
        # From here on the folder is locked: nobody else puts anything in its place.
        here.point("before creation")
        old = here.memory.get(self.place)
        same = old is not None and old.identity == identity and old.incarnation == incarnation
        if same and old.version != RESTORING and not (old.secondary and not secondary):
            raise SegmentError(f"{self.place} was put in place by another task")
        if old is not None and is_newer(old, identity, incarnation):
            raise SegmentError(f"{self.place} is of incarnation {old.incarnation}, newer than {incarnation}")
        if old is not None and old.locked:
            here.wake(self.place[0])
        if old is not None and old.locked:
            raise SegmentError(f"{self.place} is busy")
        made = here.memory[self.place] = MemorySegment(self.place, identity, incarnation, secondary=secondary)
        here.point("after creation")
        yield made
        here.recovering = False
        # A segment is closed after its creation: what was built on its columns is built again.
        made._attached.clear()

    def open(self) -> MemorySegment | None:
        found: MemorySegment | None = world().memory.get(self.place)
        return found


def survivors_on(at: str) -> list[Survivor]:
    """What is left on a host."""
    return [
        Survivor(
            operator=operator,
            worker=worker,
            workers=segment.identity.workers,
            fingerprint=segment.identity.fingerprint,
            incarnation=segment.incarnation,
            version=segment.version,
            marked=segment.marked,
            host=host,
            directory="",
            kept_from=segment.kept_from,
            secondary=segment.secondary,
        )
        for (host, operator, worker), segment in sorted(world().memory.items())
        if host == at
    ]
