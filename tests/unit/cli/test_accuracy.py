"""Errors are measured as the thresholds mean them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from afspark.model.kernels.hashing import hash_columns
from afspark.model.kernels.sketch import ROW_FACTORS
from afspark.report.accuracy import WordErrors, exact_sketch, hitter_errors, word_errors
from tests.twins import sketch_twin as twin

COUNTS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(1, 100))


def counts_table(counts: dict[str, int]) -> pa.Table:
    return pa.table({"word": pa.array(list(counts), pa.string()), "count": pa.array(list(counts.values()), pa.int64())})


@given(ours=COUNTS, exact=COUNTS)
def test_word_errors(ours: dict[str, int], exact: dict[str, int]) -> None:
    differences = [abs(ours.get(word, 0) - exact.get(word, 0)) for word in ours | exact]
    assert word_errors(counts_table(ours), counts_table(exact)) == WordErrors(
        largest=max(differences, default=0),
        words_wrong=sum(difference > 0 for difference in differences),
        total=sum(differences),
        words=len(exact),
    )


TOTALS = pa.table({"k": [1, 2, 3, 4], "total": [100, 90, 20, 10]})


def test_the_exact_sketch_is_that_of_the_twin() -> None:
    expected = np.zeros((4, 16), np.int64)
    hashes = hash_columns(TOTALS.combine_chunks().to_batches()[0], ["k"])
    twin.update(expected, hashes, TOTALS.column("total").to_numpy(), [int(factor) for factor in ROW_FACTORS])
    np.testing.assert_array_equal(exact_sketch(TOTALS, ["k"], (4, 16), "int64"), expected)


def test_hitters_found_missed_and_invented() -> None:
    sketch = exact_sketch(TOTALS, ["k"], (2, 64), "int64")
    sketch[1, 5] += 7
    sketch[0, 3] -= 3
    reported = pa.table({"k": [1, 3, 4], "estimate": [100, 70, 60]})
    errors = hitter_errors(reported, TOTALS, keys=["k"], threshold=90, sketch=sketch)
    assert (errors.largest, errors.precision, errors.recall) == (7.0, 1 / 3, 1 / 2)
    assert (errors.reported, errors.true) == (3, 2)


def test_nothing_reported_and_nothing_true_is_perfect() -> None:
    sketch = exact_sketch(TOTALS, ["k"], (2, 64), "int64")
    errors = hitter_errors(TOTALS.slice(0, 0), TOTALS, keys=["k"], threshold=1000, sketch=sketch)
    assert (errors.largest, errors.precision, errors.recall) == (0.0, 1.0, 1.0)
