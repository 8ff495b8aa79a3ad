"""What `writeStream.option` takes, and what it refuses before anything runs."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

import afspark as af
from afspark.api.stream import Inflow, Stream
from afspark.api.writer import StreamWriter
from afspark.coordinator.run_options import RunOptions
from afspark.errors import UsageError
from afspark.sources.given_items import GivenItems


def writer() -> StreamWriter:
    source = GivenItems(0, pa.schema({"value": pa.large_string()}))
    return Stream(None, (Inflow(source),)).apply(af.WordCount()).writeStream


def test_capitals_in_the_name_of_an_option_do_not_matter() -> None:
    """As in Spark: otherwise a query would go on in a temporary folder without a word."""
    assert writer().option("checkpointlocation", "/there")._run_options().checkpoint == "/there"


def test_an_option_that_nobody_takes_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        writer().foreachBatch(lambda rows, batch: None).option("batchSize", 3).check()
    assert caught.value.option == "batchSize"


def test_the_options_of_a_sink_are_left_to_it() -> None:
    writer().format("parquet").option("compression", "none").check()


@pytest.mark.parametrize("given", ["yes", 1, "maybe"])
def test_bounds_are_wanted_or_not(given: Any) -> None:
    with pytest.raises(UsageError):
        writer().option("bounds", given).check()
    writer().option("bounds", True).check()
    writer().option("bounds", "True").check()


@pytest.mark.parametrize(
    "option",
    [
        "host_grace_seconds",
        "silent_seconds",
        "lease_seconds",
        "store_wait_seconds",
        "max_replay_seconds",
        "max_kept_bytes",
        "quarantine_bytes",
    ],
)
@pytest.mark.parametrize("value", [-1, math.nan])
def test_times_and_sizes_are_not_below_zero(option: str, value: float) -> None:
    with pytest.raises(UsageError) as caught:
        RunOptions(checkpoint="/there", **{option: value})  # type: ignore[arg-type]
    assert caught.value.option
