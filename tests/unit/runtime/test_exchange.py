"""Items on their way to their owners."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.errors import InputError, UsageError
from afspark.protocol.parcels import (
    Packet,
    Parcel,
    address,
    decode,
    digest_of,
    encode,
    joint_digest,
    open_packets,
    open_parts,
    open_schema,
    owners,
    pack_packets,
    pack_parts,
    pack_schema,
    parcels,
    split,
)

WORDS = pa.record_batch({"word": ["to", "be", "or", "not", "to", "be"], "n": [1, 2, 3, 4, 5, 6]})


def unpack(payloads: list[bytes]) -> list[list[dict[str, Any]]]:
    return [[row for packet in open_packets(payload) for row in packet.items.to_pylist()] for payload in payloads]


def addressed(*batches: pa.RecordBatch, key: list[str], workers: int, partition: int = 0) -> list[list[dict[str, Any]]]:
    return unpack(address(map(Packet, batches), key=key, partition=partition, workers=workers))


@given(
    words=st.lists(st.text(max_size=4), max_size=40),
    workers=st.integers(1, 9),
    cut=st.integers(0, 40),
)
def test_every_row_reaches_one_owner_in_its_old_order(words: list[str], workers: int, cut: int) -> None:
    batch = pa.record_batch({"word": pa.array(words, pa.string()), "n": np.arange(len(words))})
    shares = addressed(batch.slice(0, cut), batch.slice(cut), key=["word"], workers=workers)
    assert len(shares) == workers
    assert sorted(row["n"] for share in shares for row in share) == list(range(len(words)))
    for share in shares:
        assert [row["n"] for row in share] == sorted(row["n"] for row in share)
    homes = {row["word"]: number for number, share in enumerate(shares) for row in share}
    assert all(homes[row["word"]] == number for number, share in enumerate(shares) for row in share)


@pytest.mark.parametrize("values", [np.arange(6, dtype=np.uint64) << np.uint64(32), list("abcdef")])
def test_a_column_named_hash_is_a_column_like_any_other(values: Any) -> None:
    named = WORDS.append_column("hash", pa.array(values))
    assert owners(named, ["word"], 3).tolist() == owners(WORDS, ["word"], 3).tolist()


def test_the_owner_of_a_key_never_changes() -> None:
    """Part of what a checkpoint relies on: other owners would find state that is not theirs."""
    assert owners(pa.record_batch({"word": ["spark", "state", "theta"]}), ["word"], 4).tolist() == [3, 0, 2]


def test_without_a_key_a_partition_has_one_worker() -> None:
    for partition in range(4):
        shares = addressed(WORDS, key=[], partition=partition, workers=2)
        assert shares[partition % 2] == WORDS.to_pylist() and shares[1 - partition % 2] == []


def test_split_keeps_all_rows() -> None:
    parts = split(WORDS, np.array([1, 0, 1, 2, 0, 1], np.uint64), 4)
    assert [part.column("n").to_pylist() for part in parts] == [[2, 5], [1, 3, 6], [4], []]


def test_items_for_every_worker_are_divided_only_where_they_have_the_key() -> None:
    """Feedback reaches its owner, or all workers if nobody owns it."""
    for key, copies in ([], 3), (["other"], 3), (["word"], 1):
        payloads = address([Packet(WORDS)], key=key, partition=1, workers=3, everywhere=True)
        assert sum(len(share) for share in unpack(payloads)) == copies * WORDS.num_rows


def test_items_without_the_key_are_refused() -> None:
    """Two workers would own the same key."""
    with pytest.raises(UsageError, match="no column 'other'"):
        addressed(WORDS, key=["other"], partition=1, workers=2)


def test_steps_and_panes_travel_with_the_items() -> None:
    packets = [Packet(WORDS, 0, None), Packet(WORDS, 0, 7), Packet(WORDS.slice(2), 1, -7)]
    for payload in address(packets, key=["word"], partition=0, workers=2):
        assert [(packet.step, packet.pane) for packet in open_packets(payload)] == [(0, None), (0, 7), (1, -7)]


def counted(payloads: list[bytes], **facts: Any) -> list[Parcel]:
    sent = parcels(payloads, Parcel(partition=3, **facts))
    assert [worker for worker, _ in sent] == list(range(len(payloads)))
    return [parcel for _, parcel in sent]


def test_the_digest_covers_the_parcels_to_all_workers() -> None:
    def digests(payloads: list[bytes]) -> set[str]:
        return {parcel.digest for parcel in counted(payloads, items=1, size=1)}

    one = digests([b"x", b"y"])
    assert len(one) == 1
    assert one.isdisjoint(digests([b"x", b"z"])) and one.isdisjoint(digests([b"xy", b""]))
    assert one == digests([b"x", b"y"])


def test_a_digest_that_is_known_is_kept() -> None:
    """That of what the sender keeps, so that it can be compared with the sender's report."""
    assert {parcel.digest for parcel in counted([b"x", b"y"], digest="known")} == {"known"}


