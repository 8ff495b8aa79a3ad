"""Grep against Python's own searching, on rows of lines and on blocks of them."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.algorithms import Grep
from afspark.errors import UsageError
from afspark.model.preconditions import check_operator
from afspark.policies import Approximate, MiniBatch
from tests.twins.lines_twin import all_lines
from tests.unit.algorithms.alone import Alone

LINES = st.lists(st.text(st.sampled_from("abAB .\u00e9"), max_size=12), max_size=30)
LITERALS = st.sampled_from(["a", "ab", "A", "b.", ".", "\u00e9", " a", ""])
#: expressions that Python and RE2 read alike
EXPRESSIONS = st.sampled_from(
    ["a", "^a", "b$", "^$", "a.b", "a|\u00e9", "(?:ab)+", "[^a]b", r"a\b", r"\Aa", r"b\z", "(?i)ab"]
)
TAILS = st.sampled_from(["\n", "\r\n"])


def grep(operator: Grep, *values: Any, kind: pa.DataType | None = None) -> list[Any]:
    sent = operator.process(pa.record_batch({"value": pa.array(values, kind or pa.string())}), {})
    return sent.column("value").to_pylist()


def expected(operator: Grep, lines: list[str]) -> list[str]:
    pattern = operator.pattern if operator.regex else re.escape(operator.pattern)
    flags = re.IGNORECASE if operator.ignore_case else re.NOFLAG
    found = re.compile(pattern.replace(r"\z", r"\Z").replace("$", r"\Z"), flags)
    return [line for line in lines if bool(found.search(line)) != operator.invert]


def operators() -> st.SearchStrategy[Grep]:
    flags = {"ignore_case": st.booleans(), "invert": st.booleans()}
    literal = st.builds(Grep, LITERALS, **flags)
    return st.one_of(literal, st.builds(Grep, EXPRESSIONS, regex=st.just(True), **flags))


@given(operator=operators(), lines=LINES)
def test_rows_are_lines(operator: Grep, lines: list[str]) -> None:
    assert grep(operator, *lines) == expected(operator, lines)


@given(operator=operators(), blocks=st.lists(LINES, max_size=3), tail=TAILS, whole=st.booleans())
def test_blocks_give_the_same_lines(operator: Grep, blocks: list[list[str]], tail: str, whole: bool) -> None:
    texts = ["".join(line + tail for line in lines) + ("" if whole else "ab") for lines in blocks]
    lines = [line.decode() for line in all_lines(text.encode() for text in texts)]
    assert grep(operator, *[text.encode() for text in texts], kind=pa.large_binary()) == expected(operator, lines)


def test_rows_keep_their_other_columns() -> None:
    rows = pa.record_batch({"at": [1, 2, 3], "value": ["x error", "fine", "error y"]})
    sent = Grep("error").process(rows, {})
    assert sent.to_pydict() == {"at": [1, 3], "value": ["x error", "error y"]}


def test_bytes_that_are_no_text_come_through() -> None:
    sent = Grep("x").process(pa.record_batch({"value": pa.array([b"\xffx\nno\n"])}), {})
    assert sent.column("value").cast(pa.binary()).to_pylist() == [b"\xffx"]


def test_missing_lines_are_skipped_and_counted() -> None:
    alone = Alone(Grep("a", count=True), MiniBatch())
    alone.apply([pa.record_batch({"value": ["a", None, "b", "ca"]}), pa.record_batch({"value": [b"a\n\nb"]})])
    assert alone.operator.results([alone.share()]).to_pylist() == [{"seen": 6, "matched": 3, "skipped": 1}]


def test_missing_lines_stop_the_query_if_wished() -> None:
    with pytest.raises(UsageError) as caught:
        grep(Grep("a", on_bad="stop"), "a", None)
    assert caught.value.rows == 1


def test_without_counts_there_is_no_state() -> None:
    assert Grep("a").states() == {}
    with pytest.raises(UsageError):
        Grep("a").results([])


@given(batches=st.lists(LINES, min_size=1, max_size=6), failing=st.sets(st.integers(0, 5)), theta=st.integers(0, 20))
def test_counts_stay_inside_the_bound(batches: list[list[str]], failing: set[int], theta: int) -> None:
    alone = Alone(Grep("a", count=True), Approximate(theta))
    for number, lines in enumerate(batches):
        alone.apply([pa.record_batch({"value": pa.array(lines, pa.string())})])
        if number in failing:
            alone.fail()
    (row,) = alone.operator.results([alone.share()]).to_pylist()
    assert 0 <= sum(map(len, batches)) - row["seen"] <= alone.missing["seen"] <= theta


def test_precondition() -> None:
    rows = pa.record_batch({"value": ["a", "b", None, "ab"] * 5})
    check_operator(Grep("a", count=True), [rows, rows]).raise_if_broken()


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "a{99999}", "(?<=a)b", r"(a)\1"])
def test_expressions_that_are_none_are_refused_in_one_line(pattern: str) -> None:
    with pytest.raises(UsageError) as caught:
        Grep(pattern, regex=True)
    assert caught.value.pattern == pattern and "\n" not in str(caught.value)
    Grep(pattern)


def test_other_settings_are_checked() -> None:
    for wrong in ({"pattern": "a\nb"}, {"pattern": "a", "on_bad": "ignore"}):
        with pytest.raises(UsageError):
            Grep(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("schema", [pa.schema([("value", pa.int64())]), pa.schema([("text", pa.string())])], ids=str)
def test_it_needs_a_column_of_text(schema: pa.Schema) -> None:
    with pytest.raises(UsageError) as caught:
        Grep("a").check(schema)
    assert caught.value.column == "value"
    Grep("a").check(None)


@pytest.mark.parametrize(("kind", "alpha"), [(pa.string(), 1.0), (pa.large_binary(), None)])
def test_a_row_of_text_is_one_line_and_a_block_any_number(kind: pa.DataType, alpha: float | None) -> None:
    operator = Grep("a")
    operator.check(pa.schema({"value": kind}))
    assert operator.alpha == alpha


def test_fingerprints_tell_settings_apart() -> None:
    kinds = [Grep("a"), Grep("b"), Grep("a", regex=True), Grep("a", invert=True), Grep("a", column="text")]
    assert len({str(operator.fingerprint()) for operator in kinds}) == len(kinds)
