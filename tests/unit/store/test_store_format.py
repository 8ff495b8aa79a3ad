"""Sealed objects."""

from __future__ import annotations

import math
import struct
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pytest

from afspark.errors import CorruptObject, ForeignObject, UsageError
from afspark.model.state_label import StateLabel
from afspark.store import checksum_of, seal, unseal
from afspark.store.format import MAGIC
from afspark.store.images import FeedbackPart
from afspark.store.jsontext import from_json, to_json


def _resealed(data: bytes) -> bytes:
    return data[:-16] + blake2b(data[:-16], digest_size=16).digest()


BATCH = pa.record_batch({"key": pa.array(["a", "bb", None]), "value": pa.array([1, 2, 3], pa.int64())})


def test_round_trip() -> None:
    images = {"counts": BATCH, "empty": BATCH.slice(0, 0), "slice": BATCH.slice(1, 1)}
    meta = {"batch": 3, "theta": math.inf, "names": ["x"]}
    data = seal(meta, images)
    sealed = unseal(data)
    assert sealed.meta == meta
    assert list(sealed.images) == list(images)
    assert all(sealed.images[name].equals(batch) for name, batch in images.items())
    assert sealed.checksum == checksum_of(data)


def test_sealing_is_deterministic() -> None:
    assert seal({"a": 1}, {"s": BATCH}) == seal({"a": 1}, {"s": BATCH})
    assert checksum_of(seal({"a": 1}, {})) != checksum_of(seal({"a": 2}, {}))


def test_images_are_aligned_views_of_the_object() -> None:
    data = seal({"pad": "x" * 13}, {"s": BATCH, "t": BATCH})
    for batch in unseal(data).images.values():
        assert batch.column("value").to_numpy().flags.aligned
        assert not batch.column("value").to_numpy().flags.owndata


@pytest.mark.parametrize("cut", [0, 1, 15, 16, 17, 39, 40, 41, 100, -1])
def test_truncation_is_corruption(cut: int) -> None:
    data = seal({"a": 1}, {"s": BATCH})
    with pytest.raises(CorruptObject) as caught:
        unseal(data[:cut], "the name")
    assert caught.value.name == "the name"


def test_trailing_bytes_are_corruption() -> None:
    with pytest.raises(CorruptObject):
        unseal(seal({}, {}) + b"\0")
    # Even if somebody recomputes the checksum.
    with pytest.raises(CorruptObject):
        unseal(_resealed(seal({}, {})[:-16] + b"\0" * 80))


def test_a_header_that_lies_is_corruption() -> None:
    data = bytearray(seal({"a": 1}, {"s": BATCH}))
    struct.pack_into("<I", data, 12, 7)
    with pytest.raises(CorruptObject):
        unseal(_resealed(bytes(data)))


def test_another_version_is_foreign() -> None:
    data = bytearray(seal({}, {}))
    struct.pack_into("<I", data, 8, 99)
    with pytest.raises(ForeignObject) as caught:
        unseal(_resealed(bytes(data)), "n")
    assert (caught.value.found, caught.value.expected, caught.value.name) == (99, 2, "n")


def test_another_owner_is_foreign() -> None:
    data = _resealed(b"somebody" + seal({}, {})[8:])
    with pytest.raises(ForeignObject):
        unseal(data)


def test_layout_is_fixed() -> None:
    data = seal({"a": 1}, {})
    assert data[:8] == MAGIC == b"afspark\n"
    assert data[24:53] == b'{"meta":{"a":1},"images":[]}'.ljust(29, b"\0")
    assert checksum_of(data) == "f70864b628fae2426b5ee669506bb47c"


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1.5, 0, True, None, "x", {"a": [1, {"b": math.inf}]}])
def test_json_round_trip(value: object) -> None:
    assert from_json(to_json(value)) == value


def test_json_of_numpy_and_nan() -> None:
    assert from_json(to_json({"n": np.int64(3), "f": np.float64("inf"), "b": np.bool_(True)})) == {
        "n": 3,
        "f": math.inf,
        "b": True,
    }
    assert math.isnan(from_json(to_json(math.nan)))


@pytest.mark.parametrize("value", [{1: 2}, {"a": object()}, b"bytes", {1, 2}, {"$float": "x"}])
def test_json_refuses_what_would_not_come_back(value: object) -> None:
    with pytest.raises(UsageError):
        to_json(value)


def test_images_are_told_apart_by_what_they_are_of() -> None:
    """Names of operators and states may look like anything: nothing is read out of them."""
    keys = [
        StateLabel("counts"),
        StateLabel("counts", 17),
        StateLabel("back-a@3@1"),
        FeedbackPart("a", 3, 1),
        FeedbackPart("a@3", 1, 0),
        "counts",
    ]
    sealed = unseal(seal({}, dict.fromkeys(keys, BATCH)))
    assert list(sealed.images) == keys
