"""How much of its kernel's speed an algorithm keeps as a stream, and where the rest goes.

For each algorithm four figures are measured in turn, round by round: the kernel alone on Arrow data in memory
(see `alone` for what that is), its input alone, both without Spark, and the stream with as many workers. What both
lack to the kernel is the input's; what the stream lacks to both is Spark's and the engine's.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import afspark as af
from afspark.algorithms.logistic_regression import LocalRegression
from afspark.bench.alone import WORKERS, BarePart, items_in, run_alone, shares_of
from afspark.bench.bench_inputs import BATCH_BYTES, text_files
from afspark.bench.interleave import Contest, interleave
from afspark.bench.streams import WARM_BATCHES, batch_seconds
from afspark.sources import Clicks, Higgs, Packets, Source, TextFiles

STREAM = "stream"
#: Measured batches of a stream.
BATCHES = 5
MEGABYTE = 10**6


@dataclass(frozen=True)
class Case:
    """An algorithm with its input: ``whole`` for the stream, ``part`` as much as fits in memory for the rest."""

    name: str
    part: Source
    whole: Source
    batch_bytes: int
    operator: Callable[[], af.Operator]
    #: applies the algorithm to a stream
    apply: Callable[[af.Stream], af.StreamWriter]


def kernel_share(
    spark: SparkSession, *, folder: Path, rounds: int = 3, only: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """A row for each algorithm: what kernel, input, both and stream do in a second, and the stream's share.

    ``folder`` is where input files are kept for the next time; ``only`` names the algorithms to measure.
    """
    return [_row(case, spark, rounds) for case in cases(folder) if not only or case.name in only]


def cases(folder: Path) -> list[Case]:
    files = text_files(folder, 2)
    text_bytes = 1000 * MEGABYTE
    texts = TextFiles(str(files)), TextFiles(str(_linked(files, folder, text_bytes))), text_bytes
    heavy = partial(af.HeavyHitters, keys=("src", "dst"), weight="bytes", threshold=10_000_000)
    greps: Mapping[str, Callable[[], af.Grep]] = {
        "Grep, rare literal": partial(af.Grep, "otden"),
        "Grep, common literal": partial(af.Grep, "kdad"),
        "Grep, rare expression": partial(af.Grep, r"\b(othsm|thtodoc) \w*e\b", regex=True),
        "Grep, common expression": partial(af.Grep, r"\bkdad\b", regex=True),
    }
    found = [Case(name, *texts, make, partial(_grepped, make)) for name, make in greps.items()]
    packets = Packets(4_000_000), Packets(40_000_000 * (BATCHES + WARM_BATCHES)), 24 * 40_000_000
    found.append(Case("heavy hitters", *packets, _fitted(heavy, packets[0]), partial(_counted, heavy)))
    for name, kind, size in (("clicks", Clicks, 45), ("higgs", Higgs, 113)):
        rows = 10_000_000 if name == "clicks" else 20_000_000
        part, whole = kind(1_000_000), kind(rows * (BATCHES + WARM_BATCHES))
        found.append(Case(f"regression, {name}", part, whole, rows * size, _fitted(LocalRegression, part), _learned))
    return found


def _fitted(make: Callable[[], af.Operator], source: Source) -> Callable[[], af.Operator]:
    def made() -> af.Operator:
        operator = make()
        operator.check(source.schema())
        return operator

    return made


def _grepped(make: Callable[[], af.Grep], stream: af.Stream) -> af.StreamWriter:
    sent = stream.apply(make(), workers=WORKERS, tolerance=af.Approximate(theta=10_000))
    return sent.writeStream.outputMode("append").format("noop")


def _counted(make: Callable[[], af.Operator], stream: af.Stream) -> af.StreamWriter:
    return stream.apply(make(), workers=WORKERS, tolerance=af.Approximate(theta=100_000)).writeStream


def _learned(stream: af.Stream) -> af.StreamWriter:
    tolerance = af.Approximate(theta=10, items=1000)
    writer: af.StreamWriter = af.logistic_regression(stream, workers=WORKERS, tolerance=tolerance).writeStream
    return writer


def _linked(files: Path, folder: Path, batch_bytes: int) -> Path:
    """The same files under many names: a long stream that costs no disk and stays in the system's cache."""
    originals = sorted(files.iterdir())
    count = (BATCHES + WARM_BATCHES) * batch_bytes // BATCH_BYTES
    target = folder / f"{files.name}-linked-{count}"
    if not target.exists():
        unfinished = folder / f".{target.name}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for number in range(count):
            os.link(originals[number % len(originals)], unfinished / f"{number:04d}.txt")
        unfinished.rename(target)
    return target


def _row(case: Case, spark: SparkSession, rounds: int) -> dict[str, Any]:
    measures: dict[str, Callable[[], dict[str, float]]] = {
        part.value: partial(run_alone, part, case.part, case.operator()) for part in BarePart
    }
    contest = interleave({**measures, STREAM: partial(run_stream, case, spark)}, rounds=rounds)
    return {"algorithm": case.name, "batch_mb": case.batch_bytes / 1e6, **_figures(contest)}


def _figures(contest: Contest) -> dict[str, Any]:
    figure = "mb_per_second"
    return {
        "figures": contest.to_json(),
        "share": contest.ratio(STREAM, BarePart.KERNEL, figure),
        "share without spark": contest.ratio(BarePart.BOTH, BarePart.KERNEL, figure),
        "stream / input and kernel": contest.ratio(STREAM, BarePart.BOTH, figure),
    }


def run_stream(case: Case, spark: SparkSession) -> dict[str, float]:
    """The algorithm as a stream: the time is Spark's ``triggerExecution`` of all batches but the first two."""
    checkpoint = tempfile.mkdtemp(prefix="afspark-bench-")
    try:
        query = (
            case.apply(af.read_stream(spark).source(case.whole))
            .option("checkpointLocation", checkpoint)
            .option("batchBytes", case.batch_bytes)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        taken = batch_seconds(query.spark_query)
        rate = len(taken) / query.totals.batches / sum(taken)
        query.release()
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
    megabytes = query.totals.bytes / 1e6
    items = megabytes * _lines_per_mb(case.part) if isinstance(case.part, TextFiles) else query.totals.items
    return {
        "mb_per_second": megabytes * rate,
        "items_per_second": items * rate,
    }


def _lines_per_mb(source: Source) -> float:
    """The engine counts blocks where the user counts lines."""
    batch = next(iter(source.read(shares_of(source, 1)[0][0])))
    return items_in(batch) / batch.nbytes * 1e6
