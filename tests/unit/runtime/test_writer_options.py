"""What `writeStream.option` takes, and what it refuses before anything runs."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import afspark as af
from afspark.api.planned_start import PlannedStart, planned_only
from afspark.api.sinks import each
from afspark.api.stream import Inflow, Stream
from afspark.api.writer import StreamWriter
from afspark.coordinator.run_options import RunOptions
from afspark.errors import UsageError
from afspark.sources.given_items import GivenItems


def writer() -> StreamWriter:
    source = GivenItems(0, pa.schema({"value": pa.large_string()}))
    return Stream(None, (Inflow(source),)).apply(af.WordCount()).writeStream


def to_files() -> StreamWriter:
    return replace(writer().format("parquet").outputMode("append"), path="out/")


def test_capitals_in_the_name_of_an_option_do_not_matter() -> None:
    """As in Spark: otherwise a query would go on in a temporary folder without a word."""
    assert writer().option("checkpointlocation", "/there")._run_options().checkpoint == "/there"


def test_a_transform_that_cannot_be_sent_is_refused() -> None:
    lock = threading.Lock()

    def held(items: pa.RecordBatch) -> pa.RecordBatch:
        with lock:
            return items

    source = GivenItems(0, pa.schema({"value": pa.large_string()}))
    with pytest.raises(UsageError, match="held"):
        Stream(None, (Inflow(source),)).map(held).apply(af.WordCount()).writeStream.check()


def test_a_stream_without_operator_has_nothing_to_write() -> None:
    source = GivenItems(0, pa.schema({"value": pa.large_string()}))
    with pytest.raises(UsageError):
        _ = Stream(None, (Inflow(source),)).writeStream


def test_the_path_may_be_an_option() -> None:
    files = writer().format("parquet").outputMode("append").option("path", "there/")
    files.check()
    assert (files._sink().path, files._sink().options) == ("there/", {})
    assert replace(files, path="here/")._sink().path == "here/"
    assert replace(files, table="counts")._sink().options == {"path": "there/"}


def test_an_option_that_nobody_takes_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        writer().foreachBatch(lambda rows, batch: None).option("batchSize", 3).check()
    assert caught.value.option == "batchSize"


def test_the_options_of_a_sink_are_left_to_it() -> None:
    to_files().option("compression", "none").check()


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
        "flush_seconds",
        "max_kept_bytes",
        "quarantine_bytes",
    ],
)
@pytest.mark.parametrize("value", [-1, math.nan])
def test_times_and_sizes_are_not_below_zero(option: str, value: float) -> None:
    with pytest.raises(UsageError) as caught:
        RunOptions(checkpoint="/there", **{option: value})  # type: ignore[arg-type]
    assert caught.value.option


@pytest.mark.parametrize(
    ("given", "meant"),
    [("checkpointDir", "checkpointLocation"), ("batchbyte", "batchBytes"), ("leaseSecond", "leaseSeconds")],
)
def test_a_slip_is_answered_with_the_nearest_name(given: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        writer().option(given, 1).check()
    assert f"Did you mean {meant!r}?" in caught.value.remedy


def test_a_slip_does_not_reach_a_sink_that_takes_any_option() -> None:
    with pytest.raises(UsageError) as caught:
        to_files().option("checkpointLocatoin", "/there").check()
    assert caught.value.option == "checkpointLocatoin" and "checkpointLocation" in caught.value.message


def test_several_options_at_once() -> None:
    made = writer().options(batchBYTES=5, bounds=True)
    assert made._run_options().batch_bytes == 5 and made.given["bounds"] == "true"


def test_without_a_checkpoint_a_warning_says_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made = writer()._run_options()
    assert made.checkpoint in caplog.text
    caplog.clear()
    writer().option("checkpointLocation", "/there")._run_options()
    assert not caplog.text


@pytest.mark.parametrize("sink", ["parquet", "CSV", "json", "delta", "jdbc", "org.example.Sink"])
def test_complete_mode_is_refused_where_a_batch_can_only_add(sink: str) -> None:
    with pytest.raises(UsageError) as caught:
        replace(writer().format(sink), path="out/").check()
    assert caught.value.mode == "complete"
    replace(writer().format(sink).outputMode("Append"), path="out/").partitionBy("word").check()


def test_the_path_of_files_may_be_an_option() -> None:
    """As in Spark, which takes it in one place only."""
    given = writer().format("csv").outputMode("append").option("Path", "out/")
    given.check()
    assert given._sink().told == "csv[out/]"
    with pytest.raises(UsageError, match="for an option"):
        replace(given, path="other/").check()


@pytest.mark.parametrize("option", ["checkpointLocation", "compression"])
def test_what_a_program_has_left_unset_is_no_value(option: str) -> None:
    """A folder of the name None would be a checkpoint."""
    with pytest.raises(UsageError) as caught:
        writer().option(option, None)
    assert caught.value.option == option


def given_at_the_start(ask: Callable[[StreamWriter], Any]) -> StreamWriter:
    with planned_only(), pytest.raises(PlannedStart) as planned:
        ask(writer())
    return planned.value.writer


def test_what_spark_takes_with_the_start_is_taken_there() -> None:
    made = given_at_the_start(
        lambda one: one.start(
            "out/", format="parquet", outputMode="append", partitionBy=["word"], queryName="counts", compression="none"
        )
    )
    said = writer().format("parquet").outputMode("append").partitionBy("word").queryName("counts")
    assert made == replace(said.option("compression", "none"), stateful=made.stateful, path="out/")
    made.check()
    made = given_at_the_start(lambda one: one.toTable("counts", outputMode="append", checkpointlocation="/there"))
    assert (made.table, made.mode, made.given) == ("counts", "append", {"checkpointLocation": "/there"})


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: writer().foreachBatch("sink"),
        lambda: writer().foreach(7),
        lambda: writer().foreach(Collects),
        lambda: writer().format(None),
        lambda: writer().queryName(""),
        lambda: writer().trigger(),
        lambda: writer().trigger(everySecond=True),
        lambda: writer().trigger(availableNow=False),
        lambda: writer().trigger(processingTime=10),
        lambda: writer().start(outputMode="upsert"),
        lambda: writer().also("sink"),
        lambda: writer().partitionBy(),
        lambda: writer().option(3, 3),
        lambda: writer().format("memory").check(),
        lambda: writer().format("console").option("rows", 3).check(),
        lambda: writer().format("parquet").outputMode("append").check(),
        lambda: writer().format("console").partitionBy("word").check(),
        lambda: writer().toTable(""),
    ],
)
def test_what_is_no_sink_is_refused_where_it_is_given(wrong: Any) -> None:
    with pytest.raises(UsageError) as caught:
        wrong()
    assert caught.value.remedy


class Collects:
    """As Spark's ``ForeachWriter``."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def open(self, partition: int, batch: int) -> bool:
        self.calls.append((partition, batch))
        return batch != 13

    def process(self, row: int) -> None:
        self.calls.append(12 // row)

    def close(self, error: Exception | None) -> None:
        self.calls.append(type(error))


def test_rows_are_handed_on_one_by_one() -> None:
    rows: list[int] = []
    each(rows.append, 0, 0, [1, 2])
    assert rows == [1, 2]
    given = Collects()
    each(given, 4, 1, [3, 4])
    assert given.calls == [(1, 4), 4, 3, type(None)]
    given = Collects()
    each(given, 13, 0, [1])
    assert given.calls == [(0, 13), type(None)]
    given = Collects()
    with pytest.raises(ZeroDivisionError):
        each(given, 0, 0, [1, 0, 2])
    assert given.calls == [(0, 0), 12, ZeroDivisionError]
