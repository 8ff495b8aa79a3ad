"""Backups under way: only a write that returned is durable."""

from __future__ import annotations

import pytest

from afspark.store import ObjectRef
from afspark.task.backup_writes import BackupWrites


class Ended(BaseException):
    """What no handler of errors expects."""


class Store:
    def __init__(self, failure: BaseException | None = None) -> None:
        self.failure, self.names = failure, list[str]()

    def put(self, name: str, data: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self.names.append(name)


def ref(name: str) -> ObjectRef:
    return ObjectRef.of(name, b"data", cells=1, full=False)


@pytest.mark.parametrize("failure", [OSError("full"), Ended()])
def test_a_write_that_did_not_return_is_told_and_not_counted(failure: BaseException) -> None:
    writes = BackupWrites(Store(failure))  # type: ignore[arg-type]
    writes.begin(ref("a"), b"data")
    with pytest.raises(type(failure)):
        writes.wait()
    assert writes.durable == () and writes.wait()


def test_backups_become_durable_in_order() -> None:
    store = Store()
    writes = BackupWrites(store)  # type: ignore[arg-type]
    for name in ("a", "b"):
        writes.begin(ref(name), b"data")
    assert writes.wait() and store.names == ["a", "b"]
    assert [one.name for one in writes.durable] == ["a", "b"]
