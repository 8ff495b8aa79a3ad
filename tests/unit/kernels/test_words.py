"""The word counter against its plain twin, on every kind of Arrow array and on awkward bytes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.errors import UsageError
from afspark.model.kernels.hashing import Secret
from afspark.model.kernels.words import WordCounter, split_words, tally_words
from tests.twins.words_twin import count_words

KINDS = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.string_view(), pa.binary_view()]
# Few different bytes, so that words repeat, share prefixes and meet every kind of white space.
AWKWARD = st.lists(
    st.sampled_from([b"a", b"B", b"b", b"\x00", b"\xff", b"\x80", b"\xa0", b" ", b"\t", b"\n", b"\v", b"\f", b"\r"]),
    max_size=60,
).map(b"".join)
LONG = st.builds(lambda word, times: word * times, st.binary(min_size=1, max_size=9), st.integers(1, 12))
ROWS = st.lists(st.one_of(st.none(), AWKWARD, LONG, st.binary(max_size=40)), max_size=30)


def counted(counter: WordCounter) -> list[tuple[bytes, int]]:
    return [(row["word"], row["count"]) for row in counter.finish().to_pylist()]


def count_all(rows: list[bytes | None], *, lower: bool = False) -> list[tuple[bytes, int]]:
    counter = WordCounter(lower=lower)
    counter.count(pa.array(rows, pa.large_binary()))
    return counted(counter)


@given(rows=ROWS, lower=st.booleans())
def test_kernel_equals_twin(rows, lower):
    assert count_all(rows, lower=lower) == count_words(rows, lower=lower)


@given(rows=ROWS, cuts=st.lists(st.integers(0, 30), max_size=4), room=st.integers(1, 64))
def test_many_calls_on_a_small_table_equal_one_call_on_a_large_one(rows, cuts, room):
    array = pa.array(rows, pa.binary())
    counter = WordCounter(room=room)
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for start, stop in pairwise(bounds):
        counter.count(array.slice(start, stop - start))
    assert counted(counter) == count_all(rows)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_all_kinds_of_arrays_and_their_slices(kind):
    rows = ["x", "the cat", None, "", "the\thorse and a much longer word: extraordinarily", " the "]
    array = pa.array(rows, kind)
    counter = WordCounter()
    counter.count(array.slice(1, 4))
    counter.count(array.slice(5))
    assert counted(counter) == count_words([row.encode() if row else None for row in rows[1:]])


def test_dictionary_and_chunked_arrays():
    counter = WordCounter()
    counter.count(pa.chunked_array([pa.array(["a b"]), pa.array(["b"])]))
    counter.count(pa.array(["c", "a", "c"]).dictionary_encode())
    assert counted(counter) == [(b"a", 2), (b"b", 2), (b"c", 2)]


def test_a_null_row_has_no_words_even_if_bytes_lie_under_it():
    offsets = pa.py_buffer(np.array([0, 3, 6, 9], np.int32))
    array = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\x05"), offsets, pa.py_buffer(b"onetwosix")])
    counter = WordCounter()
    counter.count(array)
    assert [row[0] for row in counted(counter)] == [b"one", b"six"]


@pytest.mark.parametrize("rows", [[], [b""], [b" \t\n\v\f\r" * 50], [None, None]])
def test_nothing_to_count(rows):
    counter = WordCounter()
    counter.count(pa.array(rows, pa.binary()))
    batch = counter.finish()
    assert (batch.num_rows, counter.items) == (0, 0)
    assert batch.schema.names == ["word", "count"]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17, 24, 25, 1 << 20])
def test_words_of_every_length_are_told_apart_by_each_byte(length):
    word = bytes(97 + i % 26 for i in range(length))
    changed_at = sorted({0, length // 2, length - 1})
    others = [word[:i] + b"#" + word[i + 1 :] for i in changed_at]
    rows: list[bytes | None] = [word, *others, word + b"a", word]
    assert count_all(rows) == count_words(rows)


def test_words_with_equal_hashes_are_told_apart():
    words = [b"beginning" + middle + b"the-ending" for middle in (b"1", b"2", b"1", b"")]
    data = np.frombuffer(b"".join(words), np.uint8)
    ends = np.cumsum([len(word) for word in words])
    state, index = np.zeros(5, np.int64), np.zeros(16, np.uint64)
    entries, heap = np.zeros(64, np.uint64), np.zeros(100, np.uint8)
    scratch = tuple(np.zeros(8, np.uint64) for _ in range(6))
    taken = split_words(data, ends - [len(word) for word in words], ends, state, *Secret.of(5), scratch)
    scratch[0][:] = 77
    assert tally_words(data, scratch, taken, state, index, entries, heap) == taken == 4
    assert entries.reshape(-1, 4)[1:4, 2].tolist() == [2, 1, 1]


def test_row_ends_end_words_wherever_they_fall():
    data = b"abcdefghijklmnopqrstuvwxyz" * 3
    for width in range(1, 30):
        rows: list[bytes | None] = [data[at : at + width] for at in range(0, len(data), width)]
        assert count_all(rows) == count_words(rows)


def test_lower_folds_ascii_letters_only():
    rows: list[bytes | None] = [bytes(range(256)), b"@AZ[`az{", "ÄÖ".encode()]
    assert count_all(rows, lower=True) == count_words(rows, lower=True)
    assert (b"@az[`az{", 1) in count_all(rows, lower=True)


def test_the_table_grows_and_the_order_of_first_sight_remains():
    words = [f"w{i % 50_000}" for i in range(120_000)]
    counter = WordCounter(room=8)
    counter.count(pa.array([" ".join(words)], pa.string()))
    assert (counter.items, counter.distinct) == (120_000, 50_000)
    batch = counter.finish()
    assert batch.column("word").to_pylist() == [f"w{i}".encode() for i in range(50_000)]


def test_finish_empties_the_table_but_items_go_on_counting():
    counter = WordCounter()
    counter.count(pa.array(["a a b"]))
    counted(counter)
    counter.count(pa.array(["b"]))
    assert (counted(counter), counter.items) == ([(b"b", 1)], 4)
    assert counter.finish().num_rows == 0


def test_numbers_are_no_text():
    with pytest.raises(UsageError):
        WordCounter().count(pa.array([1, 2]))
