"""The affected section of an output, and its local sections."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.lab.sections import (
    AffectedKeys,
    AffectedRange,
    AffectedRows,
    FaultSpan,
    SectionsByKey,
    SectionsByRows,
    SectionsByTime,
    parse_sections,
)

SPAN = FaultSpan(target="filter", offset=10, items=5, first_key=20, last_key=30)
OUTPUT = pa.table({"key": list(range(0, 60, 5)), "gain": [float(k) for k in range(12)]})


def test_the_estimated_section_is_that_of_the_outage_or_a_multiple_of_it() -> None:
    assert AffectedRange("key").select(OUTPUT, SPAN)["key"].to_pylist() == [20, 25, 30]
    assert AffectedRange("key", stretch=2.0).select(OUTPUT, SPAN)["key"].to_pylist() == [20, 25, 30, 35, 40]


def test_a_user_says_which_rows_are_affected() -> None:
    def late(output: pa.Table, span: FaultSpan) -> Any:
        return output["key"].to_numpy() > span.last_key + 20

    assert AffectedRows(late).select(OUTPUT, SPAN)["key"].to_pylist() == [55]


@pytest.mark.parametrize(
    ("predicate", "says"),
    [
        (lambda output, span: output["keys"], "raised KeyError"),
        (lambda output, span: np.zeros(3, dtype=bool), r"bool of shape \(3,\) for 12 rows"),
        (lambda output, span: output["key"].to_numpy(), "int64"),
    ],
)
def test_a_bad_predicate_is_told(predicate: Callable[..., Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        AffectedRows(predicate).select(OUTPUT, SPAN)


def test_affected_keys_are_those_removed_changed_or_added() -> None:
    golden = pa.table({"key": [1, 2, 3, 4, 5], "gain": [1.0, 2.0, None, 4.0, 5.0], "note": list("abcde")})
    faulty = pa.table({"key": [1, 2, 3, 5, 5, 6], "gain": [1.0, 2.5, None, 5.0, 5.0, 6.0], "note": list("xbceef")})
    assert sorted(AffectedKeys.between(golden, faulty, "key").keys.to_pylist()) == [1, 2, 4, 5, 6]
    by_gain = AffectedKeys.between(golden, faulty, "key", ["gain"])
    assert sorted(by_gain.keys.to_pylist()) == [2, 4, 5, 6]
    assert by_gain.select(golden)["key"].to_pylist() == [2, 4, 5]
    assert AffectedKeys.between(golden, golden, "key").keys.to_pylist() == []


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        (SectionsByKey("key", 20), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]),
        (SectionsByKey("key", 20, begin=-10), [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3]),
        (SectionsByRows(5), [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2]),
        (SectionsByTime("gain", 2.5), [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4]),
    ],
)
def test_rows_have_their_sections(sections: Any, expected: list[int]) -> None:
    assert sections.numbers(OUTPUT).tolist() == expected
    assert sections.count(OUTPUT) == max(expected) + 1
    assert sections.numbers(OUTPUT, 2).tolist() == [min(number, 1) for number in expected]
    assert sections.count(OUTPUT.slice(0, 0)) == 0


def test_rows_before_the_first_golden_one_are_in_the_first_section() -> None:
    assert SectionsByKey("key", 20, begin=20).numbers(OUTPUT, 3).tolist() == [0] * 8 + [1] * 4


def test_sections_begin_with_the_first_row() -> None:
    late = SectionsByKey("key", 20).beginning_with(OUTPUT.slice(9))
    assert late == SectionsByKey("key", 20, begin=40.0)
    assert SectionsByTime("gain", 2.5).beginning_with(OUTPUT.slice(9)).numbers(OUTPUT.slice(9)).tolist() == [0, 1, 1]
    assert SectionsByKey("key", 20).beginning_with(pa.table({"key": [-1]})).begin == -20.0


def test_rows_of_other_runs_that_lie_outside_belong_to_the_first_or_last_section() -> None:
    sections = SectionsByKey("key", 10, begin=100)
    assert sections.count(pa.table({"key": [100, 119]})) == 2
    assert sections.numbers(pa.table({"key": [87, 100, 119, 131]}), 2).tolist() == [0, 0, 1, 1]


def test_time_may_be_a_timestamp() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    table = pa.table({"at": [start + timedelta(milliseconds=400 * k) for k in range(6)]})
    assert SectionsByTime("at", 1.0, begin=start.timestamp()).numbers(table).tolist() == [0, 0, 0, 1, 1, 2]


def test_sections_by_time_begin_with_the_first_row() -> None:
    start = datetime(2026, 1, 1, 12, 0, 7, tzinfo=UTC)
    times = [start + timedelta(seconds=40 * k) for k in range(6)]
    table = pa.table({"at": times, "key": [95, 100, 101, 109, 110, 131]})
    by_time = SectionsByTime("at", 60.0).beginning_with(table)
    assert by_time.numbers(table).tolist() == [0, 0, 1, 2, 2, 3]
    assert by_time.name == "time:at:60"
    assert SectionsByKey("key", 10).beginning_with(table).numbers(table).tolist() == [0, 1, 1, 1, 2, 4]
    below = pa.table({"key": [-13, 25]})
    assert SectionsByKey("key", 10).beginning_with(below).numbers(below).tolist() == [0, 4]
    assert SectionsByKey("key", 10).beginning_with(below.slice(0, 0)) == SectionsByKey("key", 10)
    assert SectionsByRows(2).beginning_with(table) == SectionsByRows(2)


@pytest.mark.parametrize(
    ("key", "section"), [(0, 0), (1, 0), (4999, 0), (5000, 1), (5001, 1), (1_500_000, 300), (1_500_007, 300), (-5, 0)]
)
def test_the_first_section_after_a_fault_is_that_of_the_next_golden_row(key: float, section: int) -> None:
    assert SectionsByKey("key", 5000).at(key) == section
    assert SectionsByRows(5000).at(key) == section
    assert SectionsByTime("at", 5000.0).at(key) == section


@pytest.mark.parametrize("text", ["keys:key:5000", "rows:100", "time:at:2.5"])
def test_a_name_is_read_again(text: str) -> None:
    assert parse_sections(text).name == text


@pytest.mark.parametrize("text", ["", "keys:5000", "keys::5", "rows:x", "rows:1.5", "time:at", "days:3"])
def test_what_names_no_sections_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="names no sections"):
        parse_sections(text)


@pytest.mark.parametrize("text", ["keys:key:0", "rows:-1", "time:at:nan", "keys:key:inf"])
def test_a_size_is_above_zero(text: str) -> None:
    with pytest.raises(UsageError, match="is none"):
        parse_sections(text)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (pa.table({"gain": [1.0]}), "needs column 'key', and the output has gain"),
        (pa.table({"key": ["a"]}), "cannot be the primary key of the output: it has string"),
        (pa.table({"key": pa.array([1, None])}), "cannot be the primary key of the output: it has nulls"),
        (pa.table({"key": [-1]}), "begin after the first row"),
    ],
)
def test_an_output_without_a_usable_key_is_told(table: pa.Table, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        SectionsByKey("key", 10).numbers(table)
