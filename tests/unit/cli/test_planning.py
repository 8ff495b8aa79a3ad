"""How input falls into batches before it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.cli.planning import plan
from afspark.sources import Packets, TextFiles, ZipfWords


def test_the_default_batch_size() -> None:
    found = plan(ZipfWords(100_000_000), workers=2)
    assert found.batch_bytes == 40_000_000
    assert found.total_bytes == 100_000_000
    assert found.batches == 3


@given(kills=st.integers(1, 8), megabytes=st.integers(20, 4000))
def test_failures_find_enough_batches(kills: int, megabytes: int) -> None:
    found = plan(ZipfWords(megabytes * 1_000_000), workers=2, kills=kills)
    assert found.batches >= 2 * kills + 2
    assert found.batch_bytes <= 40_000_000


def test_a_given_size_is_kept() -> None:
    found = plan(Packets(10_000_000), workers=2, batch_bytes=24_000_000, kills=50)
    assert found.batch_bytes == 24_000_000


def test_small_input_gives_as_many_batches_as_it_has_chunks() -> None:
    assert plan(ZipfWords(100_000), workers=2, kills=3).batches == 1


@pytest.mark.parametrize("batch_bytes", [1_000, 50_000])
def test_files_are_planned_as_the_query_will_see_them(tmp_path: Path, batch_bytes: int) -> None:
    (tmp_path / "a").write_bytes(b"word\n" * 4_000)
    (tmp_path / "b").write_bytes(b"word\n" * 200)
    found = plan(TextFiles(str(tmp_path)), workers=2, batch_bytes=batch_bytes)
    assert found.total_bytes == 21_000
    assert found.batches == pytest.approx(-(-21_000 // batch_bytes), rel=0.05)
    assert max(chunk.bytes for chunk in found.chunks) <= batch_bytes
