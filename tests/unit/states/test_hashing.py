"""The hash is a contract between processes and with stored backups: these values never change."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afspark.errors import UsageError
from afspark.model.kernels import hashing, table_kernels
from afspark.model.kernels.plain_arrays import byte_buffers
from tests.twins import hashing_twin as twin

GOLDEN_BYTES = {
    b"": 0xE220A8397B1DCDAF,
    b"a": 0x59ABB9C2FE25C125,
    b"the": 0x809025A603423AC5,
    b"afspark": 0xF087048DDD1CC979,
    b"12345678": 0x50F458B94AFB9471,
    b"123456789": 0x5246003CBBC8415F,
    bytes(range(64)): 0xB0C821EA7A32566A,
}
GOLDEN_INTEGERS = {
    0: 0xE220A8397B1DCDAF,
    1: 0x910A2DEC89025CC1,
    -1: 0xE4D971771B652C20,
    42: 0xBDD732262FEB6E95,
    2**63 - 1: 0x2A67D7552E039EA7,
    -(2**63): 0x481EC0A212A9F3DB,
}


@pytest.mark.parametrize("word", GOLDEN_BYTES)
def test_golden_bytes(word: bytes) -> None:
    assert twin.hash_bytes(word) == GOLDEN_BYTES[word]
    assert hashing.hash_strings(pa.array([word])).tolist() == [GOLDEN_BYTES[word]]


@pytest.mark.parametrize("number", GOLDEN_INTEGERS)
def test_golden_integers(number: int) -> None:
    assert twin.hash_int64(number) == GOLDEN_INTEGERS[number]
    assert int(hashing.hash_int64(np.int64(number))) == GOLDEN_INTEGERS[number]


def test_golden_tuples() -> None:
    batch = pa.record_batch({"word": ["the", None], "count": pa.array([42, 1], pa.int16())})
    expected = [twin.combine(twin.hash_bytes(b"the"), twin.hash_int64(42)), 0x2FC4FBF661F3EBB3]
    assert hashing.hash_columns(batch, ["word", "count"]).tolist() == expected
    assert hashing.hash_columns(batch, ["count", "word"])[0] != expected[0]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40)), st.integers(0, 20), st.integers(0, 20))
def test_arrays_agree_with_the_twin_wherever_the_bytes_lie(words: list[bytes], start: int, count: int) -> None:
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        piece = pa.array(words, kind).slice(start, count)
        assert hashing.hash_strings(piece).tolist() == [twin.hash_bytes(word) for word in piece.to_pylist()]


@settings(deadline=None)
@given(st.binary(max_size=12), st.binary(max_size=40), st.binary(max_size=12))
def test_bytes_around_a_key_do_not_matter(before: bytes, word: bytes, after: bytes) -> None:
    data = np.frombuffer(before + word + after, np.uint8)
    assert int(hashing.hash_bytes(data, len(before), len(before) + len(word))) == twin.hash_bytes(word)


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_width_of_integers_does_not_matter(kind: str) -> None:
    batch = pa.record_batch({"x": pa.array([7, None, 100], kind)})
    expected = [twin.hash_int64(7), int(hashing.NULL_HASH), twin.hash_int64(100)]
    assert hashing.hash_columns(batch, ["x"]).tolist() == expected


def test_unsigned_beyond_int64_wraps() -> None:
    batch = pa.record_batch({"x": pa.array([2**64 - 1], pa.uint64())})
    assert hashing.hash_columns(batch, ["x"]).tolist() == [twin.hash_int64(-1)]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40)), st.integers(-(2**63), 2**63 - 1), st.integers(1, 2**63 - 1))
def test_secret_hashes_agree_with_their_twins(words: list[bytes], number: int, seed: int) -> None:
    secret = hashing.Secret.of(seed)
    assert tuple(map(int, secret)) == (seed, twin.secret_factor(seed)) and int(secret.factor) % 2 == 1
    out = np.empty(len(words), np.uint64)
    table_kernels.secret_spans(*byte_buffers(pa.array(words, pa.binary())), *secret, out)
    assert out.tolist() == [twin.secret_bytes(word, seed) for word in words]
    assert int(hashing.secret_int64(np.int64(number), secret.seed)) == twin.secret_int64(number, seed)


def test_floats_that_are_equal_hash_alike() -> None:
    other_nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    for kind in (pa.float32(), pa.float64()):
        batch = pa.record_batch({"x": pa.array([0.0, -0.0, np.nan, other_nan, 1.5, 2.5]).cast(kind)})
        zero, minus_zero, nan, nan_too, some, other = hashing.hash_columns(batch, ["x"]).tolist()
        assert zero == minus_zero == twin.hash_int64(0)
        assert nan == nan_too
        assert len({zero, nan, some, other}) == 4


@pytest.mark.parametrize(
    ("values", "kind", "count"),
    [
        ([dt.date(1970, 1, 3)], pa.date32(), 2),
        ([dt.date(1970, 1, 3)], pa.date64(), 2 * 86_400_000),
        ([dt.datetime(1970, 1, 1, 0, 0, 5)], pa.timestamp("us"), 5_000_000),
        ([dt.time(0, 0, 5)], pa.time32("s"), 5),
        ([dt.time(0, 0, 5)], pa.time64("us"), 5_000_000),
        ([dt.timedelta(seconds=5)], pa.duration("ms"), 5000),
        ([True], pa.bool_(), 1),
    ],
)
def test_times_and_flags_hash_as_their_count(values: list[object], kind: pa.DataType, count: int) -> None:
    batch = pa.record_batch({"x": pa.array([*values, None], kind)})
    assert hashing.hash_columns(batch, ["x"]).tolist() == [twin.hash_int64(count), int(hashing.NULL_HASH)]


def test_dictionaries_hash_as_their_values() -> None:
    words = pa.array(["b", "a", "b"])
    batch = pa.record_batch({"x": words.dictionary_encode()})
    assert hashing.hash_columns(batch, ["x"]).tolist() == hashing.hash_strings(words).tolist()


def test_every_input_bit_reaches_every_output_bit() -> None:
    """Avalanche, measured: flipping an input bit flips each output bit in about half of the samples."""
    random = np.random.default_rng(0)
    samples = random.integers(0, 2**63, 400)
    for width in (3, 8, 13):
        words = random.integers(0, 256, (400, width), dtype=np.uint8)
        for bit in range(0, 8 * width, 5):
            flipped = words.copy()
            flipped[:, bit // 8] ^= np.uint8(1 << bit % 8)
            change = _hash_rows(words) ^ _hash_rows(flipped)
            shares = ((change[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).mean(axis=0)
            assert shares.min() > 0.3 and shares.max() < 0.7
    change = _hash_numbers(samples) ^ _hash_numbers(samples ^ 1)
    shares = ((change[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).mean(axis=0)
    assert shares.min() > 0.3 and shares.max() < 0.7


def test_refusals_name_the_column() -> None:
    batch = pa.record_batch({"x": pa.array([[1]], pa.list_(pa.int64()))})
    with pytest.raises(UsageError) as refused:
        hashing.hash_columns(batch, ["x"])
    assert refused.value.column == "x"
    with pytest.raises(UsageError) as refused:
        hashing.hash_columns(batch, ["y"])
    assert refused.value.column == "y"
    with pytest.raises(UsageError):
        hashing.hash_columns(batch, [])


def _hash_rows(words: np.ndarray) -> np.ndarray:
    return hashing.hash_strings(pa.array([row.tobytes() for row in words]))


def _hash_numbers(numbers: np.ndarray) -> np.ndarray:
    return hashing.hash_columns(pa.record_batch({"x": numbers}), ["x"])
