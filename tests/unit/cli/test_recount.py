"""The exact recount against brute force, whatever the chunks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afspark.cli.planning import plan
from afspark.report.recount import count_words, merge, sum_weights, text_of_range
from afspark.sources import Packets, ParquetFiles, TextFiles, ZipfWords, share

TEXTS = st.binary(max_size=120) | st.text(alphabet="aB \t\n\v\f\r\x1c\u00a0\u00e9", max_size=120).map(str.encode)


def as_dict(table: pa.Table) -> dict[bytes, int]:
    return dict(zip(table.column("word").to_pylist(), table.column("count").to_pylist(), strict=True))


@given(text=TEXTS, step=st.integers(1, 50))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_word_is_in_exactly_one_range(tmp_path: Path, text: bytes, step: int) -> None:
    path = tmp_path / "text"
    path.write_bytes(text)
    found: list[bytes] = []
    for start in range(0, len(text), step):
        stop = min(start + step, len(text))
        found += text_of_range(str(path), start, stop, len(text)).split()
    assert Counter(found) == Counter(text.split())


def test_a_range_ends_with_the_size_that_was_planned(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one two" + b"x" * 100)
    assert text_of_range(str(path), 0, 5, 7) == b"one two"


@pytest.mark.parametrize("lower", [False, True])
def test_words_of_text_files(tmp_path: Path, lower: bool) -> None:
    texts = [b"To be or\nnot to be\r\n", "naïve Ünter \x1c Z\u00dc".encode() * 300, b"\xff\xfe bad utf8"]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_bytes(text)
    expected: Counter[bytes] = Counter()
    for text in texts:
        expected.update((text.lower() if lower else text).split())
    source = TextFiles(str(tmp_path))
    chunks = plan(source, workers=2, batch_bytes=100).chunks
    assert len(chunks) > 10
    assert as_dict(count_words(source, chunks, column="value", lower=lower)) == expected


def test_words_of_parquet_rows_end_with_the_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a b", "c", None, "", "a"], "other": [1, 2, 3, 4, 5]}), tmp_path / "a.parquet")
    source = ParquetFiles(str(tmp_path), columns=("text",))
    table = count_words(source, plan(source, workers=1).chunks, column="text", lower=False)
    assert as_dict(table) == {b"a": 2, b"b": 1, b"c": 1}


def test_shares_add_up() -> None:
    source = ZipfWords(2_000_000, seed=3)
    chunks = plan(source, workers=2).chunks
    parts = [count_words(source, part, column="value", lower=False) for part in share(chunks, 3)]
    whole = count_words(source, chunks, column="value", lower=False)
    text = b"".join(value for chunk in chunks for batch in source.read(chunk) for value in batch[0].to_pylist())
    assert as_dict(merge(parts, ["word"])) == as_dict(whole) == Counter(text.split())


def test_no_chunks_no_words() -> None:
    assert len(count_words(ZipfWords(0), [], column="value", lower=False)) == 0


def test_weights_of_packets() -> None:
    source = Packets(200_000, seed=5, pairs=500)
    chunks = plan(source, workers=2, batch_bytes=1_000_000).chunks
    expected: Counter[tuple[int, int]] = Counter()
    for chunk in chunks:
        for batch in source.read(chunk):
            for src, dst, size in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                expected[src, dst] += size
    table = sum_weights(source, chunks, keys=("src", "dst"), weight="bytes")
    assert table.column_names == ["src", "dst", "total"]
    found = {(row["src"], row["dst"]): row["total"] for row in table.to_pylist()}
    assert found == expected and len(table) == len(found)


def test_weights_of_files_with_missing_keys(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["a", None, "a"], "w": [1.5, 2.0, 3.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [None, "b"], "w": [4.0, 0.25]}), tmp_path / "b.parquet")
    source = ParquetFiles(str(tmp_path), columns=("k", "w"))
    table = sum_weights(source, plan(source, workers=1).chunks, keys=("k",), weight="w")
    assert {row["k"]: row["total"] for row in table.to_pylist()} == {"a": 4.5, None: 6.0, "b": 0.25}


def test_no_chunks_no_weights() -> None:
    table = sum_weights(Packets(0), [], keys=("dst",), weight="bytes")
    assert len(table) == 0 and table.column_names == ["dst", "total"]
