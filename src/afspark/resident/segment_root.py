"""The folder that holds the segments of one Spark host, and what is done to all of them.

::

    <base>/<Spark host>/<query id>/<operator>-<worker>/

The host's name is part of the path because several Spark hosts can share one machine and its memory: a
worker that runs on the wrong one must not find the segment it looks for.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from afspark.errors import AfsparkError, SegmentBusy, SegmentError
from afspark.protocol.lifecycle import Absent, Present
from afspark.resident.folders import DEAD, NEW, discard, locked_folder
from afspark.resident.header import examine
from afspark.resident.segment import LOCK_SECONDS, Segment
from afspark.resident.survivor import Survivor
from afspark.store import identify, open_store
from afspark.store.checkpoint_place import is_forsaken
from afspark.store.naming import FOLDER

BASE_VARIABLE = "AFSPARK_SEGMENTS"
"""Environment variable that names the folder for segments."""

RETENTION_SECONDS = 7 * 86_400.0
"""How long a segment is kept whose checkpoint is gone."""

_SHARED_MEMORY = Path("/dev/shm")
_ABANDONED_SECONDS = 3_600.0
_IDLE_SECONDS = 86_400.0


class SegmentRoot:
    """The segments of the Spark host ``host`` below ``base``.

    Without ``base`` it is the folder named by the environment variable AFSPARK_SEGMENTS, else a folder of
    the user in /dev/shm, else one in the folder for temporary files. Build it in the process that uses it:
    the choice depends on the machine. Folders are made on demand, accessible to their owner only.
    """

    def __init__(self, base: str | Path | None, host: str) -> None:
        self.base = Path(base) if base else default_base()
        self.host = host

    def directory(self, query_id: str, operator: str, worker: int) -> Path:
        """Where the segment of a worker is or would be."""
        return self._query(query_id) / _folder_name(f"{operator}-{worker}")

    def survivors(self, query_id: str) -> list[Survivor]:
        """The segments of the query on this host, by operator and worker. Waits for nobody."""
        survivors = []
        for directory in _visible_folders(self._query(query_id)):
            found = examine(directory)
            if isinstance(found, Present) and found.identity.query_id == query_id:
                survivors.append(_survivor(found, self.host, directory))
        return sorted(survivors, key=lambda survivor: (survivor.operator, survivor.worker))

    def release(self, query_id: str, timeout_seconds: float = LOCK_SECONDS) -> int:
        """Removes all segments of the query on this host; returns how many there were.

        Raises `SegmentBusy` if a process still works on one of them after ``timeout_seconds``; those before
        it are gone then.
        """
        released = 0
        for directory in _visible_folders(self._query(query_id)):
            segment = Segment.open(directory)
            if segment is None:
                discard(directory)
                continue
            try:
                segment.destroy(timeout_seconds)
                released += 1
            finally:
                segment.close()
        self._tidy(self._query(query_id), time.time())
        return released

    def clean(self, *, retention_seconds: float = RETENTION_SECONDS, now: float | None = None) -> list[Path]:
        """Removes segments that nobody can want any more, of all hosts below the base; returns their folders.

        Those whose checkpoint was a folder of this machine and is gone: at every look for ``retention_seconds``, in
        which nobody used them either. A mount may be away for a while, and a query idle for as long as it likes, so
        whatever has its checkpoint is kept; and so is what belongs to a checkpoint elsewhere, which cannot be judged
        from here. Only where nobody has named the checkpoint, an hour after the end of the process that had made it is
        enough. A segment whose lock is held is never touched.
        """
        moment = time.time() if now is None else now
        removed = []
        for host in _visible_folders(self.base):
            for query in _visible_folders(host):
                for directory in _visible_folders(query):
                    if _remove_if_unwanted(directory, moment, retention_seconds):
                        removed.append(directory)
                self._tidy(query, moment)
        return removed

    def _query(self, query_id: str) -> Path:
        return self.base / _folder_name(self.host) / _folder_name(query_id)

    def _tidy(self, query: Path, now: float) -> None:
        """Removes what interrupted processes left in the query's folder, and the folder if it is empty."""
        if not query.is_dir():
            return
        with suppress(SegmentBusy), locked_folder(query, timeout_seconds=0.0):
            for path in list(query.iterdir()):
                if path.name.startswith(DEAD):
                    shutil.rmtree(path, ignore_errors=True)
                elif _is_abandoned(path, now):
                    discard(path)
            with suppress(OSError):
                query.rmdir()
                query.parent.rmdir()


