"""Every store keeps the same contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from afspark.store import Store, Throttle, open_store
from afspark.store.remote import ArrowStore
from afspark.store.store_conformance import CHECKS, Check, survives_pickling


def _local(folder: Path) -> Store:
    return open_store(folder / "not yet" / "there")


def _throttled(folder: Path) -> Store:
    return open_store(folder, Throttle(latency_seconds=0.0005, bytes_per_second=1e9))


def _file_uri(folder: Path) -> Store:
    return open_store(f"file://{folder}/uri")


def _subtree(folder: Path) -> Store:
    return ArrowStore.over(pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem()), "")


def _arrow_folder(folder: Path) -> Store:
    return ArrowStore.over(pafs.LocalFileSystem(), f"{folder}/some/root/")


def _mock(folder: Path) -> Store:
    return ArrowStore.over(pafs._MockFileSystem(), "bucket/prefix")


def _below(folder: Path) -> Store:
    return open_store(folder).below("query/one")


STORES = [_local, _throttled, _file_uri, _subtree, _arrow_folder, _mock, _below]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("make", STORES, ids=lambda make: make.__name__.strip("_"))
def test_contract(make: Callable[[Path], Store], check: Check, tmp_path: Path) -> None:
    if make is _mock and check is survives_pickling:
        pytest.skip("an in-memory filesystem lives in one process")
    check(make(tmp_path))


class _Forgetful(type(open_store("/"))):  # type: ignore[misc]
    """A store that breaks one promise."""

    def list(self, prefix: str) -> list[str]:
        return super().list(prefix)[:-1]


def test_suite_finds_a_broken_store(tmp_path: Path) -> None:
    broken = 0
    for number, check in enumerate(CHECKS):
        try:
            check(_Forgetful(str(tmp_path / str(number))))
        except AssertionError:
            broken += 1
    assert broken >= 4
