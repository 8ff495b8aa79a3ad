"""What the bench runs without Spark is what a worker's task would run."""

from __future__ import annotations

import pyarrow as pa
import pytest

import afspark as af
from afspark.bench.alone import BarePart, Kernel, items_in, run_alone, shares_of
from afspark.sources import Packets, ZipfWords


def test_a_kernel_updates_its_states_through_the_combiner() -> None:
    kernel = Kernel(af.WordCount())
    for _ in range(2):
        kernel.run([pa.record_batch({"value": pa.array([b"to be\nor not\n", b"to be\n"], pa.large_binary())})])
    cells = kernel.states["counts"].export()
    counts = dict(zip(cells.column("key").to_pylist(), cells.column("value").to_pylist(), strict=True))
    assert counts == {b"to": 4, b"be": 4, b"or": 2, b"not": 2}


def test_lines_are_counted_where_rows_are_blocks() -> None:
    assert items_in(pa.record_batch({"value": pa.array([b"a\nb\n", b"c"], pa.large_binary())})) == 3
    assert items_in(pa.record_batch({"n": [1, 2]})) == 2


def test_shares_cover_the_source() -> None:
    shares = shares_of(ZipfWords(1 << 20))
    assert len(shares) == 2
    assert sum(chunk.bytes for share in shares for chunk in share) == 1 << 20


def test_every_part_runs_in_two_processes() -> None:
    operator = af.HeavyHitters(keys=("src", "dst"), weight="bytes", threshold=10_000)
    figures = run_alone(BarePart.BOTH, Packets(100_000), operator)
    assert all(value > 0 for value in figures.values())
    assert figures["items_per_second"] / figures["mb_per_second"] == pytest.approx(1e6 / 24)
