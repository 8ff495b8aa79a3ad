"""What all sources share: JSON, pickling, and how chunks are shared among workers."""

from __future__ import annotations

import json
import pickle
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.errors import UsageError
from afspark.sources import Packets, ParquetFiles, Source, TextFiles, ZipfWords, share, source_from_json
from afspark.sources.chunks import NumberedChunk
from afspark.sources.source import require_columns

SOURCES = [
    TextFiles("/in/*.txt", blocks=False, chunk_bytes=77),
    ParquetFiles("/in", ("a", "b")),
    ParquetFiles("s3://bucket/in"),
    ZipfWords(10, seed=2, exponent=1.5, vocabulary=9),
    Packets(10, seed=2, exponent=1.5, pairs=9),
]


@pytest.mark.parametrize("source", SOURCES, ids=repr)
def test_sources_travel_as_json_and_pickled(source):
    assert source_from_json(json.loads(json.dumps(source.to_json()))) == source
    assert pickle.loads(pickle.dumps(source)) == source
    assert isinstance(hash(source), int)


def test_an_unknown_kind_is_a_usage_error():
    with pytest.raises(UsageError) as caught:
        source_from_json({"kind": "telepathy"})
    assert caught.value.kind == "telepathy"


def test_a_kind_is_taken_once():
    with pytest.raises(TypeError):

        class Impostor(Source, kind="text"):
            pass


@pytest.mark.parametrize(
    ("wanted", "fitting"),
    [
        ("any", {"i", "f", "s", "b", "t"}),
        ("integer", {"i"}),
        ("number", {"i", "f"}),
        ("text", {"s", "b"}),
    ],
)
def test_columns_are_checked_by_sort(wanted, fitting):
    schema = pa.schema(
        [
            ("i", pa.int32()),
            ("f", pa.float64()),
            ("s", pa.string()),
            ("b", pa.large_binary()),
            ("t", pa.bool_()),
        ]
    )
    for name in schema.names:
        if name in fitting:
            require_columns(schema, {name: wanted})
        else:
            with pytest.raises(UsageError) as caught:
                require_columns(schema, {name: wanted})
            assert caught.value.column == name


@given(weights=st.lists(st.integers(0, 100), max_size=40), workers=st.integers(1, 8))
def test_shares_are_balanced_complete_and_in_order(weights, workers):
    chunks = [NumberedChunk(index=i, bytes=weight) for i, weight in enumerate(weights)]
    shares = share(chunks, workers)
    assert len(shares) == workers
    ids = [[chunk.index for chunk in part] for part in shares]
    assert sorted(chain.from_iterable(ids)) == list(range(len(chunks)))
    assert all(part == sorted(part) for part in ids)
    loads = [sum(chunk.bytes for chunk in part) for part in shares]
    assert max(loads) - min(loads) <= max(weights, default=0)
    assert share(list(chunks), workers) == shares


def test_there_is_at_least_one_worker():
    with pytest.raises(ValueError, match="workers"):
        share([], 0)
