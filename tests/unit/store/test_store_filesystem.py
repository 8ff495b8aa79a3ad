"""Opening stores, durable writes, and places that cannot be written."""

from __future__ import annotations

import os
import pickle
import stat
import threading
import time
import traceback
from pathlib import Path

import pytest

from afspark.errors import StoreError, StoreFull, StoreNotWritable, UsageError
from afspark.store import Store, open_store
from afspark.store.address_schemes import redact
from afspark.store.base import Names
from afspark.store.local import LocalStore
from afspark.store.remote import ArrowStore


def _refused(store: Store, within: float = 12.0) -> StoreNotWritable:
    began = time.monotonic()
    with pytest.raises(StoreNotWritable) as caught:
        store.check_writable()
    assert time.monotonic() - began < within
    assert "\n" not in str(caught.value)
    assert caught.value.path == store.path
    assert caught.value.remedy
    return caught.value


def test_a_path_below_a_file_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    _refused(open_store(tmp_path / "file" / "store"), within=2)
    _refused(open_store(tmp_path / "file"), within=2)


def test_a_read_only_folder_is_not_writable(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        # Permissions do not bind root; the kernel's own folders do.
        _refused(open_store("/proc/afspark"), within=2)
        return
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    _refused(open_store(folder / "store"), within=2)


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("nosuch://host/path", "s3://"),
        ("http://host/path", "s3://"),
        ("s4://bucket/key", "Did you mean s3"),
        ("dbfs:/path", "/dbfs/"),
        ("DBFS:/path", "/dbfs/"),
        ("wasbs://container@account/path", "abfss://"),
    ],
)
def test_an_unknown_scheme_is_refused_by_name(uri: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(uri)
    assert caught.value.scheme in uri.lower()
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("s3a://bucket/key?region=eu-west-1", "s3://bucket/key?region=eu-west-1"),
        ("S3N://bucket/key", "s3://bucket/key"),
        ("gcs://bucket/key", "gs://bucket/key"),
        ("abfss://box@account.dfs.core.windows.net/key", "abfss://box@account.dfs.core.windows.net/key"),
        ("hdfs://name:8020/key", "hdfs://name:8020/key"),
    ],
)
def test_addresses_as_spark_writes_them_are_those_of_arrow(given: str, known: str) -> None:
    store = open_store(given)
    assert isinstance(store, ArrowStore) and store._uri == known


@pytest.mark.parametrize("path", ["a:b/c", "relative", "/data/s3:/x", "x:/y"])
def test_a_path_with_a_colon_is_a_path(path: str) -> None:
    assert isinstance(open_store(path), LocalStore)


def test_an_unreachable_bucket_is_not_writable_and_keeps_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    uri = "s3://user:secret@bucket/key?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:1"
    store = open_store(uri)
    error = _refused(store)
    assert "secret" not in str(error) + store.path + repr(store)
    assert pickle.loads(pickle.dumps(store))._uri == uri


def test_a_store_that_never_answers_is_not_writable() -> None:
    class Silent(LocalStore):
        def put(self, name: str, data: bytes) -> None:
            threading.Event().wait(5)

    began = time.monotonic()
    with pytest.raises(StoreNotWritable):
        Silent("/anywhere").check_writable(timeout_seconds=0.2)
    assert time.monotonic() - began < 2


def test_a_store_that_returns_something_else_is_not_writable(tmp_path: Path) -> None:
    class Wrong(LocalStore):
        def get(self, name: str) -> bytes:
            return super().get(name)[:-1]

    _refused(Wrong(str(tmp_path)), within=2)


def test_a_failed_put_names_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put("folder/object", b"x")
    with pytest.raises(StoreNotWritable) as caught:
        store.put("folder/object/below", b"x")
    assert caught.value.path == str(tmp_path)
    with pytest.raises(StoreNotWritable):
        store.put("folder", b"x")


def test_a_full_disk_is_called_that(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (tmp_path / "object").write_bytes(b"before")
    os.symlink("/dev/full", tmp_path / "object.replacing")
    with pytest.raises(StoreFull) as caught:
        store.put("object", b"x")
    assert (store.get("object"), store.list("")) == (b"before", ["object"]), "what was there stays"
    assert caught.value.path == store.path and caught.value.free > 0
    assert "ermission" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_stored_is_for_its_owner_only(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        open_store(tmp_path / "new" / "root").put("a/b/object", b"x")
    finally:
        os.umask(before)
    root = tmp_path / "new" / "root"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}
    assert modes == {"root": 0o700, "a": 0o700, "b": 0o700, "object": 0o600}


def test_an_unreadable_object_is_an_error_but_not_missing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    os.symlink("loop", tmp_path / "loop")
    with pytest.raises(StoreError) as caught:
        store.get("loop")
    assert type(caught.value) is StoreError


def test_put_syncs_file_and_new_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    root = tmp_path / "new" / "root"
    store = open_store(root)
    store.put("a/b/object", b"x")
    wanted = [tmp_path, tmp_path / "new", root, root / "a", root / "a/b", root / "a/b/object"]
    assert {str(path) for path in wanted} <= set(synced)
    assert str(tmp_path.parent) not in synced
    assert synced.index(str(root / "a/b/object")) < len(synced) - 1 - synced[::-1].index(str(root / "a/b"))
    synced.clear()
    store.put("a/b/second", b"x")
    assert synced == [str(root / "a/b/second"), str(root / "a/b")]


def test_put_survives_removal_of_its_folder(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")
    store.put("a/one", b"1")
    store.delete(["a/one"])
    (tmp_path / "root" / "a").rmdir()
    store.put("a/two", b"2")
    assert store.list("") == ["a/two"]


def test_a_root_that_was_moved_away_is_not_made_anew(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")
    store.put("a/one", b"1")
    (tmp_path / "root").rename(tmp_path / "away")
    with pytest.raises(StoreNotWritable):
        store.put("a/two", b"2")
    (tmp_path / "away").rename(tmp_path / "root")
    store.put("a/two", b"2")
    assert store.list("") == ["a/one", "a/two"]


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("relative/place").path == str(tmp_path / "relative/place")
    assert open_store(f"file://{tmp_path}/a%20b").path == f"{tmp_path}/a b"
    assert isinstance(open_store("gs://bucket/key"), ArrowStore)
    for bad in ("", "  ", "file://otherhost/path"):
        with pytest.raises(UsageError):
            open_store(bad)


def test_listing_passes_over_files_that_vanish(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put("a/one", b"x")
    (tmp_path / "empty").mkdir()
    names: Names = store.list("")
    assert names == ["a/one"]


@pytest.mark.parametrize("address", [f"s3://user:zyx/{'x' * 300}@bucket/key", f"s3://user:{'%zz' * 99}zyx@b/k"])
def test_an_address_that_cannot_be_read_keeps_its_secrets(address: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(address).get("name")
    assert "zyx" not in "".join(traceback.format_exception(caught.value))


def test_redact() -> None:
    assert redact("s3://k:s@bucket/p?secret_key=x") == "s3://bucket/p"
    assert redact("abfss://container@account/p") == "abfss://container@account/p"
    assert redact("abfss://account:key@container/p?enable_tls=false") == "abfss://container/p"
    assert redact("/plain/path") == "/plain/path"
    assert redact("s3://k:a/b+c@bucket/p") == "s3://bucket/p", "a key that should have been quoted"
    assert redact("s3://bucket/at=10:00/a@b") == "s3://bucket/at=10:00/a@b"
    assert redact("hdfs://host:8020/a@b") == "hdfs://host:8020/a@b"
