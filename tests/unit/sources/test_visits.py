"""Generated visits: replayable, two different streams, and an overlap of known size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.sources import Visits, source_from_json
from afspark.sources.chunks import NumberedChunk
from tests.unit.sources.conftest import DictStore


def rows(source: Visits) -> pa.Table:
    planner = source.planner(DictStore())
    chunks = planner.chunks(planner.initial(), planner.discover())
    return pa.Table.from_batches([batch for chunk in chunks for batch in source.read(chunk)], source.schema())


def join_size(left: pa.Table, right: pa.Table) -> int:
    counts = [table.group_by(["dst", "second"]).aggregate([([], "count_all")]) for table in (left, right)]
    both = counts[0].join(counts[1].rename_columns(["dst", "second", "others"]), ["dst", "second"], join_type="inner")
    return int(both.column("count_all").to_numpy() @ both.column("others").to_numpy())


def test_a_chunk_depends_on_seed_stream_and_number_only() -> None:
    few, many = Visits(1000, seed=4), Visits(10**12, seed=4)
    (whole,) = many.read(many.planner(DictStore()).chunks({"chunks": 7}, {"chunks": 8})[0])
    assert rows(few).to_batches()[0].equals(next(many.read(NumberedChunk(index=0, units=1000, bytes=24000))))
    assert whole.equals(next(many.read(NumberedChunk(index=7, units=whole.num_rows, bytes=0))))
    others = [Visits(1000, seed=5), Visits(1000, seed=4, stream=1)]
    assert all(not rows(few).equals(rows(other)) for other in others)


def test_seconds_go_on_over_chunks() -> None:
    table = rows(Visits(100_000, per_second=7000))
    assert table.column("second").to_pylist() == [number // 7000 for number in range(100_000)]
    assert set(table.column("bytes").to_numpy()) <= set(range(40, 1501))


@pytest.mark.parametrize("overlap", [0.25, 0.5, 1.0])
def test_the_join_has_the_size_that_its_definition_gives(overlap: float) -> None:
    settings = {"seed": 3, "overlap": overlap, "hosts": 3000, "per_second": 2000}
    pair = [rows(Visits(40_000, stream=stream, **settings)) for stream in (0, 1)]
    chances = np.arange(1, 3001) ** -0.7
    chances /= chances.sum()
    # Which hosts are shared is drawn once a seed: the frequent ones decide, so the share of weight is taken as found.
    shared = np.isin(pair[0].column("dst").to_numpy(), pair[1].column("dst").to_numpy()).mean()
    assert shared == pytest.approx(overlap, abs=0.12)
    expected = 20 * 2000**2 * (chances**2).sum()
    found = join_size(*pair)
    assert found == pytest.approx(expected, rel=0.05) if overlap == 1 else 0.02 * expected < found < expected


def test_without_overlap_streams_meet_by_chance_only() -> None:
    pair = [rows(Visits(20_000, stream=stream, overlap=0.0)) for stream in (0, 1)]
    assert join_size(*pair) <= 2


def test_settings() -> None:
    source = Visits(10, stream=1, overlap=0.3)
    assert source_from_json(source.to_json()) == source
    for wrong in ({"rows": -1}, {"stream": 2}, {"overlap": 1.5}, {"per_second": 0}, {"hosts": 0}, {"exponent": -1}):
        with pytest.raises(UsageError):
            Visits(**{"rows": 1, **wrong})
