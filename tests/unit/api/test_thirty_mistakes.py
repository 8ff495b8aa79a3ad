"""Thirty kinds of bad input and bad use: each is answered by one line that names what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.api.stream import Inflow, Stream, StreamReader
from afspark.cli.places import check_output
from afspark.cluster.spark.foreign_errors import one_line
from afspark.cluster.spark.session import check_session
from afspark.errors import AfsparkError
from afspark.sources import CsvFiles, JsonFiles, LibsvmFiles, ParquetFiles, Source, TextFiles
from afspark.sources.given_items import GivenItems
from afspark.store import open_store

SCHEMA = pa.schema([("key", pa.int64())])


class Count(af.Operator):
    key = ("key",)

    def states(self) -> Any:
        return {"counts": af.HashTable(key="int64", value="int64")}

    def process(self, items: pa.RecordBatch, states: Any) -> Any:
        states["counts"].add(items.column("key"), 1)


class TextKey(Count):
    key = "key"  # type: ignore[assignment]


class ListOfStates(Count):
    def states(self) -> Any:
        return [af.HashTable(key="int64", value="int64")]


class ReturnsList(Count):
    def process(self, items: pa.RecordBatch, states: Any) -> Any:
        return [1]


class Raises(Count):
    def process(self, items: pa.RecordBatch, states: Any) -> Any:
        raise RuntimeError("on purpose\nwith a second line")


def items() -> Stream:
    return Stream(None, (Inflow(GivenItems(0, SCHEMA)),))


def written() -> Any:
    return items().apply(Count()).writeStream


def batch(operator: Any, keys: list[Any], transform: Any = None, **settings: Any) -> None:
    def pipeline(stream: Any) -> Any:
        return (stream if transform is None else stream.map(transform)).apply(operator, workers=1, **settings)

    with testing.run(pipeline, SCHEMA) as query:
        query.batch({"key": keys})


def changed(before: dict[str, Any], after: dict[str, Any]) -> None:
    with testing.run(lambda stream: stream.apply(Count(), **before), SCHEMA) as query:
        query.batch({"key": [1]})
        query.restart_driver(lambda stream: stream.apply(Count(), **after))


def read(make: Callable[[str], Source], folder: Path, content: bytes) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "file").write_bytes(content)
    source = make(str(folder / "in"))
    planner = source.planner(open_store(str(folder / "log")))
    for chunk in planner.chunks(planner.initial(), planner.discover()):
        list(source.read(chunk))
    source.validate()


#: what is done wrong, how, and what the answer has to name
MISTAKES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a number as tolerance": (lambda _: items().apply(Count(), tolerance=1000), "Approximate(theta=1000)"),  # type: ignore[arg-type]
    "zero as tolerance": (lambda _: items().apply(Count(), tolerance=0), "Approximate(theta=0)"),  # type: ignore[arg-type]
    "a class as tolerance": (lambda _: items().apply(Count(), tolerance=af.MiniBatch), "MiniBatch(...)"),  # type: ignore[arg-type]
    "a class as operator": (lambda _: items().apply(Count), "Count(...)"),  # type: ignore[arg-type]
    "a function as operator": (lambda _: items().apply(len), "Operator"),  # type: ignore[arg-type]
    "a number as window": (lambda _: items().apply(Count(), window=60), "Hopping(60"),  # type: ignore[arg-type]
    "half a worker": (lambda _: items().apply(Count(), workers=1.5), "workers"),  # type: ignore[arg-type]
    "no worker": (lambda _: items().apply(Count(), workers=0), "workers"),
    "a text for a list": (lambda _: items().apply(Count(), feeds_back="gate"), "['gate']"),
    "an unknown choice": (lambda _: items().apply(Count(), on_bad="ignore"), "'skip' or 'stop'"),  # type: ignore[arg-type]
    "a text as key": (lambda _: items().apply(TextKey()), "('key',)"),
    "states without names": (lambda _: items().apply(ListOfStates()), "by name"),
    "a step that is none": (lambda _: items().map("upper"), "function"),  # type: ignore[arg-type]
    "a column that is not there": (lambda _: items().apply(af.WordCount(column="text")), "'text'"),
    "a text as session": (lambda _: check_session("local[2]"), "afspark.session()"),  # type: ignore[arg-type]
    "a list as path": (lambda _: StreamReader(None).text(["in"]), "a file, a folder or a glob"),  # type: ignore[arg-type, list-item]
    "input that is not there": (lambda folder: TextFiles(str(folder / "none")).validate(), "does not exist"),
    "a slip in an option": (lambda _: written().option("checkpointLocatoin", "there").check(), "'checkpointLocation'"),
    "a unit in an option": (lambda _: written().option("leaseSeconds", "10s")._run_options(), "without a unit"),
    "an unknown mode": (lambda _: written().outputMode("upsert"), "'update'"),
    "all results into files": (
        lambda _: replace(written().format("parquet"), path="out").check(),
        "outputMode('append')",
    ),
    "files without a path": (lambda _: written().format("csv").outputMode("update").check(), "start('out/')"),
    "an unknown trigger": (lambda _: written().trigger(everySecond=1), "availableNow"),
    "a sink that is no function": (lambda _: written().foreachBatch("sink"), "function"),
    "two sinks of one operator": (lambda _: written().also(written()).check(), "One sink per operator"),
    "an empty id": (lambda _: items().apply(Count(), id=""), "id='counts'"),
    "a renamed operator without its id": (lambda _: changed({"name": "a"}, {"name": "b"}), "id='a'"),
    "other windows on an old checkpoint": (
        lambda _: changed({}, {"window": af.Hopping(5, by="processing")}),
        "option('discardState', 'count')",
    ),
    "an address that nobody knows": (lambda _: open_store("ftp://host/checkpoint"), "ftp"),
    "input in a place of Databricks": (lambda _: StreamReader(None).text("dbfs:/landing"), "/dbfs/"),  # type: ignore[arg-type]
    "output that nobody knows": (lambda _: check_output("dbfs:/out"), "dbfs"),
    "an option that was left unset": (lambda _: written().option("checkpointLocation", None), "is None"),
    "an operator that raises": (lambda _: batch(Raises(), [1]), "on purpose"),
    "an operator that returns a list": (lambda _: batch(ReturnsList(), [1]), "RecordBatch"),
    "a step that returns a dictionary": (
        lambda _: batch(Count(), [1], lambda _: {"key": [1]}),
        "record_batch(columns)",
    ),
    "null keys, and a stop": (lambda _: batch(Count(), [1, None], on_bad="stop"), "null_key=True"),
    "text that is not UTF-8": (
        lambda folder: read(lambda path: TextFiles(path, blocks=False, on_bad="stop"), folder, b"a\n\xff\n"),
        "line 2",
    ),
    "CSV without its column": (
        lambda folder: read(lambda path: CsvFiles(path, label=None, numeric=("n",)), folder, b"x\n1\n"),
        "'n'",
    ),
    "CSV with a word for a number": (
        lambda folder: read(
            lambda path: CsvFiles(path, label=None, numeric=("n",), on_bad="stop"), folder, b"n\none\n"
        ),
        "no usable n",
    ),
    "JSON lines that are none": (
        lambda folder: read(lambda path: JsonFiles(path, numeric=("n",), on_bad="stop"), folder, b"<xml/>\n"),
        "'<xml/>'",
    ),
    "libsvm that is none": (
        lambda folder: read(lambda path: LibsvmFiles(path, on_bad="stop"), folder, b"hello\n"),
        "hello",
    ),
    "Parquet that is none": (lambda folder: read(ParquetFiles, folder, b"PAR1 not really"), "Repair or remove"),
}


def test_there_are_thirty() -> None:
    assert len(MISTAKES) >= 30


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_by_one_line(mistake: str, tmp_path: Path) -> None:
    make, named = MISTAKES[mistake]
    with pytest.raises(AfsparkError) as caught:
        make(tmp_path)
    line = one_line(caught.value)
    assert named in line and "\n" not in line
    assert caught.value.remedy, "it has to say what to do"
