"""Items on their way to their owners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.model.kernels.hashing import hash_columns
from afspark.runtime.exchange import HASH_COLUMN, Parcel, decode, encode, owners, pack, parcels, split

WORDS = pa.record_batch({"word": ["to", "be", "or", "not", "to", "be"], "n": [1, 2, 3, 4, 5, 6]})


def unpack(packed: list[tuple[int, bytes]]) -> list[list[dict[str, Any]]]:
    return [[row for batch in decode(payload) for row in batch.to_pylist()] for _, payload in packed]


@given(
    words=st.lists(st.text(max_size=4), max_size=40),
    workers=st.integers(1, 9),
    cut=st.integers(0, 40),
)
def test_every_row_reaches_one_owner_in_its_old_order(words: list[str], workers: int, cut: int) -> None:
    batch = pa.record_batch({"word": pa.array(words, pa.string()), "n": np.arange(len(words))})
    shares = unpack(pack([batch.slice(0, cut), batch.slice(cut)], key=["word"], partition=0, workers=workers))
    assert len(shares) == workers
    assert sorted(row["n"] for share in shares for row in share) == list(range(len(words)))
    for share in shares:
        assert [row["n"] for row in share] == sorted(row["n"] for row in share)
    homes = {row["word"]: number for number, share in enumerate(shares) for row in share}
    assert all(homes[row["word"]] == number for number, share in enumerate(shares) for row in share)


def test_hashes_that_come_along_are_used() -> None:
    hashed = WORDS.append_column(HASH_COLUMN, pa.array(hash_columns(WORDS, ["word"])))
    assert (owners(hashed, ["word"], 3) == owners(WORDS, ["word"], 3)).all()
    forced = WORDS.append_column(HASH_COLUMN, pa.array(np.full(6, np.uint64(2) << np.uint64(32))))
    assert set(owners(forced, ["word"], 3)) == {2}


def test_the_owner_of_a_key_never_changes() -> None:
    """Part of what a checkpoint relies on: other owners would find state that is not theirs."""
    assert owners(pa.record_batch({"word": ["spark", "state", "theta"]}), ["word"], 4).tolist() == [3, 0, 2]


def test_without_a_key_a_partition_has_one_worker() -> None:
    for partition in range(4):
        shares = unpack(pack([WORDS], key=[], partition=partition, workers=2))
        assert shares[partition % 2] == WORDS.to_pylist() and shares[1 - partition % 2] == []


def test_split_keeps_all_rows() -> None:
    parts = split(WORDS, np.array([1, 0, 1, 2, 0, 1], np.uint64), 4)
    assert [part.column("n").to_pylist() for part in parts] == [[2, 5], [1, 3, 6], [4], []]


def test_the_digest_covers_the_parcels_to_all_workers() -> None:
    def digests(payloads: list[bytes]) -> set[str]:
        packed = list(enumerate(payloads))
        return {parcel.digest for _, parcel in parcels(packed, partition=0, items=1, size=1)}

    one = digests([b"x", b"y"])
    assert len(one) == 1
    assert one.isdisjoint(digests([b"x", b"z"])) and one.isdisjoint(digests([b"xy", b""]))
    assert one == digests([b"x", b"y"])


def test_counts_travel_once() -> None:
    sent = parcels([(0, b""), (1, b"x")], partition=3, items=7, size=99)
    assert sum(parcel.items for _, parcel in sent) == 7 and sum(parcel.size for _, parcel in sent) == 99
    assert [parcel.partition for _, parcel in sent] == [3, 3]


@pytest.mark.parametrize("payload", [b"", b"\n", b"a\nb", bytes(range(256))])
def test_a_parcel_survives_a_binary_column(payload: bytes) -> None:
    parcel = Parcel(2, 10, 300, "d" * 32, payload)
    assert Parcel.from_bytes(parcel.to_bytes()) == parcel


def test_encoding_round_trips() -> None:
    assert decode(encode([])) == []
    assert decode(encode([WORDS, WORDS.slice(2)])) == [WORDS, WORDS.slice(2)]
