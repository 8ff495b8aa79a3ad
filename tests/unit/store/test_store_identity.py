"""Whose checkpoint it is."""

from __future__ import annotations

import struct
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path

import pytest

from afspark.errors import CheckpointError
from afspark.store import FORMAT_VERSION, Store, claim, open_store, seal


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


def test_the_first_claim_makes_the_identity(store: Store) -> None:
    made = claim(store, "abc", {"workers": 4})
    assert (made.fingerprint, made.format_version, made.settings) == ("abc", FORMAT_VERSION, {"workers": 4})
    assert claim(store, "abc", {"workers": 8}) == made
    assert claim(store.below("elsewhere"), "abc", {}).query_id != made.query_id


def test_another_pipeline_is_refused(store: Store) -> None:
    claim(store, "abc", {"operators": {"counts": {"keyed": False}}})
    before = store.get("identity")
    with pytest.raises(CheckpointError) as caught:
        claim(store, "xyz", {"operators": {"counts": {"keyed": True}}})
    assert (caught.value.expected, caught.value.found) == ("xyz", "abc")
    assert caught.value.differs.startswith("'counts' has keyed true instead of false") and caught.value.remedy
    assert store.get("identity") == before


def test_what_may_change_is_for_the_driver_to_take_up(store: Store) -> None:
    made = claim(store, "abc", {"operators": {"counts": {"workers": 2, "keyed": False}}})
    before = store.get("identity")
    assert claim(store, "xyz", {"operators": {"counts": {"workers": 2, "name": "words"}}}) == made
    assert claim(store, "xyz", {"operators": {"counts": {"workers": 3}}}) == made
    assert claim(store, "xyz", {"operators": {"counts": {"workers": 2, "keyed": True}}}, {"counts"}) == made
    assert store.get("identity") == before, "another driver may be at work"


def test_an_identity_of_an_earlier_release_is_read(store: Store) -> None:
    fields = asdict(claim(store, "abc", {}))
    del fields["anew"]
    store.put("identity", seal({"kind": "identity", "identity": fields}, {}))
    assert claim(store, "abc", {}).anew == {}


def test_another_format_of_the_checkpoint_is_refused(store: Store) -> None:
    identity = replace(claim(store, "abc", {}), format_version=99)
    store.put("identity", seal({"kind": "identity", "identity": asdict(identity)}, {}))
    with pytest.raises(CheckpointError) as caught:
        claim(store, "abc", {})
    assert (caught.value.expected, caught.value.found) == (FORMAT_VERSION, 99)


def test_another_format_of_the_object_is_refused(store: Store) -> None:
    claim(store, "abc", {})
    data = bytearray(store.get("identity")[:-16])
    struct.pack_into("<I", data, 8, FORMAT_VERSION + 1)
    store.put("identity", bytes(data) + blake2b(data, digest_size=16).digest())
    with pytest.raises(CheckpointError) as caught:
        claim(store, "abc", {})
    assert (caught.value.expected, caught.value.found) == (FORMAT_VERSION, FORMAT_VERSION + 1)


@pytest.mark.parametrize("damaged", [b"", b"half", seal({}, {}), seal({"identity": {"query_id": "x"}}, {})])
def test_a_damaged_identity_is_refused(store: Store, damaged: bytes) -> None:
    store.put("epochs/something", b"x")
    store.put("identity", damaged)
    with pytest.raises(CheckpointError) as caught:
        claim(store, "abc", {})
    assert caught.value.path == store.path
    assert caught.value.remedy


def test_a_lost_identity_is_refused(store: Store) -> None:
    """A new one would begin a new query with the records of another."""
    store.put("epochs/something", b"x")
    with pytest.raises(CheckpointError):
        claim(store, "abc", {})


@pytest.mark.parametrize("written", [0.0, 0.5, 0.99])
def test_a_start_that_died_in_its_first_write_is_begun_anew(store: Store, written: float) -> None:
    claim(store, "abc", {})
    data = store.get("identity")
    store.put("identity", data[: int(len(data) * written)])
    made = claim(store, "abc", {"workers": 4})
    assert made.settings == {"workers": 4}
    assert claim(store, "abc", {}) == made
