"""How long it takes to give an operator with many keys another number of workers."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.markdown import table
from afspark.bench.rig import Rig

TITLE = "Other numbers of workers"
KEYS = 10**7
FILES = 10
#: from the first number to the last, each from the one before
NUMBERS = (2, 3, 2, 2)


class Sums(af.Operator):
    """Sums by key."""

    key: ClassVar[tuple[str, ...]] = ("key",)

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"sums": af.HashTable(key="int64", value="int64", operator_key=True)}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["sums"].add(items.column("key"), items.column("value"))


def measure(rig: Rig) -> dict[str, Any]:
    """Keyed and local shares of ten million keys; the input is deleted before the numbers change."""
    # A slot for each worker, however many cores there are.
    with rig.slots(max(NUMBERS)) as spark:
        return {name: _changes(spark, keyed=keyed) for name, keyed in (("keyed", True), ("local", False))}


def _changes(spark: SparkSession, *, keyed: bool) -> list[dict[str, Any]]:
    folder = Path(tempfile.mkdtemp(prefix="afspark-bench-"))
    try:
        total = _fill(folder / "input")
        query = _run(spark, folder, NUMBERS[0], keyed)
        rows = []
        for number, workers in enumerate(NUMBERS[1:]):
            shutil.rmtree(folder / "input")
            # One item, so that there is a batch: the first one comes when all workers have their state.
            total += _write(folder / "input" / f"more-{number}.parquet", np.array([number]))
            started = time.perf_counter()
            query = _run(spark, folder, workers, keyed)
            seconds = time.perf_counter() - started
            found = query.results().selectExpr("count(*)", "sum(value)").first()
            exact = found is not None and tuple(found) == (KEYS, total) and not any(query.bounds().values())
            rows.append({"former": NUMBERS[number], "workers": workers, "seconds": seconds, "exact": exact})
        query.release()
        return rows
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path) -> int:
    keys = np.random.default_rng(0).permutation(KEYS)
    return sum(_write(folder / f"{number}.parquet", part) for number, part in enumerate(np.array_split(keys, FILES)))


def _write(path: Path, keys: Any) -> int:
    """A file with an item for each key; what their values come to."""
    path.parent.mkdir(exist_ok=True)
    values = keys % 1000 + 1
    pq.write_table(pa.table({"key": pa.array(keys, pa.int64()), "value": pa.array(values, pa.int64())}), path)
    return int(values.sum())


def _run(spark: SparkSession, folder: Path, workers: int, keyed: bool) -> af.Query:
    """The query, run over all input there is and stopped."""
    stream = af.read_stream(spark).parquet(str(folder / "input"))
    summed = stream.apply(Sums(), name="sums", workers=workers, keyed=keyed, tolerance=af.MiniBatch())
    writer = summed.writeStream.option("checkpointLocation", folder / "checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def page(found: dict[str, Any]) -> str:
    text = (
        f"{KEYS:,} keys (`int64`) under `MiniBatch` in a checkpoint on the local disk; the query was stopped, and its input "
        "deleted. Seconds are from `start()` until the first batch, of one item, has ended: until then the state was "
        "divided among the new workers, and restored. With the number that there was, the state is where it was.\n\n"
    )
    rows = [
        [shares, f"{row['former']} → {row['workers']}", f"{row['seconds']:.1f}", "yes" if row["exact"] else "**no**"]
        for shares, several in found.items()
        for row in several
    ]
    return text + table(["shares", "workers", "seconds", "exact"], rows)
