"""The kernels that search lines against their plain twins, on every kind of Arrow array and on awkward bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.model.kernels.lines import all_lines, count_lines, lines_with, pieces_of, rarest_two, rows_with
from afspark.model.kernels.plain_arrays import byte_buffers
from tests.twins import lines_twin as twin

AWKWARD = st.lists(st.sampled_from([b"a", b"b", b"ab", b"\r", b"\n", b"\r\n", b"\xff", b"a" * 70]), max_size=40)
BLOCKS = st.lists(AWKWARD.map(b"".join), max_size=6)
NEEDLES = st.lists(st.sampled_from([b"a", b"b", b"\r", b"\xff"]), min_size=1, max_size=4).map(b"".join)


@given(blocks=BLOCKS, needle=NEEDLES)
def test_kernels_equal_their_twins(blocks: list[bytes], needle: bytes) -> None:
    array = pa.array(blocks, pa.large_binary())
    assert all_lines(array).to_pylist() == twin.all_lines(blocks)
    assert lines_with(array, needle).to_pylist() == twin.lines_with(blocks, needle)
    assert rows_with(array, needle).tolist() == twin.rows_with(blocks, needle)
    assert count_lines(array) == len(twin.all_lines(blocks))


@given(blocks=BLOCKS, needle=NEEDLES, start=st.integers(0, 3), length=st.integers(0, 4))
def test_slices_and_nulls(blocks: list[bytes], needle: bytes, start: int, length: int) -> None:
    array = pa.array([*blocks, None, b"aa"], pa.binary()).slice(start, length)
    assert rows_with(array, needle).tolist() == twin.rows_with(array.to_pylist(), needle)
    assert lines_with(array.drop_null(), needle).to_pylist() == twin.lines_with(array.drop_null().to_pylist(), needle)


@given(blocks=BLOCKS, size=st.integers(1, 50))
def test_pieces_are_the_same_text_in_whole_lines(blocks: list[bytes], size: int) -> None:
    pieces = pieces_of(pa.array(blocks, pa.binary()), size).to_pylist()
    assert b"".join(pieces) == b"".join(blocks)
    assert twin.all_lines(pieces) == twin.all_lines(blocks)


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 127, 128, 200])
def test_a_needle_is_found_wherever_it_stands(length: int) -> None:
    needle = bytes(range(97, 97 + min(length, 25))) * 8
    needle = needle[:length]
    for before in range(0, 140, 7):
        text = b"." * before + needle + b"." * 3
        assert lines_with(pa.array([text]), needle).to_pylist() == [text]
        assert lines_with(pa.array([text[:-4]]), needle).to_pylist() == []


def test_rare_bytes_are_preferred() -> None:
    assert rarest_two(b"the quiz") == (4, 7)
    assert {bytes([b"a b"[at]]) for at in rarest_two(b"a b")} == {b"a", b"b"}


@pytest.mark.parametrize("own", [True, False], ids=["of Arrow", "of numpy"])
@pytest.mark.parametrize("length", [0, 1])
def test_kernels_see_one_kind_of_array_whoever_owns_the_memory(own: bool, length: int) -> None:
    """Or each would be compiled a second time, in the middle of a stream."""
    array = pa.array([b"text"], pa.large_binary())
    if not own:
        parts = [pa.py_buffer(np.frombuffer(part, np.uint8).copy()) for part in array.buffers()[1:]]
        array = pa.Array.from_buffers(pa.large_binary(), 1, [None, *parts])
    assert [part.flags.writeable for part in byte_buffers(array.slice(0, length))] == [False, False]
