"""``afspark plan``: what it says of real checkpoints, and what bad use gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.cli.main import main
from afspark.cli.options import PlanOptions, parse
from afspark.errors import CheckpointError

PROGRAM = """
import afspark as af


class Tallies(af.WordCount):
    pass


class Fixed(af.WordCount):
    rescalable = False


def pipeline(lines):
    return lines.apply({operator}, {settings})


def writer(lines):
    return pipeline(lines).writeStream.outputMode("update").option("discardState", "counts")


def nothing(lines):
    return 7


def broken(lines):
    return lines.map(3)
"""
BASE = 'name="counts", workers=2, tolerance=af.Approximate(theta=100)'


def _counted(stream: af.Stream) -> Any:
    return stream.apply(af.WordCount(), name="counts", workers=2, tolerance=af.Approximate(theta=100))


@pytest.fixture
def query() -> Iterator[testing.LocalQuery]:
    with testing.run(_counted, pa.schema([("value", pa.string())])) as query:
        query.batch({"value": ["to be or not"]})
        yield query


def program(folder: Path, settings: str = BASE, operator: str = "af.WordCount()") -> str:
    file = folder / f"words{len(list(folder.iterdir()))}.py"
    file.write_text(PROGRAM.format(settings=settings, operator=operator))
    return str(file)


def planned(query: testing.LocalQuery, capsys: pytest.CaptureFixture[str], *line: str) -> tuple[int, list[str]]:
    status = main(["plan", str(query._folder / "checkpoint"), *line])
    told = capsys.readouterr()
    assert not told.err
    return status, [one.strip() for one in told.out.splitlines()]


def test_what_is_asked() -> None:
    assert parse(["plan", "a", "b.py"]) == PlanOptions(checkpoint="a", pipeline="b.py")
    options = parse(["plan", "a", "b.py:f", "--discard-state", "x", "--discard-state", "y,z", "--json", "j"])
    assert options == PlanOptions(checkpoint="a", pipeline="b.py:f", discard_state=("x", "y,z"), json="j")


def test_a_pipeline_as_it_was(query: testing.LocalQuery, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, told = planned(query, capsys, program(tmp_path))
    assert status == 0 and told[1:] == ["kept: 'counts' keeps its state.", "The pipeline would start on it."]
    assert "after batch 0" in told[0]


def test_what_is_shown_is_what_a_start_does(
    query: testing.LocalQuery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = program(tmp_path, 'name="tallies", id="counts", workers=2, tolerance=af.Approximate(theta=7)', "Tallies()")
    status, told = planned(query, capsys, other)
    assert status == 0
    assert told[1:-1] == [
        "kept: 'tallies' keeps its state.",
        "changed: The operator 'counts' is called 'tallies' now, and was called 'counts'.",
        "changed: 'tallies' is of class Tallies now, not WordCount.",
        "changed: 'tallies' has theta 7 from the next batch on, instead of 100.",
    ]
    status, told = planned(query, capsys, program(tmp_path, BASE.replace("workers=2", "workers=3")))
    assert status == 0 and "changed: 'counts' is rescaled from 2 workers to 3." in told
    fixed = program(tmp_path, BASE.replace("workers=2", "workers=3"), "Fixed()")
    status, told = planned(query, capsys, fixed)
    assert status == 1 and any("Fixed declares rescalable = False" in line for line in told)
    other = program(tmp_path, f'{BASE}, window=af.Hopping(60, by="processing")')
    document = tmp_path / "made" / "plan.json"
    status, told = planned(query, capsys, other, "--json", str(document))
    assert status == 1 and told[-1] == "The pipeline would be refused."
    found = json.loads(document.read_text())
    (finding,) = found["findings"]
    assert (found["starts"], finding["verdict"], finding["field"]) == (False, "refused", "window")
    before = {path: path.read_bytes() for path in query._folder.rglob("*") if path.is_file()}
    for line in ((other, "--discard-state", "counts"), (f"{other}:writer",)):
        status, told = planned(query, capsys, *line)
        assert status == 0 and told[1].startswith("anew: 'counts' starts with an empty state")
    assert {path: path.read_bytes() for path in query._folder.rglob("*") if path.is_file()} == before
    window = af.Hopping(60, by="processing")
    with pytest.raises(CheckpointError) as refused:
        query.restart_driver(lambda stream: stream.apply(af.WordCount(), name="counts", workers=2, window=window))
    assert finding["text"].rstrip(".") in refused.value.message and finding["remedy"] == refused.value.remedy


SCRIPT = """
import sys

import afspark as af
from afspark.api.stream import Inflow, Stream, StreamReader

if __name__ == "__main__":
    try:
        counts = StreamReader(None).words(1000).apply(af.WordCount(), name="counts")
        counts.writeStream.outputMode("update").format("noop").start()
    except Exception:
        print("a query was started")
    finally:
        print("and the program has ended")
"""


def test_a_program_is_run_until_it_would_start_its_query(
    query: testing.LocalQuery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    status, told = planned(query, capsys, str(script))
    assert status == 1 and told[0] == "and the program has ended"
    assert any("source has another kind" in line for line in told)
    assert any("'counts' has keyed true instead of false" in line for line in told)


IN_A_THREAD = """
import threading

import afspark as af
from afspark.api.stream import StreamReader


def begin():
    StreamReader(None).words(1000).apply(af.WordCount(), name="counts").writeStream.start()


if __name__ == "__main__":
    threading.Thread(target=begin).start()
"""
SWALLOWED = IN_A_THREAD.replace(
    "    threading.Thread(target=begin).start()",
    "    try:\n        query = begin()\n    except:\n        pass\n    query.awaitTermination()",
)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("script", [IN_A_THREAD, SWALLOWED], ids=["in a thread", "swallowed"])
def test_a_program_starts_its_query_in_no_other_way(
    query: testing.LocalQuery, tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    file = tmp_path / "program.py"
    file.write_text(script)
    status, told = planned(query, capsys, str(file))
    assert status == 1 and any("source has another kind" in line for line in told)


def test_bad_use(query: testing.LocalQuery, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, file = str(query._folder / "checkpoint"), program(tmp_path)
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "torn.py").write_text("def pipeline(:\n")
    (tmp_path / "raising.py").write_text("raise ValueError('of mine')\n")
    for line, words in {
        (str(tmp_path), file): "no checkpoint",
        (checkpoint, str(tmp_path / "none.py")): "no Python file",
        (checkpoint, str(tmp_path / "torn.py")): "no Python file",
        (checkpoint, str(tmp_path / "empty.py")): "starts no query",
        (checkpoint, str(tmp_path / "raising.py")): "of mine",
        (checkpoint, f"{file}:unknown"): "no function 'unknown'",
        (checkpoint, f"{file}:nothing"): "no operator",
        (checkpoint, f"{file}:broken"): "no function",
        (checkpoint, file, "--json", str(tmp_path)): "--json",
    }.items():
        assert main(["plan", *line]) == 2, line
        told = capsys.readouterr().err.strip()
        assert words in told and told.startswith("afspark: error: ") and "\n" not in told, told
