"""Text chunks: whatever the sizes, every line is read exactly once."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.errors import InputError, UsageError
from afspark.sources import Chunk, LogStore, Source, TextFiles
from afspark.sources import text_files as text
from afspark.sources.text_files import block_ends, split_lines
from tests.unit.sources.conftest import DictStore

LINE = st.one_of(st.just(b""), st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")))
CONTENT = st.builds(
    lambda lines, ended: b"\n".join(lines) + (b"\n" if ended else b""),
    st.lists(LINE, max_size=25),
    st.booleans(),
)


def lines_of(content: bytes) -> list[bytes]:
    """Lines with their ends."""
    return [line + b"\n" for line in content.split(b"\n")[:-1]] + [last for last in content.split(b"\n")[-1:] if last]


def plain_lines(content: bytes) -> list[str]:
    """Lines as the line form gives them."""
    bare = [line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n") for line in lines_of(content)]
    return [line.decode("utf-8", "replace") for line in bare]


def chunks_of(source: Source, log: LogStore) -> list[Chunk]:
    planner = source.planner(log)
    return planner.chunks(planner.initial(), planner.discover())


def values(source: Source, chunks: list[Chunk]) -> list[Any]:
    return [value for chunk in chunks for batch in source.read(chunk) for value in batch.column("value").to_pylist()]


@given(content=CONTENT, chunk_bytes=st.integers(1, 80), overhang=st.integers(1, 40), block=st.integers(1, 60))
def test_all_chunks_together_are_the_file(content, chunk_bytes, overhang, block):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_OVERHANG", overhang)
        patch.setattr(text, "BLOCK_BYTES", block)
        (Path(folder) / "a.txt").write_bytes(content)
        blocks = TextFiles(folder, blocks=True, chunk_bytes=chunk_bytes)
        chunks = chunks_of(blocks, DictStore())
        assert sum(chunk.bytes for chunk in chunks) == len(content)
        assert max((chunk.bytes for chunk in chunks), default=0) <= chunk_bytes
        parts = values(blocks, chunks)
        assert b"".join(parts) == content
        assert all(part.endswith(b"\n") for part in parts[:-1])
        assert values(TextFiles(folder, blocks=False), chunks) == plain_lines(content)


@given(content=CONTENT, chunk_bytes=st.integers(1, 40))
def test_a_chunk_owns_the_lines_that_start_in_it(content, chunk_bytes):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.txt").write_bytes(content)
        source = TextFiles(folder, chunk_bytes=chunk_bytes)
        for chunk in chunks_of(source, DictStore()):
            at, owned = 0, b""
            for line in lines_of(content):
                owned += line if chunk.start <= at < chunk.stop else b""
                at += len(line)
            assert b"".join(values(source, [chunk])) == owned


def test_blocks_are_slices_of_one_buffer(tmp_path, log):
    (tmp_path / "a").write_bytes(b"0123456789abcde\n" * 200_000)
    source = TextFiles(str(tmp_path))
    (batch,) = source.read(chunks_of(source, log)[0])
    assert batch.schema == source.schema() == pa.schema([pa.field("value", pa.large_binary(), nullable=False)])
    assert [len(value.as_py()) for value in batch.column(0)] == [
        1 << 20,
        1 << 20,
        1 << 20,
        3_200_000 - (3 << 20),
    ]


def test_a_line_much_longer_than_chunk_and_overhang(tmp_path, log):
    content = b"a\n" + b"x" * 500_000 + b"\nb\n"
    (tmp_path / "a").write_bytes(content)
    source = TextFiles(str(tmp_path), chunk_bytes=1000)
    chunks = chunks_of(source, log)
    per_chunk = [b"".join(values(source, [chunk])) for chunk in chunks]
    assert [part for part in per_chunk if part] == [content[:-2], b"b\n"]


def test_lines_without_their_ends(tmp_path, log):
    (tmp_path / "a").write_bytes("ä\r\n\r\n\n\r x\rend".encode())
    source = TextFiles(str(tmp_path), blocks=False)
    (batch,) = source.read(chunks_of(source, log)[0])
    assert batch.schema == source.schema()
    assert batch.column("value").to_pylist() == ["ä", "", "", "\r x\rend"]


def test_bytes_that_are_no_utf8_are_replaced_and_nul_is_kept():
    lines = split_lines(pa.py_buffer(b"ok\n\xff\xfe\nnu\x00l\n"), "p")
    assert lines.to_pylist() == ["ok", "��", "nu\x00l"]


def test_what_is_appended_later_is_not_read(tmp_path, log):
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo")
    source = TextFiles(str(tmp_path))
    chunks = chunks_of(source, log)
    path.write_bytes(b"one\ntwo and more\nthree\n")
    assert values(source, chunks) == [b"one\ntwo"]


def test_a_shorter_file_is_an_error_that_names_it(tmp_path, log):
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\n")
    source = TextFiles(str(tmp_path))
    chunks = chunks_of(source, log)
    path.write_bytes(b"one\n")
    with pytest.raises(InputError) as caught:
        values(source, chunks)
    assert (caught.value.path, caught.value.changed) == (str(path), True)


def test_a_missing_file_is_an_error_that_says_so(tmp_path, log):
    path = tmp_path / "a"
    path.write_bytes(b"one\n")
    source = TextFiles(str(tmp_path))
    chunks = chunks_of(source, log)
    path.unlink()
    with pytest.raises(InputError) as caught:
        values(source, chunks)
    assert (caught.value.path, caught.value.missing) == (str(path), True)


@pytest.mark.parametrize("chunk_bytes", [0, -1])
def test_chunks_have_a_size(chunk_bytes):
    with pytest.raises(UsageError):
        TextFiles("x", chunk_bytes=chunk_bytes)


def test_validate_wants_files_and_fitting_columns(tmp_path):
    source = TextFiles(str(tmp_path))
    with pytest.raises(UsageError) as caught:
        source.validate()
    assert caught.value.path == str(tmp_path)
    (tmp_path / "a").write_bytes(b"x")
    source.validate()
    source.validate({"value": "text"})
    with pytest.raises(UsageError):
        source.validate({"value": "integer"})


@given(content=CONTENT, size=st.integers(1, 50))
def test_blocks_end_with_lines(content, size):
    ends = block_ends(np.frombuffer(content, np.uint8), size)
    parts = [content[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    assert b"".join(parts) == content
    assert all(part.endswith(b"\n") and len(part) >= size for part in parts[:-1])
    assert all(b"\n" not in part[size - 1 : -1] for part in parts)
