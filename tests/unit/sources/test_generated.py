"""Generated sources: any size, replayable chunk by chunk, skewed as promised."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.sources import Chunk, Packets, Source, ZipfWords
from afspark.sources.generated_packets import MEAN_PAYLOAD
from tests.unit.sources.conftest import DictStore


def chunks_of(source: Source) -> list[Chunk]:
    planner = source.planner(DictStore())
    return planner.chunks(planner.initial(), planner.discover())


@pytest.mark.parametrize("size", [0, 1, 100, 1 << 20, (4 << 20) + 17, (9 << 20) + 1])
def test_text_has_exactly_the_bytes_asked_for(size):
    source = ZipfWords(size, vocabulary=1000)
    chunks = chunks_of(source)
    assert sum(chunk.bytes for chunk in chunks) == size
    blocks = [value for chunk in chunks for (batch,) in [source.read(chunk)] for value in batch.column("value")]
    assert sum(len(block.as_buffer()) for block in blocks) == size
    assert all(block.as_py().endswith(b"\n") for block in blocks)


def test_a_chunk_depends_on_seed_and_number_only():
    small, large, other = ZipfWords(5 << 20, seed=3), ZipfWords(1 << 40, seed=3), ZipfWords(1 << 40, seed=4)
    planner = large.planner(DictStore())
    first, second = planner.chunks({"chunks": 0}, {"chunks": 2})
    (text,), (again,) = large.read(first), small.read(chunks_of(small)[0])
    assert text.equals(again)
    assert not text.equals(next(large.read(second)))
    assert not text.equals(next(other.read(first)))


def test_words_follow_zipf():
    source = ZipfWords(4 << 20, exponent=1.0, vocabulary=5000)
    (batch,) = source.read(chunks_of(source)[0])
    words, counts = np.unique(b" ".join(batch.column(0).to_pylist()).split(), return_counts=True)
    counts = np.sort(counts)[::-1]
    harmonic = (1 / np.arange(1, 5001)).sum()
    for rank in (1, 2, 10, 100):
        assert counts[rank - 1] / counts.sum() == pytest.approx(1 / rank / harmonic, rel=0.1)
    assert len(words) <= 5000
    lines = b"".join(batch.column(0).to_pylist()).split(b"\n")
    assert 8 <= np.mean([len(line.split()) for line in lines]) <= 11


def test_packets_are_skewed_enough_for_heavy_pairs():
    source = Packets(10**9 // MEAN_PAYLOAD, seed=9)
    assert source.rows == 10**9 // MEAN_PAYLOAD
    table = pa.Table.from_batches([batch for chunk in chunks_of(source) for batch in source.read(chunk)])
    assert table.schema == source.schema()
    assert table.num_rows == source.rows
    sizes = table.column("bytes").to_numpy()
    assert (sizes.min(), sizes.max()) == (40, 1500)
    assert sizes.sum() == pytest.approx(10**9, rel=0.02)
    totals = table.group_by(["src", "dst"]).aggregate([("bytes", "sum")]).column("bytes_sum").to_numpy()
    assert 5 <= (totals > 10e6).sum() <= 30
    assert len(totals) > 50_000


def test_packet_chunks_replay():
    few, many = Packets(1000, seed=1), Packets(10**12, seed=1)
    (part,), (whole,) = (
        few.read(chunks_of(few)[0]),
        many.read(many.planner(DictStore()).chunks({"chunks": 0}, {"chunks": 1})[0]),
    )
    assert part.num_rows == 1000
    assert whole.slice(0, 1000).equals(part)


def test_limit_counts_chunks_of_equal_weight():
    planner = ZipfWords(25 << 18).planner(DictStore())
    end = planner.discover()
    assert end == {"chunks": 25}
    assert planner.limit({"chunks": 3}, end, (9 << 18) // 4) == {"chunks": 5}
    assert planner.limit({"chunks": 3}, end, 1) == {"chunks": 4}
    assert planner.limit({"chunks": 24}, end, 1 << 40) == end
    assert planner.limit(end, end, 1 << 40) == end
    assert planner.missing(planner.chunks({"chunks": 0}, end)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ZipfWords(-1),
        lambda: ZipfWords(1, vocabulary=0),
        lambda: ZipfWords(1, exponent=-1.0),
        lambda: Packets(-1),
        lambda: Packets(1, pairs=0),
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(UsageError):
        wrong()
