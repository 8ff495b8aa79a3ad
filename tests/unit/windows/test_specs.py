"""What window specifications accept, refuse and remember."""

from __future__ import annotations

import json
import math
import pickle
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.model.windows import END, Decaying, Hopping, Punctuation, Sliding, Window

SPECS: list[Window] = [
    Hopping(10, column="at"),
    Hopping(0.1, column="at", delay=2.5),
    Hopping(timedelta(minutes=5), column="at", delay=timedelta(seconds=1)),
    Hopping(60, by="processing"),
    Hopping(1000, by="count"),
    Sliding(60, 10, column="at", delay=3),
    Sliding(timedelta(seconds=1), timedelta(milliseconds=100), by="processing"),
    Sliding(100, 20, by="count"),
    Decaying(0.9, 60, column="at"),
    Decaying(0.5, 1, by="processing"),
]


@pytest.mark.parametrize("window", SPECS, ids=repr)
def test_specifications_survive_json_and_pickling(window: Window) -> None:
    assert Window.from_json(json.loads(json.dumps(window.to_json()))) == window
    assert pickle.loads(pickle.dumps(window)) == window


@pytest.mark.parametrize("length", [0, -1, math.inf, math.nan, "10", None, True, 2**63, timedelta(0)])
def test_lengths_that_are_none(length: Any) -> None:
    makes: list[Any] = [
        lambda: Hopping(length, column="at"),
        lambda: Sliding(length, 1, column="at"),
        lambda: Sliding(1, length, column="at"),
        lambda: Decaying(0.5, length, column="at"),
    ]
    for make in makes:
        with pytest.raises(UsageError) as refused:
            make()
        assert refused.value.remedy


@pytest.mark.parametrize("delay", [-1, math.inf, math.nan, "1"])
def test_delays_that_are_none(delay: Any) -> None:
    with pytest.raises(UsageError) as refused:
        Hopping(1, column="at", delay=delay)
    assert refused.value.parameter == "delay"


@pytest.mark.parametrize("decay", [0, 1, 1.5, -0.5, math.nan])
def test_decay_lies_between_nothing_and_all(decay: float) -> None:
    with pytest.raises(UsageError) as caught:
        Decaying(decay, 1, column="at")
    assert "0.9" in caught.value.remedy


def test_event_time_needs_a_column_and_nothing_else_takes_one() -> None:
    makes: list[Any] = [
        lambda: Hopping(10),
        lambda: Sliding(10, 5),
        lambda: Decaying(0.5, 1),
        lambda: Hopping(10, by="processing", column="at"),
        lambda: Hopping(10, by="count", column="at"),
    ]
    for make in makes:
        with pytest.raises(UsageError) as refused:
            make()
        assert refused.value.remedy and "column" in refused.value.fields


def test_other_bad_use() -> None:
    with pytest.raises(UsageError) as refused:
        Hopping(10, by="weight")
    assert refused.value.allowed == ["event", "processing", "count"]
    for by in ("count", "processing"):
        with pytest.raises(UsageError) as refused:
            Hopping(10, by=by, delay=1)
        assert refused.value.delay == 1
    with pytest.raises(UsageError):
        Hopping(2.5, by="count")
    with pytest.raises(UsageError) as refused:
        Sliding(10, 4, column="at")
    assert refused.value.slide == 4
    with pytest.raises(UsageError):
        Sliding(5, 10, column="at")
    with pytest.raises(UsageError) as refused:
        Window.from_json({"kind": "session"})
    assert "hopping" in refused.value.allowed
    with pytest.raises(UsageError) as refused:
        Window.from_json({"kind": "hopping", "length": 1, "colour": "red"})
    assert "column" in refused.value.allowed


def test_lengths_are_numbers_afterwards() -> None:
    window = Hopping(timedelta(seconds=90), column="at", delay=timedelta(milliseconds=500))
    assert (window.size, window.patience, window.panes) == (90, 0.5, 1)
    assert Hopping(10.0, column="at") == Hopping(np.int64(10), column="at")
    assert isinstance(Hopping(10.0, column="at").size, int)
    assert Sliding(0.7, 0.1, column="at").panes == 7


def test_panes_by_count_are_shared_evenly() -> None:
    assert Hopping(12, by="count").quota(4) == 3
    with pytest.raises(UsageError) as refused:
        Hopping(10, by="count").quota(4)
    assert (refused.value.items, refused.value.workers) == (10, 4)
    assert "12" in refused.value.remedy
    with pytest.raises(UsageError):
        Sliding(12, 3, by="count").quota(4)


@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.date32()]
)
def test_usable_columns(kind: pa.DataType) -> None:
    Hopping(10, column="at").check(pa.schema([("at", kind)]))


@pytest.mark.parametrize("kind", [pa.string(), pa.bool_(), pa.uint64(), pa.duration("s"), pa.list_(pa.int64())])
def test_unusable_columns(kind: pa.DataType) -> None:
    with pytest.raises(UsageError) as refused:
        Hopping(10, column="at").check(pa.schema([("at", kind)]))
    assert refused.value.column == "at" and refused.value.got == str(kind)


def test_missing_columns() -> None:
    with pytest.raises(UsageError) as refused:
        Hopping(10, column="at").check(pa.schema([("time", pa.int64())]))
    assert refused.value.column == "at"
    Hopping(10, column="at").check(None)
    Hopping(10, by="processing").check(pa.schema([]))


def test_punctuation_is_ordered_and_survives_json() -> None:
    end = Punctuation.of_stream("b")
    marks = [Punctuation("a", 10, 100, 110), Punctuation("b", -1, -0.5, 0.0), Punctuation("b", 2, 1.0, 1.5), end]
    assert sorted([*marks[2:], *marks[:2]]) == marks
    texts = [json.dumps(mark.to_json(), allow_nan=False) for mark in marks]
    assert [Punctuation.from_json(json.loads(text)) for text in texts] == marks
    assert end.last and end.window == END
