"""How scripts end that go wrong, as whoever has started them reads it: their own lines, then one of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from afspark.resident.segment_root import BASE_VARIABLE
from tests.spark.conftest import ROOT

SECONDS = 120

#: What Java and Spark say when they start, before anything of ours runs.
CHATTER = (
    *("WARNING: Using incubator", "Using Spark's default log4j", "Setting default log level", "To adjust logging"),
    *("WARNING: package sun.security", *(f"{year}/" for year in range(26, 99))),
)

BEGIN = """
import pyarrow as pa
import afspark as af


class Count(af.Operator):
    key = ("value",)

    def states(self):
        return {"counts": af.HashTable(key="string", value="int64", operator_key=True)}

    def process(self, items, states):
        states["counts"].add(items.column("value"), 1)


class Divides(Count):
    def process(self, items, states):
        return 1 // (items.num_rows - items.num_rows)


def halves(items):
    return items.column("values")


def sink(rows, batch):
    raise LookupError("no such table")


def write(stream):
    writer = stream.writeStream.option("checkpointLocation", "checkpoint").option("segments", "segments")
    return writer.trigger(availableNow=True)


spark = af.session("local[2]", config={"spark.ui.enabled": "false"})
lines = af.read_stream(spark).text("in/", on_bad="stop")
"""

#: by name: the last lines of a script, the line of its own that its traceback ends with, and what the last line has
SCRIPTS: dict[str, tuple[str, str, str]] = {
    "an operator raises": (
        "write(lines.apply(Divides())).start().awaitTermination()",
        "in process",
        "ZeroDivisionError",
    ),
    "a transform raises": ("write(lines.map(halves).apply(Count())).start().awaitTermination()", "in halves", "values"),
    "a sink raises": (
        "write(lines.apply(Count())).foreachBatch(sink).start().awaitTermination()",
        "in sink",
        "LookupError: no such table",
    ),
    "a wrong type": ("lines.apply(Count(), tolerance=1000)", "", "Approximate(theta=1000)"),
    "a class for an operator": ("lines.apply(Count)", "", "Write Count(...)"),
    "input that is damaged": (
        "import os; open('in/b.txt', 'wb').write(b'\\xff\\n'); write(lines.apply(Count())).start().awaitTermination()",
        "",
        "b.txt",
    ),
    "more workers than slots": ("write(lines.apply(Count(), workers=9)).start()", "", "9"),
    "a checkpoint that is a file": (
        "open('checkpoint', 'w').write('x'); write(lines.apply(Count())).start()",
        "",
        "checkpoint",
    ),
}
DEFAULT = "an operator raises"


def environment(place: Path) -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ["PYTHONPATH"]])
    return {**os.environ, "PYTHONPATH": paths, BASE_VARIABLE: str(place / "segments")}


def written(place: Path, end: str) -> list[str]:
    """The command that runs a script which ends so."""
    (place / "in").mkdir()
    (place / "in" / "a.txt").write_text("a b\nc d\n" * 50)
    (place / "script.py").write_text(f"{BEGIN}{end}\n")
    return [sys.executable, "script.py"]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == DEFAULT else pytest.mark.thorough) for n in SCRIPTS])
def test_a_script_that_goes_wrong(tmp_path: Path, name: str) -> None:
    end, own, last = SCRIPTS[name]
    command = written(tmp_path, end)
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    told = [line for line in done.stderr.splitlines() if not line.startswith(CHATTER) and line]
    assert done.returncode == 1, done.stderr
    assert last in told[-1], done.stderr
    assert "site-packages" not in done.stderr and str(ROOT / "src") not in done.stderr and "\tat " not in done.stderr
    if own:
        assert told[0] == "Traceback (most recent call last):" and own in done.stderr
        assert "script.py" in told[1] and len(told) <= 8
    else:
        assert len(told) == 1 and told[0].startswith("afspark: error: ")


@pytest.mark.thorough
def test_ctrl_c_is_one_line(tmp_path: Path) -> None:
    wait = "write(lines.apply(Count())).trigger(processingTime='200 milliseconds').start().awaitTermination()"
    process = subprocess.Popen(
        written(tmp_path, wait), cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + SECONDS
        while not (tmp_path / "checkpoint" / "commits" / "0").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    told = [line for line in errors.splitlines() if not line.startswith(CHATTER) and line]
    assert told == ["afspark: stopped."]
    assert process.returncode == 1


@pytest.mark.thorough
def test_a_landing_folder_may_be_empty_at_first(tmp_path: Path) -> None:
    """Files come later, with a line that is no text, which the policy for bad rows lets pass."""
    end = """
import os, threading, time
def land():
    time.sleep(1)
    for name, content in (("0", b"late\\n" * 7), ("1", b"l\\xffte\\n")):
        open("landing/." + name, "wb").write(content)
        os.rename("landing/." + name, "landing/" + name)
os.mkdir("landing")
stream = af.read_stream(spark).text("landing/", on_bad="skip")
query = write(stream.apply(Count())).trigger(processingTime="100 milliseconds").start()
threading.Thread(target=land).start()
while sum(progress["items"] for progress in query.recentProgress) < 8:
    query.awaitTermination(1)
query.stop()
print(sorted((row["key"].decode(), row["value"]) for row in query.results().collect()))
"""
    done = subprocess.run(
        written(tmp_path, end),
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[('late', 7), ('l\ufffdte', 1)]"
    assert "waits for the first one" in done.stderr
