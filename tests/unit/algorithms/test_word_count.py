"""WordCount on a worker of its own."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.algorithms import WordCount
from afspark.errors import UsageError
from afspark.policies import Approximate, MiniBatch
from tests.unit.algorithms.alone import Alone

texts = st.lists(st.text(st.sampled_from("ab \n\tÄé"), max_size=30), max_size=6)


def lines(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.string())})


def counts(alone: Alone) -> dict[str, int]:
    rows = alone.operator.rows(alone.states["counts"].export())
    return dict(zip(rows.column("word").to_pylist(), rows.column("count").to_pylist(), strict=True))


def recount(values: list[str]) -> Counter[str]:
    """Words end at ASCII white space only."""
    return Counter(word.decode() for value in values for word in value.encode().split())


@given(batches=st.lists(texts, max_size=4))
def test_it_counts_what_is_there(batches: list[list[str]]) -> None:
    alone = Alone(WordCount(), MiniBatch())
    for values in batches:
        alone.apply([lines(*values)])
    assert counts(alone) == recount([value for values in batches for value in values])


def test_lower_folds_ascii_only() -> None:
    alone = Alone(WordCount(lower=True), MiniBatch())
    alone.apply([lines("To be TO BE Ä ä")])
    assert counts(alone) == {"to": 2, "be": 2, "Ä": 1, "ä": 1}


@given(value=st.text(st.sampled_from("ab \n\tÄ"), min_size=1, max_size=30))
def test_an_item_of_declared_length_has_no_word_more_often_than_alpha(value: str) -> None:
    size = len(value.encode())
    operator = WordCount(longest=size)
    Alone(operator, MiniBatch()).apply([lines(value)])
    assert operator.alpha is not None and max(recount([value]).values(), default=0) <= operator.alpha
    assert max(recount([" ".join("a" * ((size + 1) // 2))]).values()) == operator.alpha
    with pytest.raises(UsageError, match="more than"):
        Alone(operator, MiniBatch()).apply([lines("a", value + "a")])


def test_without_a_declared_length_nothing_is_known_of_an_item() -> None:
    assert WordCount().alpha is None
    assert WordCount(longest=9).fingerprint() != WordCount().fingerprint()
    with pytest.raises(UsageError):
        WordCount(longest=0)


def test_changed_rows_are_those_of_the_batch_with_their_totals() -> None:
    alone = Alone(WordCount(), MiniBatch())
    alone.apply([lines("a a b")])
    alone.apply([lines("b c")])
    changed = alone.operator.changed(alone.states)
    assert changed is not None
    assert {(row["word"], row["count"]) for row in changed.to_pylist()} == {("b", 2), ("c", 1)}


@given(batches=st.lists(texts, min_size=1, max_size=6), failing=st.sets(st.integers(0, 5)), theta=st.integers(0, 20))
def test_failures_stay_inside_the_bound(batches: list[list[str]], failing: set[int], theta: int) -> None:
    alone = Alone(WordCount(), Approximate(theta))
    for number, values in enumerate(batches):
        alone.apply([lines(*values)])
        if number in failing:
            alone.fail()
    truth, got = recount([value for values in batches for value in values]), counts(alone)
    assert all(0 <= truth[word] - got.get(word, 0) <= alone.missing["counts"] for word in truth)
    assert alone.missing["counts"] <= theta and got.keys() <= truth.keys()


@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        (pa.schema([("value", pa.string())]), True),
        (pa.schema([("value", pa.large_binary())]), True),
        (None, True),
        (pa.schema([("value", pa.int64())]), False),
        (pa.schema([("text", pa.string())]), False),
    ],
    ids=str,
)
def test_it_needs_a_column_of_text(schema: pa.Schema | None, fits: bool) -> None:
    if fits:
        WordCount().check(schema)
        return
    with pytest.raises(UsageError) as caught:
        WordCount().check(schema)
    assert caught.value.column == "value"


def test_fingerprints_tell_settings_apart() -> None:
    kinds = [WordCount(), WordCount(lower=True), WordCount(column="text")]
    assert len({str(operator.fingerprint()) for operator in kinds}) == 3
    assert WordCount().fingerprint() == WordCount().fingerprint()
