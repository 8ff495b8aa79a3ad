"""A checkpoint in two places: Spark's part of it in one that Spark can write, all else in the store."""

from __future__ import annotations

from collections.abc import Iterable

from afspark.errors import ObjectMissing, UsageError
from afspark.store.base import Names, Store
from afspark.store.naming import FOLDER
from afspark.store.spark_files import FOLDERS, METADATA, Files, PlannedBatches, is_sparks, own_files, spark_files


class DividedStore(Store):
    """``store`` has what is ours, ``sparks`` what is Spark's; a copy of that is among ours (`PlannedBatches`)."""

    def __init__(self, store: Store, sparks: Store) -> None:
        self.store, self.sparks = store, sparks

    @property
    def path(self) -> str:
        return self.store.path

    @property
    def makes_folders(self) -> bool:
        return self.store.makes_folders

    @property
    def may_hang(self) -> bool:
        return self.store.may_hang

    def taken_requests(self) -> dict[str, int]:
        return self.store.taken_requests()

    def standing(self, folder: str) -> Store:
        return DividedStore(self.store.standing(folder), self.sparks)

    def put(self, name: str, data: bytes) -> None:
        self._of(name).put(name, data)

    def put_new(self, name: str, data: bytes) -> bool | None:
        return self._of(name).put_new(name, data)

    def get(self, name: str) -> bytes:
        return self._of(name).get(name)

    def has(self, name: str) -> bool:
        return self._of(name).has(name)

    def list(self, prefix: str) -> Names:
        if prefix.strip("/"):
            return self._of(prefix).list(prefix)
        ours = [name for name in self.store.list("") if not is_sparks(name)]
        theirs = [name for folder in FOLDERS for name in self.sparks.list(folder)]
        return sorted([*ours, *theirs, *([METADATA] if self.sparks.has(METADATA) else [])])

    def delete(self, names: Iterable[str]) -> None:
        listed = [*names]
        self.sparks.delete([name for name in listed if is_sparks(name)])
        self.store.delete([name for name in listed if not is_sparks(name)])

    def _of(self, name: str) -> Store:
        return self.sparks if is_sparks(name) else self.store


class GivenFiles(Store):
    """Files in memory, to be read."""

    def __init__(self, files: Files, path: str) -> None:
        self._files, self._path = files, path

    @property
    def path(self) -> str:
        return self._path

    def put(self, name: str, data: bytes) -> None:
        raise UsageError(f"{self.path} is read only here.", name=name)

    def get(self, name: str) -> bytes:
        try:
            return self._files[name]
        except KeyError:
            raise ObjectMissing(f"No object {name} in {self.path}.", name=name) from None

    def list(self, prefix: str) -> Names:
        folder = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        return sorted(name for name in self._files if name.startswith(folder))

    def delete(self, names: Iterable[str]) -> None:
        raise UsageError(f"{self.path} is read only here.")


def whole_checkpoint(store: Store) -> Store:
    """A checkpoint for whoever looks into it: with Spark's part, wherever that is. One listing, four if Spark cannot
    write there itself.
    """
    planned = PlannedBatches(store.below(FOLDER)).read()
    if not planned:
        return store
    return DividedStore(store, GivenFiles(spark_files(own_files(store, {}), planned), store.path))