def test_the_digest_of_several_ports_tells_them_apart() -> None:
    assert joint_digest([b"x", b""]) == digest_of(b"x") + "+" != joint_digest([b"", b"x"])
    assert joint_digest([b"x", b"y"]) == f"{digest_of(b'x')}+{digest_of(b'y')}"


def test_counts_travel_once() -> None:
    sent = counted([b"", b"x"], origin="a", items=7, size=99, latest=3.5, unplaced=2)
    assert sum(parcel.items for parcel in sent) == 7 and sum(parcel.size for parcel in sent) == 99
    assert sum(parcel.unplaced for parcel in sent) == 2 and [parcel.latest for parcel in sent] == [3.5, None]
    assert [(parcel.origin, parcel.partition, parcel.payload) for parcel in sent] == [("a", 3, b""), ("a", 3, b"x")]


def test_labels_tell_origins_partitions_and_directions_apart() -> None:
    """They are the keys under which workers say what they have applied."""
    labels = {
        Parcel(origin=origin, partition=partition, feedback=feedback).label
        for origin in ("", "a", "b")
        for partition in (0, 1)
        for feedback in (False, True)
    }
    assert len(labels) == 12


@pytest.mark.parametrize("payload", [b"", b"\n", b"a\nb", bytes(range(256))])
@pytest.mark.parametrize("failure", [None, InputError("torn", path="x", batch=2)], ids=["sound", "failed"])
def test_a_parcel_survives_a_binary_column(payload: bytes, failure: InputError | None) -> None:
    parcel = Parcel(
        origin="größe",
        partition=2,
        digest="d" * 32,
        payload=payload,
        feedback=True,
        items=10,
        size=300,
        latest=1.5,
        unplaced=3,
        failure=failure,
    )
    again = Parcel.from_bytes(parcel.to_bytes())
    assert replace(again, failure=None) == replace(parcel, failure=None)
    assert str(again.failure) == str(failure) and type(again.failure) is type(failure)
    assert again.failure is None or again.failure.fields == {"path": "x", "batch": 2}


def test_batches_of_any_schema_travel_together() -> None:
    numbers = pa.record_batch({"n": [1.5]})
    parts = [("a", WORDS), ("a", WORDS.slice(2)), (["b", None, 2], numbers), ("a", numbers)]
    assert list(open_parts(pack_parts(parts))) == [
        ("a", WORDS),
        ("a", WORDS.slice(2)),
        (("b", None, 2), numbers),
        ("a", numbers),
    ]
    many = [("label" * number, WORDS) for number in range(1, 90)]
    assert list(open_parts(memoryview(pack_parts(many)))) == many, "labels may take more room than rows"
    assert pack_parts([]) == b"" and list(open_parts(b"")) == []
    assert pack_packets([]) == b"" and list(open_packets(b"")) == []


def test_encoding_round_trips() -> None:
    assert decode(encode([])) == []
    assert decode(encode([WORDS, WORDS.slice(2)])) == [WORDS, WORDS.slice(2)]


def test_schemas_travel_as_text() -> None:
    schema = pa.schema([pa.field("line", pa.string(), nullable=False), ("n", pa.list_(pa.int32(), 3))])
    assert open_schema(pack_schema(schema)).equals(schema, check_metadata=True)
