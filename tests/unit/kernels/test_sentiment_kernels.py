"""Words of texts: found, looked up and scored as the plain twin does it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from afspark.model.kernels.sentiment_kernels import match_words, score_texts, word_hash, word_table
from tests.twins import sentiment_twin as twin

VALUES = {"good": 1.9, "bad": -2.5, "don't": 0.5, "größe": 1.0, "gr8": 2.2, "nothing": -0.3}
NEGATIONS = {"not", "never", "nothing"}
WORDS = [*VALUES, *(word for word in NEGATIONS if word not in VALUES)]
KEYWORDS = ["spark", "#flink", "good", "größe", "#spark"]

ODD = ("'bad'", "#", "@good", "-", "'", "\u2019", "…", "0", "_a", "\u201cgood\u201d", "good\U0001f600", "\u00a0")
OTHER = ("Spark", "#spark", "#Flink", "flink", "GOOD", "don\u2019t", "Größe", "the", "x", "漢字", "é")
pieces = st.sampled_from([*WORDS, *OTHER, *ODD])
texts = st.lists(st.lists(st.tuples(pieces, st.sampled_from([" ", "", "\n", ", "])), max_size=12), max_size=8).map(
    lambda rows: ["".join(piece + gap for piece, gap in row) for row in rows]
)


def scores(rows: list[str | None], kind: pa.DataType) -> list[float]:
    table = word_table(WORDS)
    values = np.array([VALUES.get(word, 0.0) for word in WORDS])
    negates = np.array([word in NEGATIONS for word in WORDS])
    return score_texts(pa.array(rows, kind), table, values, negates).tolist()


@given(rows=texts, wide=st.booleans())
@example(rows=["not \u2019 good", "good\u2019", "#", ""], wide=False)
def test_scores_are_those_of_the_twin(rows: list[str], wide: bool) -> None:
    expected = [twin.score(text, VALUES, NEGATIONS) for text in rows]
    assert scores([*rows], pa.large_string() if wide else pa.string()) == expected


@given(rows=st.lists(st.text(), max_size=6))
def test_any_text_will_do(rows: list[str]) -> None:
    assert scores([*rows], pa.string()) == [twin.score(text, VALUES, NEGATIONS) for text in rows]


@given(rows=texts)
def test_matches_are_those_of_the_twin(rows: list[str]) -> None:
    found = match_words(pa.array(rows, pa.string()), word_table(KEYWORDS))
    expected = [(row, place) for row, text in enumerate(rows) for place in twin.matches(text, KEYWORDS)]
    assert list(zip(*(part.tolist() for part in found), strict=True)) == expected


def test_a_score_lies_between_its_ends_and_is_a_multiple_of_a_step() -> None:
    (least, none, most, null, turned) = scores(
        ["bad " * 1000, "the rest", "good " * 1000, None, "that is not very good"], pa.string()
    )
    assert -1 <= least < -0.99 and 0.99 < most <= 1 and none == null == 0
    assert turned < 0 and turned * 1024 == int(turned * 1024)


def test_slices_are_honoured() -> None:
    rows = pa.array(["good", "bad", "good good", "spark"])
    found = match_words(rows.slice(2), word_table(KEYWORDS))
    assert [part.tolist() for part in found] == [[0, 1], [2, 0]]


@pytest.mark.parametrize("word", ["", " ", "#", "##a", "@a", "two words", "a-b", "a'", "'a", "\U0001f600", "a\u201d"])
def test_what_is_not_one_word_has_no_hash(word: str) -> None:
    assert word_hash(word) is None


def test_bytes_that_are_no_text_do_no_harm() -> None:
    rows = pa.array([b"\xe2", b"good\xe2\x80", b"\xf0\x9f", b"\xff good"]).view(pa.string())
    table = word_table(["good"])
    assert match_words(rows, table)[0].tolist() == [1]
