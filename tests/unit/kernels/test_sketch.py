"""Count-Min kernels against their numpy twin, and what a sketch promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.errors import UsageError
from afspark.model.kernels import sketch
from tests.twins import sketch_twin as twin

GOLDEN_COLUMNS = [[0, 2945], [1, 6090], [2, 545], [3, 4105]]
FACTORS = [int(factor) for factor in sketch.ROW_FACTORS]
# Few different keys, so that they repeat; 0 is the hash that needs special care.
HASHES = st.lists(st.one_of(st.integers(0, 2), st.integers(0, 2**64 - 1)), max_size=60)
SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 20))


@st.composite
def streams(draw, kind=None):
    hashes = np.array(draw(HASHES), np.uint64)
    kind = kind or draw(st.sampled_from([np.int64, np.float64]))
    weights = draw(st.lists(st.integers(-50, 1000), min_size=len(hashes), max_size=len(hashes)))
    return draw(SHAPES), hashes, np.array(weights, kind)


def test_golden_columns():
    delta = np.zeros((4, 8000), np.int64)
    sketch.update(delta, np.array([0xDEADBEEFCAFEF00D], np.uint64), 1)
    assert np.argwhere(delta).tolist() == GOLDEN_COLUMNS


@given(streams())
def test_update_and_estimate_equal_the_twin(stream):
    shape, hashes, weights = stream
    delta, expected = np.zeros(shape, weights.dtype), np.zeros(shape, weights.dtype)
    sketch.update(delta, hashes, weights)
    twin.update(expected, hashes, weights, FACTORS)
    assert (delta == expected).all()
    assert (sketch.estimate(delta, hashes) == twin.estimate(expected, hashes, FACTORS)).all()


@given(streams(), st.integers(0, 60))
def test_two_calls_equal_one(stream, cut):
    shape, hashes, weights = stream
    once, twice = np.zeros(shape, weights.dtype), np.zeros(shape, weights.dtype)
    sketch.update(once, hashes, weights)
    sketch.update(twice, hashes[:cut], weights[:cut])
    sketch.update(twice, hashes[cut:], weights[cut:])
    assert (once == twice).all()


@given(streams(), st.integers(0, 60), st.integers(-10, 3000))
def test_finding_equals_the_twin_over_two_calls(stream, cut, hint):
    shape, hashes, weights = stream
    matrix = np.arange(shape[0] * shape[1]).reshape(shape).astype(weights.dtype)
    expected = matrix.copy()
    seen = sketch.SeenKeys()
    plain_seen: set[int] = set()
    for part in (slice(None, cut), slice(cut, None)):
        found = sketch.update_and_find(matrix, hashes[part], weights[part], hint, seen)
        plain = twin.update_and_find(expected, hashes[part], weights[part], hint, plain_seen, FACTORS)
        assert found.tolist() == plain
    assert (matrix == expected).all()
    assert len(seen) == len(plain_seen)


def test_the_set_of_seen_keys_grows_inside_a_call():
    hashes = np.random.default_rng(5).integers(0, 2**64, 20_000, np.uint64)
    hashes = np.concatenate((hashes, [np.uint64(0)], hashes, [np.uint64(0)]))
    matrix, plain = (np.zeros((2, 64), np.int64) for _ in range(2))
    seen = sketch.SeenKeys()
    found = sketch.update_and_find(matrix, hashes, 3, 1, seen)
    assert found.tolist() == list(range(20_001))
    assert len(seen) == 20_001
    sketch.update(plain, hashes, 3)
    assert (matrix == plain).all()
    assert sketch.update_and_find(matrix, hashes, 3, 1, seen).tolist() == []


def test_an_estimate_is_never_too_low_and_seldom_much_too_high():
    random = np.random.default_rng(7)
    keys = random.integers(0, 2**64, 2_000, np.uint64)
    picked = random.zipf(1.2, 50_000) % len(keys)
    weights = random.integers(40, 1501, len(picked))
    matrix = np.zeros((4, 800), np.int64)
    sketch.update(matrix, keys[picked], weights)
    truth = np.bincount(picked, weights, len(keys)).astype(np.int64)
    over = sketch.estimate(matrix, keys) - truth
    assert over.min() >= 0
    # Markov per row, four independent rows: beyond 2 x mean with chance at most 1/16.
    assert (over > 2 * weights.sum() / 800).mean() < 1 / 16


def test_weights_may_be_one_number_or_read_only():
    hashes = np.arange(10, dtype=np.uint64)
    ones = np.ones(10, np.int32)
    ones.flags.writeable = False
    by_number, by_array = np.zeros((3, 7)), np.zeros((3, 7))
    sketch.update(by_number, hashes, 1)
    sketch.update(by_array, hashes, ones)
    assert by_number.sum() == 30
    assert (by_number == by_array).all()


@pytest.mark.parametrize("shape", [(0, 4), (sketch.MAX_ROWS + 1, 4), (2, 0)])
def test_impossible_shapes_are_refused(shape):
    with pytest.raises(UsageError) as caught:
        sketch.update(np.zeros(shape, np.int64), np.zeros(0, np.uint64), 1)
    assert caught.value.shape == shape


def test_unequal_lengths_are_refused():
    two = np.zeros(2, np.uint64)
    with pytest.raises(UsageError):
        sketch.update(np.zeros((2, 4)), two, np.ones(3))
    with pytest.raises(UsageError):
        sketch.update_and_find(np.zeros((2, 4)), two, np.ones(3), 1.0, sketch.SeenKeys())