def remove_states(base: str | Path | None, query_id: str) -> None:
    """Removes what a query that has ended has on this machine, on whatever hosts, unless somebody is using it."""
    root = Path(base) if base else default_base()
    for host in _visible_folders(root):
        with suppress(SegmentError, OSError):
            SegmentRoot(root, unquote(host.name)).release(query_id, timeout_seconds=0.0)


def default_base() -> Path:
    """The folder for segments where none was chosen."""
    named = os.environ.get(BASE_VARIABLE)
    if named:
        return Path(named)
    shared = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    # Others can write to these folders: a folder per user, and never one that somebody else put there.
    base = shared / f"afspark-{os.geteuid()}"
    if base.is_symlink() or (base.exists() and base.stat().st_uid != os.geteuid()):
        raise SegmentError(
            f"{base} belongs to another user.",
            remedy=f"Choose a folder with the environment variable {BASE_VARIABLE}.",
            path=str(base),
        )
    return base


def _folder_name(name: str) -> str:
    quoted = quote(name, safe="")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def _visible_folders(parent: Path) -> Iterator[Path]:
    try:
        children = sorted(parent.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    yield from (child for child in children if not child.name.startswith(".") and child.is_dir())


def _survivor(found: Present, host: str, directory: Path) -> Survivor:
    return Survivor(
        operator=found.identity.operator,
        worker=found.identity.worker,
        workers=found.identity.workers,
        fingerprint=found.identity.fingerprint,
        incarnation=found.incarnation,
        version=found.version,
        marked=found.marked,
        host=host,
        directory=str(directory),
        kept_from=found.kept_from,
        secondary=found.secondary,
    )


def _remove_if_unwanted(directory: Path, now: float, retention: float) -> bool:
    segment = Segment.open(directory)
    if segment is None:
        return False
    try:
        idle = now - segment.last_used
        if idle < _ABANDONED_SECONDS:
            return False
        if not _is_forsaken(segment):
            missed = segment.missed_since(now, gone=_is_gone(segment)) if idle >= _IDLE_SECONDS else None
            if missed is None or now - missed < retention:
                return False
        segment.destroy(timeout_seconds=0.0)
    except SegmentError:
        return False  # in use, or removed by another process meanwhile
    finally:
        segment.close()
    return True


def _is_gone(segment: Segment) -> bool:
    """Whether the checkpoint was a folder of this machine and holds this query no longer."""
    if not segment.meta.checkpoint_seen:
        return False
    try:
        found = identify(open_store(segment.identity.checkpoint).below(FOLDER))
    except AfsparkError:
        return False  # something is there, whatever it is
    return found is None or found.query_id != segment.identity.query_id


def _is_forsaken(segment: Segment) -> bool:
    """Whether the checkpoint is a temporary folder of this machine, and its driver was killed."""
    if not segment.meta.checkpoint_seen:
        return False
    try:
        store = open_store(segment.identity.checkpoint).below(FOLDER)
        found = identify(store)
        return found is not None and found.query_id == segment.identity.query_id and is_forsaken(store)
    except AfsparkError:
        return False


def _is_abandoned(path: Path, now: float) -> bool:
    # What cannot be read may be another release's.
    if not path.is_dir() or (not path.name.startswith(NEW) and not isinstance(examine(path), Absent)):
        return False
    try:
        return now - path.stat().st_mtime > _ABANDONED_SECONDS
    except FileNotFoundError:
        return False
