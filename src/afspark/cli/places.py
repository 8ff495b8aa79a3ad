"""Where a run writes: checked before it starts, tidied when it ends."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from afspark.cli.failures import own_error
from afspark.coordinator.savepoint_copying import refuse_unless_empty
from afspark.errors import UsageError
from afspark.store import open_store
from afspark.store.address_schemes import scheme_of
from afspark.store.savepoint import read_savepoint


class RunFolders:
    """The folders of one run, used as a context; what is temporary goes at its end.

    Spark's log stays if something unexpected happened or an error has a field ``log``; the error then gets a
    note with its place.
    """

    def __init__(self, checkpoint: str | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="afspark-"))
        self.lasting = checkpoint is not None
        self.checkpoint = checkpoint or self.fresh("checkpoint")
        self.log = self._folder / "spark.log"
        #: for the scratch files of hosts that a run starts
        self.hosts = self._folder / "hosts"

    def fresh(self, name: str) -> str:
        """A temporary folder for another checkpoint."""
        return str(self._folder / name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        telling = isinstance(error, Exception) and (own_error(error) is None or hasattr(error, "log"))
        if telling and error is not None and self.log.exists() and self.log.stat().st_size:
            kept = Path(tempfile.gettempdir(), f"{self._folder.name}.log")
            shutil.copyfile(self.log, kept)
            error.add_note(f"Spark's log: {kept}")
        shutil.rmtree(self._folder, ignore_errors=True)


def check_checkpoint(address: str) -> None:
    """StoreNotWritable if backups cannot be written there."""
    open_store(address).check_writable()


def check_savepoint(address: str, checkpoint: str | None) -> None:
    """UsageError or CheckpointError unless a query can be started from there with that checkpoint."""
    if checkpoint is None:
        raise UsageError("--savepoint needs a checkpoint to fill.", remedy="Name a new folder: --checkpoint DIR.")
    refuse_unless_empty(open_store(checkpoint), read_savepoint(open_store(address)))


def check_output(address: str) -> None:
    """UsageError unless results can be written there and nothing but earlier results would be replaced."""
    if scheme_of(address):
        open_store(address).check_writable()
        return
    folder = Path(address).absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"Output {address!r} is a file.", remedy="Name a folder.", path=address)
    foreign = [path.name for path in folder.iterdir() if not _is_result(path)] if folder.exists() else []
    if foreign:
        raise UsageError(
            f"Output folder {address!r} holds {foreign[0]!r}, which is no earlier result.",
            remedy="Name a new or empty folder.",
            path=address,
        )
    _check_folder(folder if folder.exists() else folder.parent, f"Output {address!r}")


def check_file(address: str, option: str) -> None:
    """UsageError unless a file can be written there."""
    path = Path(address).absolute()
    if path.is_dir():
        raise UsageError(f"{option} {address!r} is a folder.", remedy="Name a file.", path=address)
    if path.exists() and not os.access(path, os.W_OK):
        raise UsageError(f"{option} {address!r} cannot be written.", remedy="Check its permissions.", path=address)
    if path.is_file() or not path.exists():
        _check_folder(path.parent, f"{option} {address!r}")


def make_folder(address: str, option: str) -> Path:
    """The folder, made if need be; UsageError if it cannot be made or written."""
    folder = Path(address).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{option} {address!r} cannot be made: {error.strerror}.", remedy="Name another folder.", path=address
        ) from error
    _check_folder(folder, f"{option} {address!r}")
    return folder


def _is_result(path: Path) -> bool:
    return path.name.startswith(("_", ".")) or path.name.endswith(".parquet")


def _check_folder(folder: Path, what: str) -> None:
    """Folders above that do not exist yet can be made if the first that does may be written."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"{what} cannot be written: {folder} says {error.strerror}.",
            remedy="Name another place or fix the permissions.",
            path=str(folder),
        ) from error
