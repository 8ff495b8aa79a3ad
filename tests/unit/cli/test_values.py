"""Options' values: what is taken, and that nothing else is."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.cli import values
from afspark.report.wording import bytes_text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("500MB", 500_000_000),
        ("500 mb", 500_000_000),
        ("2g", 2_000_000_000),
        ("1.5GB", 1_500_000_000),
        ("64KiB", 65_536),
        ("1TiB", 2**40),
        (".5k", 500),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert values.size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "0", "0.2", "-1MB", "1XB", "1 2", "nan", "inf", "1e3", "9999999TB", "ten"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        values.size(text)


@given(st.integers(1, 10**15))
def test_whole_bytes_are_exact(count: int) -> None:
    assert values.size(str(count)) == values.size(f"{count}B") == count


@given(st.integers(1, 10**15))
def test_a_size_as_written_is_read_back_to_three_digits(count: int) -> None:
    assert values.size(bytes_text(count)) == pytest.approx(count, rel=0.006)


@pytest.mark.parametrize("text", ["nan", "-nan", "inf", "-1", "-0.5", "x", ""])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        values.amount(text)


def test_amounts_keep_whole_numbers_whole() -> None:
    assert [type(values.amount(text)) for text in ("1e6", "0", "2.5")] == [int, int, float]
    assert values.positive_amount("1e6") == 1_000_000


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "two", str(2**63)])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        values.count(text)


@pytest.mark.parametrize("text", ["", "a,", "a,,b", "a,a"])
def test_what_are_no_names(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        values.names(text)


@pytest.mark.parametrize("text", ["spark.x", "=1", "x=1", ""])
def test_what_is_no_setting(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        values.setting(text)


def test_a_setting_may_hold_equals_signs() -> None:
    assert values.setting("spark.a=b=c") == ("spark.a", "b=c")
