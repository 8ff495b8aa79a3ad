"""Options of grep and join, what they refuse, and their exact recounts, without Spark."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from afspark.cli.algorithm_options import GrepOptions, JoinOptions
from afspark.cli.main import main
from afspark.cli.options import parse
from afspark.cli.planning import plan
from afspark.cli.tasks import task_of
from afspark.errors import UsageError
from afspark.report.accuracy import join_truth
from afspark.report.recount import count_matches, count_tuples, merge
from tests.unit.cli.refusal import refused
from tests.unit.sources.captures import Capture, ethernet, ipv4


def options(line: str) -> Any:
    return parse(line.split())


def test_grep_options() -> None:
    assert options("run grep whale --generate 1MB") == GrepOptions(
        algorithm="grep", pattern="whale", generate=1_000_000, on_bad="skip"
    )
    some = options("run grep ^a --input books --regex --ignore-case --invert --format parquet --column t --on-bad stop")
    assert (some.regex, some.ignore_case, some.invert, some.column, some.on_bad) == (True, True, True, "t", "stop")


def test_join_options() -> None:
    assert options("run join --generate 1MB") == JoinOptions(algorithm="join", generate=1_000_000)
    some = options("run join --input a --with b --on k,s --value v --rate 0.5 --confidence 0.9")
    assert (some.input, some.other, some.on, some.value, some.rate, some.confidence) == (
        ("a", "b", ("k", "s"), "v", 0.5, 0.9)
    )


@pytest.mark.parametrize(
    "line",
    [
        "run grep --generate 1MB",
        "run grep x",
        "run grep x --generate 1MB --format text",
        "run grep x --generate 1MB --on-bad hope",
        "run grep ( --regex --generate 1MB",
        "run grep (?<=a)b --regex --generate 1MB",
        "run grep x --input /nowhere/at/all",
        "run join --input a",
        "run join --generate 1MB --with b",
        "run join --input a --with b",
        "run join --input a --with b --on k --overlap 0.5",
        "run join --generate 1MB --rate 0",
        "run join --generate 1MB --rate 1.5",
        "run join --generate 1MB --rate nan",
        "run join --generate 1MB --confidence 1",
        "run join --generate 1MB --overlap 2",
        "run join --generate 40",
        "run join --generate 1MB --on dst,port",
        "run join --generate 1MB --value dst,port",
        "run join --input /nowhere/at/all --with /nowhere/either --format pcap",
    ],
)
def test_what_makes_no_sense_is_one_line_and_status_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        task_of(options(line))
    refused(line, capsys)


@pytest.mark.parametrize("name", ["grep", "join"])
def test_help_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", name, "--help"]) == 0
    told = capsys.readouterr().out
    assert f"afspark run {name}" in told and "--on-bad" in told and "--verify" in told


@pytest.mark.parametrize(
    ("flags", "lines"),
    [("", [b"a.c", b"xa.c"]), ("--regex", [b"abc", b"a.c", b"xa.c"]), ("--invert", [b"abc", b"", b"A.C"])],
)
def test_recount_of_lines(tmp_path: Path, flags: str, lines: list[bytes]) -> None:
    (tmp_path / "a.txt").write_bytes(b"abc\r\na.c\n\nA.C\nxa.c")
    task = task_of(options(f"run grep a.c --input {tmp_path} {flags}"))
    found = merge([task.recount(plan(task.source, workers=2).chunks)], ["what"])
    assert dict(zip(*(column.to_pylist() for column in found.columns), strict=True)) == {
        "seen": 5,
        "matched": len(lines),
        "checksum": sum(map(crc32, lines)),
    }


def test_recount_of_rows_passes_over_nulls(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": ["ab", None, "B"]}), tmp_path / "a.parquet")
    task = task_of(options(f"run grep b --ignore-case --input {tmp_path} --format parquet --column t"))
    (chunk,) = plan(task.source, workers=1).chunks
    settings = {"pattern": "b", "column": "t", "regex": False, "ignore_case": True, "invert": False}
    found = count_matches(task.source, [chunk], **settings)
    assert found.column("count").to_pylist()[:2] == [2, 2]


def test_recount_of_pairs() -> None:
    task = task_of(options("run join --generate 4MB --rate 0.2"))
    found = plan(*task.sources, workers=2)
    assert {one.input for one in found.chunks} == {0, 1}
    halves = [task.recount(found.chunks[::2]), task.recount(found.chunks[1::2])]
    truth = join_truth(merge(halves, task.keys), ("dst", "second"))
    left, right = (
        pa.Table.from_batches(
            [batch for one in found.chunks if one.input == side for batch in source.read(one.chunk)]
        ).to_pandas()
        for side, source in enumerate(task.sources)
    )
    joined = left.merge(right, on=["dst", "second"])
    assert truth["count"] == len(joined) > 1000
    assert truth["sum"] == joined["bytes_x"].sum() and truth["average"] == pytest.approx(joined["bytes_x"].mean())
    assert truth["left_samples"] == pytest.approx(0.2 * len(left), rel=0.05)


def test_recount_of_captures_leaves_out_what_is_damaged(tmp_path: Path) -> None:
    frame = ethernet(ipv4("10.0.0.1", "10.0.0.2"))
    (tmp_path / "a.pcap").write_bytes(Capture().add(frame).add(frame, 7).add(b"").to_bytes())
    (tmp_path / "b.pcap").write_bytes(Capture().add(frame).add(frame).to_bytes()[:-3])
    files = f"--input {tmp_path}/a.pcap --with {tmp_path}/b.pcap --format pcap"
    task = task_of(options(f"run join {files} --rate 1 --value bytes"))
    exact = count_tuples(task.sources, plan(*task.sources, workers=1).chunks, join=task.operator)  # type: ignore[arg-type]
    assert join_truth(exact, ("dst", "second")) == {
        "count": 1.0,
        "sum": 34.0,
        "average": 34.0,
        "left_samples": 2.0,
        "right_samples": 1.0,
    }


def test_nothing_to_join() -> None:
    task = task_of(options("run join --generate 1kB"))
    truth = join_truth(task.recount([]), ("dst", "second"))
    assert truth["count"] == 0 and math.isnan(truth["average"]) and np.isfinite(truth["left_samples"])


def test_recount_of_weights_leaves_out_what_heavy_hitters_skip(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"k": [1, 1, 2, None], "w": pa.array([5, -1, None, None], pa.int64())}), tmp_path / "a.parquet"
    )
    task = task_of(options(f"run heavy-hitters --input {tmp_path} --keys k --weight w --threshold 1"))
    assert task.recount(plan(task.source, workers=1).chunks).to_pylist() == [{"k": 1, "total": 5}]
