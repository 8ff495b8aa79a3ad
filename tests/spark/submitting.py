"""A program of a user's as ``spark-submit`` starts it, and what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark

from afspark.cluster.spark.java import find_java_home
from afspark.resident.segment_root import BASE_VARIABLE

ROOT = Path(__file__).parents[2]
SECONDS = 600

#: Counts words and says on its last line how it went. It has neither a master nor settings of its own.
PROGRAM = """
import json
import sys
import time

import afspark as af


def main(place, policy, trigger):
    spark = af.session()
    tolerance = eval(f"af.{policy}")
    counted = af.read_stream(spark).text(f"{place}/input").apply(af.WordCount(), name="counts", tolerance=tolerance)
    writer = counted.writeStream.option("checkpointLocation", f"{place}/checkpoint").option("batchBytes", 4000)
    every = {"availableNow": True} if trigger == "now" else {"processingTime": trigger}
    query = writer.option("hostGraceSeconds", 1).trigger(**every).start()
    query.awaitTermination()
    print(
        json.dumps(
            {
                "counts": {row["word"]: row["count"] for row in query.results().collect()},
                "counted": [entry["counted"] for entry in query.ledger()],
                "bound": query.bounds()["counts"],
                "settings": dict(spark.sparkContext.getConf().getAll()),
                "wait": spark.conf.get("spark.locality.wait"),
                "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
                "slots": spark.sparkContext.defaultParallelism,
                "python": sys.executable,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def write_input(place: Path, files: int = 6) -> dict[str, int]:
    """Files of a batch each; returns their counts."""
    (place / "input").mkdir(parents=True)
    for file in range(files):
        (place / "input" / f"{file}.txt").write_text(f"all file{file}\n" * 300)
    return {"all": 300 * files, **{f"file{file}": 300 for file in range(files)}}


@contextmanager
def submitted(place: Path, *arguments: str, options: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """The program under ``spark-submit`` with these options of it, in a session of its own, which ends with the block.

    Its processes find afspark, and nothing of the tests.
    """
    program = place / "count_words.py"
    program.write_text(PROGRAM)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    process = subprocess.Popen(
        [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), *options, str(program), str(place), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=place,
        env={
            **kept,
            "JAVA_HOME": str(find_java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT / "src"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            BASE_VARIABLE: str(place / "segments"),
        },
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate()


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What the program has said in the end; it must have ended well."""
    out, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    answer: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return answer


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def python_below(pid: int) -> int:
    """The program's own process, which the JVM ``pid`` has started."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            if b"count_words.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
    raise AssertionError(f"{pid} has started no program")
