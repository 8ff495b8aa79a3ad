"""Batches of repetitions: seeded, complete, and with one that begins at every offset."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.lab.interleaving import interleave
from tests.unit.lab.small_pipelines import rows


@pytest.mark.parametrize("sizes", [(10_000,), (7_000, 3_000), (500, 400, 9_100)])
@pytest.mark.parametrize("seed", range(5))
def test_batches_have_all_items_and_begin_at_the_offsets(sizes: tuple[int, ...], seed: int) -> None:
    offsets = [1_000, 3_333, 9_000]
    found = interleave(sizes, offsets, batch_items=400, seed=seed)
    assert found.reached[-1].tolist() == list(sizes)
    taken = np.diff(found.reached, axis=0, prepend=0)
    assert (taken >= 1).all()
    for offset in offsets:
        begun = int(found.reached[found.batch_of(offset) - 1].sum())
        # No input is without items in any batch, which may take more of one than its share.
        assert begun == offset if len(sizes) == 1 else abs(begun - offset) <= 2 * len(found.ends)


def test_a_seed_makes_the_same_batches_again_and_another_one_others() -> None:
    made = [interleave((5_000, 5_000), [2_500], batch_items=300, seed=seed).reached for seed in (1, 1, 2)]
    assert np.array_equal(made[0], made[1])
    assert not np.array_equal(made[0], made[2])


def test_inputs_advance_by_their_times() -> None:
    times = [np.arange(0.0, 100.0), np.arange(50.0, 150.0)]
    found = interleave((100, 100), [50], batch_items=50, seed=1, times=times)
    first = found.reached[found.batch_of(50) - 1]
    assert first[0] >= 48 and first[1] <= 3


def test_items_move_over_a_few_neighbours_at_most() -> None:
    table = rows(2_000)
    found = interleave((2_000,), [1_000], batch_items=300, seed=3, jitter=10)
    ids = pa.concat_tables(found.batches(0, table))["id"].to_numpy()
    assert sorted(ids) == list(range(2_000))
    assert 0 < np.abs(ids - np.arange(2_000)).max() <= 10


@pytest.mark.parametrize("offset", [0, 10_000, 20_000])
def test_an_offset_behind_the_end_is_refused(offset: int) -> None:
    with pytest.raises(UsageError, match="is not within the input"):
        interleave((10_000,), [offset], batch_items=100, seed=1)


def test_an_input_that_is_too_short_for_the_batches_is_refused() -> None:
    with pytest.raises(UsageError, match="too short"):
        interleave((10_000, 3), [5_000], batch_items=100, seed=1)
