"""Writes down the classes that Spark loads for a short query, so that the Java processes of the tests start faster.

``python -m tests.archive`` makes the file; `tests/conftest.py` uses it if it is there. A Java of another version,
or one with other jars, ignores it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / "build" / "spark.jsa"

# Processes that live for seconds must not spend them on compiling for hours.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Java would tell on its output why it cannot use an archive.
_SILENT = "-Xlog:disable -Xlog:all=error:stderr"


def java_options() -> str:
    """For every Java process of the tests."""
    return f"{_SHORT_LIVED} {_SILENT} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.is_file() else _SHORT_LIVED


def make() -> None:
    """Runs a query in a process that writes the archive when it ends."""
    ARCHIVE.parent.mkdir(exist_ok=True)
    fresh = ARCHIVE.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_SHORT_LIVED} {_SILENT} -XX:ArchiveClassesAtExit={fresh}"

    import afspark as af
    from tests.spark.conftest import make_session
    from tests.spark.streams import Place, counts, run, words, write_text

    with tempfile.TemporaryDirectory(prefix="afspark-archive-") as folder:
        spark = make_session(Path(folder))
        java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        place = Place(Path(folder))
        truth = write_text(place.input, 4)
        found = counts(run(words(spark, place, af.MiniBatch(), keyed=True)))
        spark.stop()
        java.stdin.close()
        java.wait()
    if found != truth:
        sys.exit("the query has counted wrong")
    if fresh.exists():
        fresh.replace(ARCHIVE)


if __name__ == "__main__":
    make()
