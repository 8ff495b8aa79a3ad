"""A small job from nothing: a process is started anew, and the time until it has its first result is taken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from afspark.bench.bench_inputs import read_all
from afspark.cluster.loopback.loopback_hosts import python_paths
from afspark.cluster.spark.java import find_java_home
from afspark.resident.segment_root import BASE_VARIABLE
from afspark.sources import ZipfWords

#: Of text, in one file.
INPUT_BYTES = 1_000_000
_SECONDS = 600.0

#: Each tells the time when it has imported what it needs, has a session, has started its query, and has rows of it.
_PROGRAMS = {
    "native": """
import json, sys, time
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
times = [time.time()]
place, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
times.append(time.time())
words = spark.readStream.text(place).select(F.explode(F.split("value", r"\\s+")).alias("word")).where("word != ''")
found = []
def take(rows, batch):
    found.append(rows.count())
    times.append(time.time())
writer = words.groupBy("word").count().writeStream.outputMode("update").foreachBatch(take)
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
started = time.time()
query.awaitTermination()
print(json.dumps([*times[:2], started, times[2], found[0]]))
""",
    "afspark": """
import json, sys, time
import afspark as af
times = [time.time()]
place, checkpoint = sys.argv[1:]
spark = af.session("local[2]", config={"spark.ui.enabled": "false"})
times.append(time.time())
counted = af.read_stream(spark).text(place, blocks=True).apply(af.WordCount(), tolerance=af.Approximate(theta=1000))
found = []
def take(rows, batch):
    found.append(rows.count())
    times.append(time.time())
writer = counted.writeStream.outputMode("update").foreachBatch(take)
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
started = time.time()
query.awaitTermination()
print(json.dumps([*times[:2], started, times[2], found[0]]))
""",
}
#: What the times between two of those are spent on.
PARTS = ("imports", "session", "start", "first result")


def small_input(folder: Path) -> Path:
    """A folder with one small file of words."""
    target = folder / "cold-start"
    if not target.exists():
        unfinished = folder / ".cold-start"
        unfinished.mkdir(parents=True, exist_ok=True)
        blocks = (row.as_buffer() for batch in read_all(ZipfWords(INPUT_BYTES)) for row in batch[0])
        (unfinished / "words.txt").write_bytes(b"".join(blocks))
        unfinished.rename(target)
    return target


def cold_start(program: str, place: Path, more: Mapping[str, str] | None = None) -> dict[str, float]:
    """Seconds from the start of a process to the first result of ``program``, in all and by `PARTS`; ``rows``: of that
    result. ``more`` goes into its environment.
    """
    with tempfile.TemporaryDirectory(prefix="afspark-bench-") as scratch:
        own = {
            # Native Spark looks for Java in the environment alone.
            "JAVA_HOME": str(find_java_home()),
            "PYTHONPATH": python_paths(),
            "PYSPARK_PYTHON": sys.executable,
            BASE_VARIABLE: f"{scratch}/segments",
        }
        began = time.time()
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAMS[program], str(place), f"{scratch}/checkpoint"],
            env={**os.environ, **own, **(more or {})},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{program} has failed: {done.stderr[-2000:]}")
    *times, rows = json.loads(done.stdout.strip().splitlines()[-1])
    spent = dict(zip(PARTS, (now - before for before, now in zip([began, *times], times, strict=False)), strict=True))
    return {"seconds": times[-1] - began, **spent, "rows": rows}
