"""One worker's resident state: a folder that survives the processes working on it.

::

    <operator>-<worker>/
        meta.json       whose state this is; written last
        header          one page: incarnation, version, mark, which files there have to be; carries the lock
        columns/        one mapped file per column
        report-<t>.     what the worker reported for batch t
        out-<t>-<port>  what it keeps for others of batch t
        step-<t>-<k>    how far batch t had come after its step k
        spool-<t>-<k>-… the k-th backup of batch t, until the store has it
        ship-<t>-<s>    what changed since batch s up to t, until the secondary has it
        queue-<t>       the items of batch t, while a secondary sleeps
        note            what has to be remembered until the next batch ends
        missed          since when the checkpoint is gone

Reports and outputs are kept of every batch after the newest one whose commit record is durable (``covered``), because
those may have to be replayed, and at least of the last one.

A batch is applied in this order, under the lock; the states' journals make every kill between two steps
recoverable::

    with segment.lock(timeout_seconds=30):
        action = decide(segment.found(), wanted)                    # under the lock, or it may be out of date
        segment.raise_fence(wanted.fence)                           # unless the action is refused
        for state in states: state.acknowledge(); state.begin()     # version t-1, not marked
        segment.begin(t)                                            # marked: rollback() undoes from here
        ...                                                         # journalled updates
        segment.keep(t, port, data)
        segment.finish(t, report)                                   # version t, not marked

States begin *before* the mark is set: a mark promises that every journal belongs to the batch that was
begun. The other way round, a process killed in between would leave the journal of batch t-1 to be undone a
second time.

A batch of items that cannot be read again is applied in steps, each final once it is closed: after `close_step`
a rollback leads to the end of that step, and the next step begins like a batch.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from afspark.errors import SegmentError
from afspark.numbers import NO_STEP, Batch, Fence, Incarnation, Step
from afspark.protocol.lifecycle import NONE_APPLIED, RESTORING, Absent, Foreign, Identity, Present
from afspark.resident import header
from afspark.resident.file_lock import FileLock
from afspark.resident.folders import discard, locked_folder, own_files
from afspark.resident.kept_files import NOTE, is_kept, is_swept, kept_from, output_name, report_name, step_name
from afspark.resident.manifest import Manifest
from afspark.resident.mapped_columns import MappedColumns, is_column, no_space_as_error, require_space
from afspark.resident.new_folder import build_folder
from afspark.resident.open_folder import OpenFolder, is_torn
from afspark.resident.side_files import SideFiles
from afspark.resident.spool import SPOOL, next_spooled, spooled_in

LOCK_SECONDS = 10.0
"""How long creating and destroying wait for a process that still works on the segment."""

_MISSED = "missed"

T = TypeVar("T")


class Segment:
    """An opened segment. `lock` must be held around everything that changes it.

    A segment object belongs to the process that opened it; threads of that process may share it.
    """

    def __init__(self, directory: Path, meta: header.Meta) -> None:
        self.directory = directory
        self.meta = meta
        self._folder = OpenFolder(directory)
        file = self._folder.open(header.HEADER, os.O_RDWR)
        self._lock = FileLock(file, directory)
        self._inode = os.fstat(file).st_ino
        self._slots = header.map_header(file)
        columns = OpenFolder(directory / header.COLUMNS, self._folder)
        self.columns = MappedColumns(columns, Manifest(self._slots, header.COLUMN_FILES, columns, is_column))
        self._kept = Manifest(self._slots, header.KEPT_FILES, self._folder, is_kept)
        self._token = secrets.randbits(62) | 1
        self._attached: dict[str, Any] = {}

    @classmethod
    def create(
        cls,
        directory: Path,
        identity: Identity,
        incarnation: Incarnation,
        *,
        restoring: bool = False,
        secondary: bool = False,
        timeout_seconds: float = LOCK_SECONDS,
    ) -> Segment:
        """Puts a new, empty segment in place of whatever is in ``directory``.

        It stands at version -1; with ``restoring`` it counts as missing until `restored` is called. The
        folder appears as a whole or not at all. Raises `SegmentBusy` if another process works on the old
        segment for longer than ``timeout_seconds``, `SegmentError` if the old segment is of a newer
        incarnation of the same worker, `NoSpace` if the file system is full.
        """
        with own_files(directory), locked_folder(directory.parent, timeout_seconds):
            _clear_place(directory, identity, incarnation, timeout_seconds, secondary=secondary)
            with no_space_as_error(directory, header.HEADER_BYTES):
                version = RESTORING if restoring else NONE_APPLIED
                build_folder(directory, identity, incarnation, version, secondary=secondary)
            segment = cls.open(directory)
        if segment is None:
            raise SegmentError(f"{directory} vanished while it was created.", path=str(directory))
        return segment

    @classmethod
    def open(cls, directory: Path) -> Segment | None:
        """The segment in ``directory``; None if there is none that can be read (`examine` tells why)."""
        while not isinstance(files := header.read(directory), Absent | Foreign):
            meta, _ = files
            try:
                segment = cls(directory, meta)
            except FileNotFoundError:
                continue
            if segment._slots[header.SLOT_CREATION] == meta.creation:
                return segment
            segment.close()  # replaced between the reading and the mapping of its files
        return None

    @property
    def identity(self) -> Identity:
        """Whose state this is."""
        return self.meta.identity

    @property
    def incarnation(self) -> int:
        """How many times this worker had been recovered when the segment was created."""
        return int(self._slots[header.SLOT_INCARNATION])

    @property
    def version(self) -> Batch:
        """The last batch fully applied; -1 before the first one."""
        return header.unpack(int(self._slots[header.SLOT_WORD]))[0]

    @property
    def marked(self) -> bool:
        """True while batch version + 1 is being applied or undone, also if the process doing so has died."""
        return header.unpack(int(self._slots[header.SLOT_WORD]))[1]

    @property
    def step(self) -> Step:
        """How many steps of batch version + 1 are closed."""
        return header.unpack_step(int(self._slots[header.SLOT_WORD]))

    @property
    def last_used(self) -> float:
        """When the segment was last locked, in epoch seconds."""
        return float(self._slots[header.SLOT_USED])

    @property
    def held(self) -> bool:
        """True while this object holds the lock."""
        return self._lock.held

    def found(self) -> Present:
        """The segment as `lifecycle.decide` wants to see it."""
        return header.describe(self.meta, self._slots)

    def is_current(self) -> bool:
        """False once the folder was destroyed or replaced.

        The open file keeps its inode number from being given to another file, so the number is proof.
        """
        try:
            return os.stat(self.directory / header.HEADER).st_ino == self._inode
        except (FileNotFoundError, NotADirectoryError):
            return False

    @contextmanager
    def lock(self, timeout_seconds: float) -> Iterator[Segment]:
        """Keeps all other processes and threads from the segment. Not reentrant.

        The kernel frees the lock when its process dies. Raises `SegmentBusy` after ``timeout_seconds``, and
        `SegmentError` if the segment was destroyed or replaced meanwhile.
        """
        self._acquire(timeout_seconds)
        try:
            yield self
        except BaseException:
            self._attached.clear()
            raise
        finally:
            self._lock.release()

    def attach(self, key: str, make: Callable[[MappedColumns], T]) -> T:
        """What ``make`` built on the columns, kept from batch to batch.

        It is built again after another process has worked on the segment, and after an error under the
        lock, because its arrays and counters may then be out of date. Needs the lock.
        """
        self._require_lock()
        if key not in self._attached:
            self._attached[key] = make(self.columns)
        return cast(T, self._attached[key])

    def raise_fence(self, fence: Fence) -> None:
        """Shuts out all tasks with a lower fence from now on (see `lifecycle.Wanted`)."""
        self._require_lock()
        self._slots[header.SLOT_FENCE] = max(int(self._slots[header.SLOT_FENCE]), fence)

    def promote(self, incarnation: Incarnation) -> None:
        """Makes a secondary the primary, as the worker's next incarnation; a retried task finds that done."""
        self._require_lock()
        # In this order: a process killed in between leaves no second primary of the incarnation before.
        self._slots[header.SLOT_INCARNATION] = incarnation
        self._slots[header.SLOT_SECONDARY] = 0

    def restored(self, version: Batch, since: Batch = RESTORING) -> None:
        """Has the contents, which are new or those of ``since``, count as those of ``version``: none before is kept."""
        self._require(since, marked=False)
        self._slots[header.SLOT_KEPT] = version
        self._store(version, marked=False)

    def begin(self, batch: Batch, covered: Batch | None = None) -> None:
        """Sets the mark: from here on, and not before, a rollback of the states leads to version batch - 1.

        All states must have begun their transaction already. ``covered``: the newest batch with a durable record, if
        that is not the last one.
        """
        self._require(Batch(max(batch - 1, NONE_APPLIED)), marked=False)
        if self.step == 0:
            self._sweep(Batch(batch - 1), covered)
            self._unspool(batch)
        self._store(Batch(batch - 1), marked=True, step=self.step)

    def close_step(self, batch: Batch, note: bytes) -> None:
        """Makes what was changed since `begin` final, with one store; ``note`` tells how to go on from there."""
        self._require(Batch(batch - 1), marked=True)
        step = Step(self.step + 1)
        self._write(step_name(batch, step), note)
        self._store(Batch(batch - 1), marked=False, step=step)
        if step > 1:
            self._remove(step_name(batch, Step(step - 1)))

    def step_note(self, batch: Batch) -> bytes | None:
        """The note of the last closed step of ``batch``, or what `restored_at` has left for its first one."""
        return self._read(step_name(batch, self.step))

    def restored_at(self, batch: Batch, note: bytes | None, backups: int) -> None:
        """Numbers backups from ``backups`` on. While restoring, with a note: ``batch`` was under way, and the contents
        are those after some of its steps.
        """
        self._require_lock()
        self._slots[header.SLOT_BACKUPS] = backups
        if note is not None:
            self._write(step_name(batch, NO_STEP), note)

    @property
    def backups(self) -> int:
        """The number of the backup that was begun last."""
        return int(self._slots[header.SLOT_BACKUPS])

    def number_backup(self) -> int:
        """A number above those of all backups begun before, by whichever process."""
        self._require_lock()
        self._slots[header.SLOT_BACKUPS] += 1
        return int(self._slots[header.SLOT_BACKUPS])

    def keep(self, batch: Batch, port: str, data: bytes | memoryview) -> None:
        """Keeps something for other stages: of the batch being applied, or of the last one while it is restored."""
        if self.version == RESTORING:
            self._require_lock()
        else:
            self._require(Batch(batch - 1), marked=True)
        self._write(output_name(batch, port), data)

    def kept(self, batch: Batch, port: str) -> memoryview | None:
        """What the applied ``batch`` keeps for others, also while later ones are applied; None if nothing."""
        if not self._slots[header.SLOT_KEPT] <= batch <= self.version:
            raise self._unexpected(f"a version that keeps what batch {batch} has sent")
        return self._found(self._folder.mapped(output_name(batch, port)))

    def spool(self, batch: Batch, name: str, data: bytes | memoryview, spare: int = 0) -> None:
        """Keeps a backup of the batch being applied until the store has it under ``name``; `NoSpace` unless ``spare``
        bytes of room are left beside it.
        """
        self._require(Batch(batch - 1), marked=True)
        require_space(self.directory / SPOOL, len(data) + spare)
        self._write(next_spooled(spooled_in(self._folder), batch, name).file, data)

    def spooled(self) -> tuple[str, ...]:
        """The names of backups that the store may not have yet."""
        return tuple(one.name for one in spooled_in(self._folder))

    def _unspool(self, batch: Batch) -> None:
        """Removes backups of an attempt to apply ``batch`` that was taken back, and what killed processes had begun to
        write: files are written under the lock.
        """
        for one in spooled_in(self._folder):
            if one.batch >= batch:
                self._folder.remove(one.file)
        for name in self._folder.names():
            if is_torn(name):
                self._folder.remove(name)

    def note(self, text: str | None) -> None:
        """Remembers a text until it is replaced; None forgets it."""
        self._require_lock()
        if text is None:
            self._remove(NOTE)
        else:
            self._write(NOTE, text.encode())

    def noted(self) -> str | None:
        found = self._read(NOTE)
        return None if found is None else found.decode()

    def finish(self, batch: Batch, report: bytes | memoryview, covered: Batch | None = None) -> None:
        """Keeps the report, then makes ``batch`` the version with one store."""
        self._require(Batch(batch - 1), marked=True)
        self._write(report_name(batch), report)
        self._store(batch, marked=False)
        self._sweep(batch, covered)

    def advance(self, batch: Batch, covered: Batch, *, alone: bool = False) -> None:
        """Ends the transaction that has brought a secondary to the end of ``batch``, over whatever batches before.

        ``alone``: what it has reported of those is not there.
        """
        self._require(self.version, marked=True)
        if alone:
            self._slots[header.SLOT_KEPT] = batch
        self._store(batch, marked=False)
        self._sweep(batch, covered)

    @property
    def side_files(self) -> SideFiles:
        """Files that are about another replica of the state; to be used under the lock."""
        return SideFiles(self._folder.names, self._folder.size, self._read, self._write, self._remove)

    def clear_mark(self) -> None:
        """Ends the undoing of a batch: all states were rolled back to the version."""
        self._require(self.version, marked=True)
        self._store(self.version, marked=False, step=self.step)

    def step_back(self, batch: Batch) -> None:
        """Turns the applied ``batch`` into a half applied one, to be undone like one that was interrupted.

        Comes *before* the rollback of the states, `clear_mark` after it, so that a process killed in
        between leaves a segment that is known to need a rollback.
        """
        self._require(Batch(max(batch, 0)), marked=False)
        self._store(Batch(batch - 1), marked=True)

    def report(self, batch: Batch) -> bytes:
        """The report kept for the applied ``batch``, also while later ones are applied."""
        if not self._slots[header.SLOT_KEPT] < batch <= self.version:
            raise self._unexpected(f"a version that keeps the report of batch {batch}")
        data = self._read(report_name(batch))
        if data is None:
            raise SegmentError(f"{self.directory} has lost its report of batch {batch}.", path=str(self.directory))
        return data

    def missed_since(self, now: float, *, gone: bool) -> float | None:
        """Since when the checkpoint is ``gone`` at every look, without any use in between; None if it is not."""
        try:
            since = float((self._read(_MISSED) or b"nan").decode())
        except ValueError:
            since = math.nan
        if not gone:
            if not math.isnan(since):
                self._folder.remove(_MISSED)
            return None
        if not self.last_used <= since <= now:
            since = now
            self._write(_MISSED, repr(now).encode())
        return since

    def belong_to(self, checkpoint: str) -> None:
        """Remembers where the checkpoint is: it may have been moved since the segment was created."""
        if checkpoint != self.identity.checkpoint:
            self.meta = self.meta.moved(checkpoint)
            with own_files(self.directory):
                header.write_meta(self._folder, self.meta)

    def destroy(self, timeout_seconds: float = LOCK_SECONDS) -> None:
        """Removes the folder and closes the segment. Raises `SegmentBusy` like `lock`."""
        if self.held:
            discard(self.directory)
        else:
            with self.lock(timeout_seconds):
                discard(self.directory)
        self.close()

    def close(self) -> None:
        """Gives the segment back to the system, as the death of its process would; the folder stays."""
        self._attached.clear()
        self.columns.close()
        self._lock.close()
        self._folder.close()

    def _store(self, version: Batch, marked: bool, step: Step = NO_STEP) -> None:
        self._slots[header.SLOT_WORD] = header.pack(version, marked, step)

    def _require(self, version: Batch, marked: bool) -> None:
        self._require_lock()
        if (self.version, self.marked) != (version, marked):
            raise self._unexpected(f"version {version}{' with' if marked else ' without'} mark")

    def _require_lock(self) -> None:
        if not self.held:
            raise SegmentError(f"{self.directory} was used without its lock.", path=str(self.directory))

    def _gone(self) -> SegmentError:
        return SegmentError(f"{self.directory} was destroyed or replaced.", path=str(self.directory))

    def _unexpected(self, expected: str) -> SegmentError:
        return SegmentError(
            f"{self.directory} is at version {self.version}{' with' if self.marked else ' without'} mark,"
            f" expected {expected}.",
            path=str(self.directory),
            version=self.version,
            marked=self.marked,
        )

    def _acquire(self, timeout_seconds: float) -> None:
        self._lock.acquire(timeout_seconds)
        if not self.is_current():
            self._lock.release()
            raise self._gone()
        self._slots[header.SLOT_USED] = int(time.time())
        if self._slots[header.SLOT_OWNER] != self._token:
            self._slots[header.SLOT_OWNER] = self._token
            self._attached.clear()
            self.columns.refresh()

    def _write(self, name: str, data: bytes | memoryview) -> None:
        with own_files(self.directory), no_space_as_error(self.directory / name, len(data)), self._kept.making(name):
            self._folder.write(name, data)

    def _remove(self, name: str) -> None:
        with self._kept.removing(name):
            self._folder.remove(name)

    def _read(self, name: str) -> bytes | None:
        """A file's content; None if there is none, and nobody but tasks has removed any."""
        return self._found(self._folder.read(name))

    def _found(self, data: T | None) -> T | None:
        if data is None and not self.is_current():
            raise self._gone()
        if data is None:
            self._kept.names()
        return data

    def _sweep(self, last: Batch, covered: Batch | None) -> None:
        """Removes what nobody will ask for once ``last`` was applied."""
        oldest = kept_from(last, covered, self._slots[header.SLOT_KEPT])
        self._slots[header.SLOT_KEPT] = oldest
        for name in self._folder.names():
            if is_swept(name, last, oldest):
                self._remove(name)


def _clear_place(
    directory: Path, identity: Identity, incarnation: Incarnation, timeout_seconds: float, *, secondary: bool
) -> None:
    old = Segment.open(directory)
    if old is None:
        discard(directory)
        return
    try:
        same, found = old.identity == identity, old.found()
        # A secondary gives way to a primary, not the other way round.
        gives_way = found.secondary and not secondary
        if same and old.incarnation == incarnation and old.version != RESTORING and not gives_way:
            raise SegmentError(f"{directory} was put in place by another task.", path=str(directory))
        if same and old.incarnation > incarnation:
            raise SegmentError(
                f"{directory} is of incarnation {old.incarnation}, newer than {incarnation}.",
                path=str(directory),
                found=old.incarnation,
                wanted=incarnation,
            )
        old.destroy(timeout_seconds)
    finally:
        old.close()
