"""Scores of outputs, whole and by section; what a bad one is told."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.errors import UsageError
from afspark.lab.scores import (
    SCORE_FORMS,
    CountScore,
    MeanScore,
    OutputScore,
    OwnScore,
    PrecisionScore,
    RecallScore,
    RelativeErrorScore,
    SumScore,
    as_score,
    parse_score,
)
from afspark.lab.sections import SectionsByKey

GAINS = pa.table({"key": [1, 2, 3, 4], "gain": [10.0, 20.0, None, 60.0], "name": ["a", "b", "c", "d"]})
NAMES = ["count", "sum:gain", "mean:gain", "relative-error:key:gain", "precision:key", "recall:key"]


def total(table: pa.Table) -> float:
    return float(sum(value or 0.0 for value in table["gain"].to_pylist()))


@pytest.mark.parametrize(
    ("score", "expected"),
    [(CountScore(), 4.0), (SumScore("gain"), 90.0), (MeanScore("gain"), 30.0), (OwnScore(total), 90.0)],
)
def test_scores_of_a_table(score: OutputScore, expected: float) -> None:
    assert score.of(GAINS) == expected
    assert score.of(GAINS.slice(0, 0)) == 0.0


def test_the_relative_error_is_a_mean_over_keys() -> None:
    golden = pa.table({"key": [1, 1, 2, 3, 4], "gain": [5.0, 5.0, 20.0, 0.0, 0.0]})
    found = pa.table({"key": [1, 2, 3, 4, 5], "gain": [9.0, 30.0, 0.0, 7.0, 1.0]})
    # |9 - 10| / 10, |30 - 20| / 20, both 0, 0 that became 7, and a key that is not there in the golden one
    assert RelativeErrorScore("key", "gain").of(found, golden) == pytest.approx(1 - (0.1 + 0.5 + 0 + 1 + 1) / 5)
    assert RelativeErrorScore("key", "gain").of(golden, golden) == 1.0


def test_precision_and_recall_are_about_keys() -> None:
    golden = pa.table({"key": [1, 2, 3, 4]})
    found = pa.table({"key": [1, 2, 9, 9]})
    assert PrecisionScore("key").of(found, golden) == pytest.approx(2 / 3)
    assert RecallScore("key").of(found, golden) == 0.5
    nothing = golden.slice(0, 0)
    assert PrecisionScore("key").of(nothing, golden) == RecallScore("key").of(nothing, golden) == 0.0
    assert PrecisionScore("key").of(nothing, nothing) == RecallScore("key").of(nothing, nothing) == 1.0
    assert RecallScore("key").of(found, nothing) == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_read_again(name: str) -> None:
    assert parse_score(name).name == name
    assert as_score(name) == parse_score(name)


def test_every_form_of_the_help_is_a_score() -> None:
    assert [parse_score(form.lower()).name for form in SCORE_FORMS] == [form.lower() for form in SCORE_FORMS]


def test_a_function_of_the_users_is_found_by_its_name() -> None:
    assert parse_score("total", {"total": total}).of(GAINS) == as_score(total).of(GAINS) == 90.0
    assert as_score(total).name == "total"


@pytest.mark.parametrize("text", ["", "sum", "sum:", "sum:a:b", "count:gain", "median:gain", "relative-error:key"])
def test_what_is_no_score_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no score"):
        parse_score(text, {"total": total})
    with pytest.raises(UsageError, match="is no score"):
        as_score(7)  # type: ignore[arg-type]


def raises(table: pa.Table) -> float:
    raise KeyError("gain")


@pytest.mark.parametrize(
    ("score", "says"),
    [
        (OwnScore(raises), "The score 'raises' raised KeyError: 'gain'"),
        (OwnScore(lambda table: math.nan, "mine"), "The score 'mine' of 4 rows is nan"),
        (OwnScore(lambda table: math.inf, "mine"), "The score 'mine' of 4 rows is inf"),
        (OwnScore(lambda table: "much", "mine"), "gave str instead of a number"),
        (SumScore("loss"), "needs column 'loss', and the output has key, gain, name"),
        (MeanScore("name"), "needs numbers, and column 'name' has string"),
        (PrecisionScore("id"), "needs column 'id'"),
    ],
)
def test_a_bad_score_is_told_in_one_line(score: OutputScore, says: str) -> None:
    numbers = np.zeros(4, dtype=np.int64)
    with pytest.raises(UsageError) as one:
        score.of(GAINS, GAINS)
    with pytest.raises(UsageError) as other:
        score.by_section(GAINS, numbers, 1, GAINS, numbers)
    assert says in str(one.value) and "\n" not in str(one.value)
    assert says.split(" of 4 rows", maxsplit=1)[0] in str(other.value)


def test_nan_in_a_column_is_told_with_its_section() -> None:
    bad = pa.table({"gain": [1.0, math.nan]})
    with pytest.raises(UsageError, match="'sum:gain' of section 3 is nan"):
        SumScore("gain").by_section(bad, np.array([0, 3]), 4)


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(-1e6, 1e6)), max_size=60), st.sampled_from(NAMES))
def test_sections_score_as_their_rows_do(rows: list[tuple[int, float]], name: str) -> None:
    rows = sorted(rows)
    table = pa.table(
        {"key": pa.array([k for k, _ in rows], pa.int64()), "gain": pa.array([g for _, g in rows], pa.float64())}
    )
    golden = pa.table({"key": list(range(0, 41, 2)), "gain": [float(k) for k in range(0, 41, 2)]})
    sections, score = SectionsByKey("key", 10), parse_score(name)
    found = score.by_section(table, sections.numbers(table), 5, golden, sections.numbers(golden))
    for at in range(5):
        part, right = (one.filter(pa.array(sections.numbers(one) == at)) for one in (table, golden))
        assert found[at] == pytest.approx(score.of(part, right), rel=1e-9, abs=1e-6)


def test_a_score_that_compares_wants_something_to_compare_with() -> None:
    with pytest.raises(ValueError, match="golden"):
        RecallScore("key").of(GAINS)
    with pytest.raises(ValueError, match="golden"):
        RecallScore("key").by_section(GAINS, np.zeros(4, dtype=np.int64), 1, GAINS)
