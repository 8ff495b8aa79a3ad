"""What a script shows of an error: the user's own lines first, one line of ours, and no frame of the engine's."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException

import afspark as af
from afspark import testing
from afspark.api.raised import plain
from afspark.cluster.spark.script_errors import brief
from afspark.errors import InputError, OperatorFailed, OperatorMisuse, UsageError
from afspark.graph.fusing import MapStep

SCHEMA = pa.schema([("key", pa.int64())])


class Divides(af.Operator):
    """Raises on 0, and on null keys by the state's own refusal."""

    key = ("key",)

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"counts": af.HashTable(key="int64", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("key"), 1)
        for key in items.column("key").to_pylist():
            12 // key


class Returns(af.Operator):
    """Returns what it was made with."""

    def __init__(self, made: object) -> None:
        self.made = made

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> Any:
        return self.made


def raised_by(operator: af.Operator, keys: list[int | None], transform: Any = None, **settings: Any) -> BaseException:
    def pipeline(stream: Any) -> Any:
        mapped = stream if transform is None else stream.map(transform)
        return mapped.apply(operator, workers=1, **settings)

    with testing.run(pipeline, SCHEMA) as query, pytest.raises(af.AfsparkError) as caught:
        query.batch({"key": keys})
    return caught.value


def test_the_trace_of_user_code_has_its_lines_and_none_of_ours() -> None:
    error = raised_by(Divides(), [1, 0])
    assert isinstance(error, OperatorFailed)
    lines = error.trace.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "test_script_errors.py" in lines[1] and "in process" in lines[1]
    assert lines[2].strip() == "12 // key"
    assert lines[-1].startswith("ZeroDivisionError")
    assert error.trace.count("Traceback") == 1
    assert "afspark/" not in error.trace.replace(str(Path(__file__)), "")


def test_a_refusal_of_ours_names_the_users_line_that_led_to_it() -> None:
    error = raised_by(Divides(), [1, None], on_bad="stop")
    assert isinstance(error, UsageError)
    assert 'states["counts"].add(' in error.trace and "keyed.py" not in error.trace


def test_a_script_shows_the_users_trace_and_then_one_line() -> None:
    shown = brief(raised_by(Divides(), [0]))
    assert shown is not None
    *trace, line = shown.splitlines()
    assert trace[0] == "Traceback (most recent call last):" and trace[-1].startswith("ZeroDivisionError")
    assert line.startswith("afspark: error: An item is bad: ZeroDivisionError")
    assert line.endswith("on_bad='skip'.")


def test_a_wrong_call_is_one_line_with_its_place_in_the_script() -> None:
    with pytest.raises(UsageError) as caught:
        af.Approximate(theta="much")  # type: ignore[arg-type]
    shown = brief(caught.value)
    assert shown is not None and shown.count("\n") == 1
    assert "(test_script_errors.py, line " in shown


def test_ctrl_c_is_one_line() -> None:
    assert brief(KeyboardInterrupt()) == "afspark: stopped.\n"


def test_errors_of_others_are_shown_as_ever() -> None:
    with pytest.raises(ValueError, match="mine") as caught:
        raise ValueError("mine")
    assert brief(caught.value) is None


def through_us(error: Exception) -> BaseException:
    """The error as it comes back from a function of ours that has called the user's."""

    def fails(items: pa.RecordBatch) -> None:
        raise error

    batch = pa.record_batch({"key": [1]})
    with pytest.raises(type(error)) as caught:
        MapStep(fails).process(batch, {})
    return caught.value


def test_user_code_in_the_driver_is_shown_without_frames_of_ours() -> None:
    shown = brief(through_us(ValueError("mine")))
    assert shown is not None
    assert "in fails" in shown and "fusing.py" not in shown and shown.endswith("ValueError: mine\n")


def test_spark_is_one_line_with_what_to_do() -> None:
    java = (
        "An error occurred while calling o1.start.\n: a.b.IOException: no room\n\tat a.b.C(D)\n" + "\tat x.Y(Z)\n" * 99
    )
    shown = brief(through_us(Py4JError(java)))
    assert (
        shown
        == "afspark: error: Spark has failed: IOException: no room. Set AFSPARK_TRACE=1 to see all that Spark says.\n"
    )


def test_an_error_of_ours_that_spark_quotes_is_raised_as_ours() -> None:
    quoted = StreamingQueryException("Query failed\nafspark.errors.InputError: Input file 'a' cannot be read.\n\tat …")
    assert isinstance(plain(quoted), InputError)


def test_what_is_raised_has_no_frames_of_ours_and_no_java_behind_it() -> None:
    try:
        try:
            raise Py4JError("java")
        except Py4JError as java:
            raise InputError("Lost.") from java
    except InputError as error:
        found = plain(error)
    assert "".join(traceback.format_exception(found)) == "afspark.errors.InputError: Lost.\n"


@pytest.mark.parametrize("given", [[1, 2], {"key": [1]}, pa.table({"key": [1]}), "text", 7])
def test_a_step_that_returns_no_batch_is_named(given: object) -> None:
    error = raised_by(Divides(), [1], lambda items: given, on_bad="skip")
    assert isinstance(error, OperatorMisuse)
    assert "(test_script_errors.py, line " in error.message and type(given).__name__ in error.message
    assert error.remedy


def test_an_operator_that_returns_no_batch_is_named() -> None:
    error = raised_by(Returns([1]), [1], name="wrong")
    assert isinstance(error, OperatorMisuse) and "'wrong'" in error.message and "list" in error.message
