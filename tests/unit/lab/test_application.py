"""What is wrong with a pipeline's function is said in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from afspark.errors import UsageError
from afspark.lab.application import Application
from tests.unit.lab.small_pipelines import recorded, rows


def broken(orders: Any) -> Any:
    return orders.column("x")


def with_many(first: Any, second: Any) -> Any:
    return first.union(second)


def with_a_name(first: Any, *, second: Any) -> Any:
    return first.union(second)


@pytest.mark.parametrize(
    ("builder", "says"),
    [
        (broken, r"raised AttributeError: .* 'column' \(test_application.py, line 16\)\. Mend it"),
        (with_many, "does not take 1 stream: .*missing 1 required positional argument: 'second'"),
        (with_a_name, "raised TypeError: .*missing 1 required keyword-only argument: 'second'"),
        (lambda stream: stream, "returned .*, which is no operator"),
        (lambda stream: None, "returned None, which is no operator"),
        (lambda stream: stream.apply(3), "3"),
    ],
)
def test_a_function_that_builds_no_pipeline_is_told(builder: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says):
        Application.built(builder, [recorded(tmp_path, rows(10))])
