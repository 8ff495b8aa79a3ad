"""`afspark.testing`: a user's pipeline in a test, with failures where the user wants them."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import afspark as af
from afspark import testing
from afspark.api.query import Query
from afspark.errors import AfsparkError, OperatorMisuse, UsageError

LINES = pa.schema({"value": pa.large_string()})


def words(lines: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"word": pc.list_flatten(pc.utf8_split_whitespace(lines.column("value")))})


class Counts(af.Operator):
    """Counts words; a word "bad" is more than it can take."""

    key = ("word",)
    alpha = 1.0

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"counts": af.HashTable(key="string", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        if "bad" in items.column("word").to_pylist():
            raise ValueError("bad")
        states["counts"].add(items.column("word"), 1)


def counting(**settings: Any) -> Any:
    def pipeline(lines: af.Stream) -> af.StatefulStream:
        return lines.map(words).apply(Counts(), name="counts", **settings)

    return pipeline


def counted(table: pa.Table | None) -> dict[str, int]:
    assert table is not None
    *_, keys, values = table.itercolumns()
    return {
        key.decode() if isinstance(key, bytes) else key: value
        for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)
    }


def lines(*texts: str) -> dict[str, list[str]]:
    return {"value": list(texts)}


EXACT = {"to": 2, "be": 2, "or": 1, "not": 1, "that": 1, "is": 1}


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("failure", ["none", "host", "process", "process and state", "backing up", "driver", "all"])
def test_nothing_is_lost_under_an_exact_policy(failure: str, keyed: bool) -> None:
    with testing.run(counting(keyed=keyed, tolerance=af.MiniBatch()), LINES) as query:
        query.batch(lines("to be or", "not to be"))
        if failure in ("host", "all"):
            query.lose_host()
        if failure in ("process", "process and state", "all"):
            query.kill_worker("counts", 1, lose_state=failure == "process and state")
        if failure == "backing up":
            query.kill_worker("counts", 0, "backing up")
        if failure in ("driver", "all"):
            query.restart_driver()
        query.batch(lines("that", "is"))
        assert counted(query.results("counts")) == EXACT
        assert query.bounds("counts") == {"counts": 0.0}
        expected = {"host": 1, "all": 1, "process and state": 1}.get(failure, 0)
        assert len(query.ledger()) == expected
        assert all(entry["covered"] for entry in query.ledger())


def test_hosts_may_be_lost_one_after_the_other_between_two_batches() -> None:
    with testing.run(counting(tolerance=af.MiniBatch()), LINES, hosts=2) as query:
        query.batch(lines("to be or", "not to be"))
        lost = [query.lose_host() for _ in range(3)]
        assert len(set(lost)) == 3
        with pytest.raises(UsageError, match=lost[0]):
            query.lose_host(lost[0])
        query.batch(lines("that", "is"))
        assert counted(query.results("counts")) == EXACT


def test_what_is_lost_is_within_what_is_told() -> None:
    with testing.run(counting(tolerance=af.Approximate(theta=20)), LINES, hosts=2) as query:
        for _ in range(8):
            query.batch(lines(*["a a b"] * 4))
            query.lose_host()
        query.batch(lines("c"))
        got, bound = counted(query.results()), query.bounds()["counts"]
        assert 0 < bound <= 20
        assert 64 - bound <= got["a"] <= 64
        assert any(entry["taken"] for entry in query.ledger())
        assert {entry["operator"] for entry in query.tolerance()} == {"counts"}


class Columns(Counts):
    def rows(self, cells: pa.RecordBatch) -> Any:
        return {"word": cells.column("key")}


def test_rows_that_are_no_batch_are_refused() -> None:
    def pipeline(stream: af.Stream) -> af.StreamWriter:
        return stream.map(words).apply(Columns()).writeStream.outputMode("update")

    with testing.run(pipeline, LINES) as query:
        with pytest.raises(OperatorMisuse) as caught:
            query.batch(lines("a b"))
        assert caught.value.returned == "dict"


def test_rows_of_a_batch_are_those_it_changed() -> None:
    def pipeline(stream: af.Stream) -> af.StreamWriter:
        return counting()(stream).writeStream.outputMode("update")

    with testing.run(pipeline, LINES) as query:
        query.batch(lines("a b"))
        query.kill_worker("counts", 0)
        query.batch(lines("b c"))
        assert counted(query.rows()) == {"b": 2, "c": 1}


def test_windows_close_and_the_end_closes_the_rest() -> None:
    window = af.Hopping(10, by="processing")
    with testing.run(counting(window=window, tolerance=af.MiniBatch()), LINES) as query:
        query.batch(lines("a a"), at=3.0)
        assert query.windows("counts") is None
        query.lose_host()
        query.batch(lines("b"), at=12.0)
        closed = query.windows("counts")
        assert counted(closed) == {"a": 2} and closed["window_start"].to_pylist() == [0.0]
        query.restart_driver()
        query.end()
        assert counted(query.windows("counts")) == {"b": 1}


class Passing(af.Operator):
    """Sends on what comes."""

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"seen": af.Numeric()}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        states["seen"].add(items.num_rows)
        return items


def test_several_streams_operators_and_sinks() -> None:
    def pipeline(left: af.Stream, right: af.Stream) -> list[Any]:
        passing = left.union(right).map(words).apply(Passing(), name="passing", workers=1)
        counts = passing.apply(Counts(), name="counts", workers=3)
        return [passing.writeStream.outputMode("append"), counts]

    with testing.run(pipeline, [LINES, LINES], hosts=3) as query:
        query.batch(lines("a"), lines("b c"))
        query.lose_host(query.homes("passing")[0])
        query.kill_worker("counts", 2)
        query.batch(None, lines("c"))
        assert counted(query.results("counts")) == {"a": 1, "b": 1, "c": 2}
        assert query.items("passing")["word"].to_pylist() == ["c"]
        assert len(query.shares("counts")) == 3 and len(query.hosts) == 3


def test_a_failed_batch_runs_again_first() -> None:
    fails = [True]

    def refuse(items: pa.RecordBatch) -> pa.RecordBatch:
        if fails:
            raise ValueError("not yet")
        return words(items)

    def pipeline(stream: af.Stream) -> af.StatefulStream:
        return stream.map(refuse).apply(Counts(), name="counts")

    with testing.run(pipeline, LINES) as query:
        with pytest.raises(AfsparkError, match="not yet"):
            query.batch(lines("a"))
        fails.clear()
        query.batch(lines("a b"))
        assert counted(query.results()) == {"a": 2, "b": 1}


def test_bad_items_are_shown() -> None:
    with testing.run(counting(on_bad="skip"), LINES) as query:
        query.batch(lines("a", "bad", "b"))
        assert counted(query.results()) == {"a": 1, "b": 1}
        assert [item["row"] for item in query.bad_items()] == [{"value": "bad"}]


def test_wrong_use_is_named() -> None:
    with testing.run(counting(), LINES) as query, pytest.raises(UsageError, match="columns"):
        query.batch(pa.record_batch({"other": [1]}))
    starting = testing.run(lambda stream: [counting()(stream).writeStream.start()], LINES)
    with pytest.raises(UsageError, match="session"), starting:
        pass


@pytest.mark.parametrize(
    "wrong", [("other", 0), ("counts", 9), ("counts", -1), ("counts", 0, "committing"), ("counts", 0, "x")]
)
def test_a_failure_that_would_never_happen_is_refused(wrong: tuple[Any, ...]) -> None:
    with testing.run(counting(), LINES) as query, pytest.raises(UsageError):
        query.kill_worker(*wrong)


def test_a_batch_takes_milliseconds() -> None:
    with testing.run(counting(tolerance=af.Approximate(theta=math.inf)), LINES) as query:
        query.batch(lines("a"))
        started = time.process_time()
        for _ in range(20):
            query.batch(lines("a"))
        # It takes a few; that of the processor, because others may be at work on this machine.
        assert (time.process_time() - started) / 20 < 0.05


def test_the_example_of_the_documentation_works() -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    example: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], example)
    example["test_counts_survive_a_lost_host"]()


def test_no_spark_is_started() -> None:
    program = "import afspark.testing, pyspark; assert pyspark.SparkContext._active_spark_context is None"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    "pipeline",
    [
        lambda lines: None,
        lambda lines: lines,
        lambda lines: lines.map(words).apply(Counts),
        lambda lines: lines.map(3).apply(Counts()),
        lambda lines: lines.map(words).apply(Counts(), window="1 minute"),
    ],
    ids=["nothing", "a stream", "a class", "no function", "no window"],
)
def test_a_pipeline_of_wrong_things_is_refused_before_anything_runs(pipeline: Any) -> None:
    with pytest.raises(UsageError) as caught, testing.run(pipeline, LINES):
        pass
    assert caught.value.remedy


@pytest.mark.parametrize("hosts", [0, -1, 1.5])
def test_there_is_a_host_at_least(hosts: Any) -> None:
    with pytest.raises(UsageError), testing.run(counting(), LINES, hosts=hosts):
        pass


@pytest.mark.parametrize("items", [{}, {"text": ["a"]}, {"value": [1]}, {"value": ["a"], "more": ["b"]}])
def test_items_that_do_not_fit_the_schema_are_refused(items: Any) -> None:
    with testing.run(counting(), LINES) as query:
        with pytest.raises(UsageError) as caught:
            query.batch(items)
        assert "\n" not in str(caught.value)
        assert query.batch(lines("a"))["items"] == 1


def test_rows_that_nobody_keeps_are_no_empty_answer() -> None:
    with testing.run(counting(), LINES) as query:
        query.batch(lines("a"))
        for asked in (query.rows, query.items, query.windows):
            with pytest.raises(UsageError):
                asked("counts")


def test_an_operator_that_is_not_there_has_no_output() -> None:
    with testing.run(counting(), LINES) as query:
        for asked in (query.rows, query.items, query.windows):
            with pytest.raises(UsageError, match="The pipeline has counts"):
                asked("other")


def test_every_stream_is_given_its_items() -> None:
    with testing.run(counting(), LINES) as query:
        for items in ([], [lines("a"), lines("a")]):
            with pytest.raises(UsageError) as caught:
                query.batch(*items)
            assert caught.value.streams == 1
        assert query.batch(lines("a"))["items"] == 1


def test_a_tolerance_is_changed_between_batches() -> None:
    with testing.run(counting(tolerance=af.ActiveStandby()), LINES, hosts=3) as query:
        query.batch(lines("a"))
        query.set_tolerance("counts", af.PassiveReplication())
        for _ in range(10):
            query.batch(lines("a"))
        assert set(query.protections("counts").values()) == {"passive-replication"}
        query.lose_host()
        query.batch(lines("a"))
        assert counted(query.results("counts")) == {"a": 12}


@pytest.mark.parametrize(
    ("given", "said"),
    [("hot-standby", "'hot-standby' is no tolerance"), (af.HotStandby, "HotStandby is a class, not a tolerance")],
)
def test_what_is_no_tolerance_is_refused(given: Any, said: str) -> None:
    with testing.run(counting(tolerance=af.ActiveStandby()), LINES, hosts=3) as query:
        query.batch(lines("a"))
        with pytest.raises(UsageError, match=said):
            query.set_tolerance("counts", given)
        with pytest.raises(UsageError, match=said):
            Query.set_tolerance(cast(Any, None), "counts", given)
