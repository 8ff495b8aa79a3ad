"""Small streams with known answers, and the places they run in."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import afspark as af
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from afspark.sources import Packets

BATCH_BYTES = 60_000
Counts = dict[str, int]


@dataclass(frozen=True)
class Place:
    """Where one query keeps its input, its checkpoint and its resident state."""

    root: Path

    @property
    def input(self) -> Path:
        return self.root / "input"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def segments(self) -> Path:
        return self.root / "segments"

    def lose_segments(self, pattern: str = "*/*/*-[0-9]*") -> int:
        """What the end of the hosts does to resident state; returns how many segments there were."""
        lost = [folder for folder in self.segments.glob(pattern) if folder.is_dir()]
        for folder in lost:
            shutil.rmtree(folder)
        return len(lost)

    def objects(self) -> list[Path]:
        """Backup objects, oldest first."""
        found = (self.checkpoint / "afspark" / "objects").rglob("*-*-*-*")
        return sorted((path for path in found if path.is_file()), key=lambda path: path.stat().st_mtime_ns)


def text(seed: int, size: int = BATCH_BYTES // 4, words: int = 3_000) -> str:
    """Exactly ``size`` bytes of lines whose words follow Zipf's law; every seed has a few words of its own."""
    draw = np.random.default_rng(seed)
    ranks = np.minimum(draw.zipf(1.3, size // 2), words)
    tokens = [f"w{rank}" if rank % 97 else f"s{seed}x{rank}" for rank in ranks.tolist()]
    lines = "".join(" ".join(tokens[at : at + 8]) + "\n" for at in range(0, len(tokens), 8))
    return lines[: lines.rindex("\n", 0, size)].ljust(size - 1) + "\n"


def write_text(folder: Path, files: int, *, first: int = 0, size: int = BATCH_BYTES // 4) -> Counter[str]:
    """Text files, complete when they appear; returns an exact recount of what they hold."""
    folder.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    for number in range(first, first + files):
        content = text(number, size)
        hidden = folder / f".part-{number:04d}"
        hidden.write_text(content)
        hidden.rename(folder / f"part-{number:04d}.txt")
        counts.update(content.split())
    return counts


def words(
    spark: SparkSession,
    place: Place,
    tolerance: af.Tolerance,
    *,
    faults: FaultPlan | None = None,
    keyed: bool | None = None,
    operator: af.Operator | None = None,
    transforms: tuple[af.Transform, ...] = (),
    workers: int = 2,
    batch_bytes: int = BATCH_BYTES,
) -> af.StreamWriter:
    """A count of the words in the text files of a place."""
    stream = af.read_stream(spark).text(str(place.input), blocks=True)
    for transform in transforms:
        stream = stream.map(transform)
    stateful = stream.apply(operator or af.WordCount(), workers=workers, tolerance=tolerance, keyed=keyed)
    return at(stateful.writeStream, place, batch_bytes).inject(faults or FaultPlan())


def at(writer: af.StreamWriter, place: Place, batch_bytes: int = BATCH_BYTES) -> af.StreamWriter:
    """The writer with the place's folders; ends when the input does."""
    return (
        writer.option("checkpointLocation", place.checkpoint)
        .option("segments", place.segments)
        .option("batchBytes", batch_bytes)
        .option("hostGraceSeconds", 5)
        .trigger(availableNow=True)
    )


def run(writer: af.StreamWriter) -> af.Query:
    query = writer.start()
    query.awaitTermination()
    return query


def counts(query: af.Query) -> Counts:
    return {row[0]: row[1] for row in query.results().collect()}


def worst(truth: Mapping[Any, float], got: Mapping[Any, float]) -> float:
    """The largest difference of any key."""
    return max((abs(truth.get(key, 0) - got.get(key, 0)) for key in truth.keys() | got.keys()), default=0)


def affected(phase: FaultPhase, *batches: int) -> FaultPlan:
    return FaultPlan(frozenset(InjectedFailure(batch, phase) for batch in batches), f"{phase.name}-{batches}")


def packet_truth(source: Packets) -> dict[tuple[int, int], int]:
    """Exact bytes of every pair of addresses of generated packets."""
    planner = source.planner(None)  # type: ignore[arg-type]
    chunks = planner.chunks(planner.initial(), planner.discover())
    table = pa.Table.from_batches([batch for chunk in chunks for batch in source.read(chunk)])
    sums = table.group_by(["src", "dst"]).aggregate([("bytes", "sum")]).to_pylist()
    return {(row["src"], row["dst"]): row["bytes_sum"] for row in sums}
