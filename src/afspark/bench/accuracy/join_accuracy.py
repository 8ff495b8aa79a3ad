"""Experiment 4: online join, relative error of the COUNT estimate after failures; theorem 2 of the AF-Stream paper."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.accuracy.prefixes import Prefixes
from afspark.bench.accuracy.trial import BATCHES, PAPERS, AccuracyStudy
from afspark.bounds.join_bounds import lost_samples
from afspark.sources import Visits
from afspark.sources.chunks import NumberedChunk
from afspark.sources.generated_visits import VISIT_BYTES

ON = ("dst", "second")
RATE = 0.1
#: the most items that an item joins with, as the papers take it
FAN_OUT = 100


class JoinStudy(AccuracyStudy):
    """Two streams of visits; tuples of host and second that occur in both."""

    measure, more_is_better = "relative error of COUNT", False
    tolerances = PAPERS

    def __init__(self, rows_per_batch: int = 1 << 20) -> None:
        rows = rows_per_batch * BATCHES
        self.items = 2 * rows
        self.batch_bytes = rows_per_batch * VISIT_BYTES
        self.sides = tuple(Visits(rows, stream=side, seed=1) for side in (0, 1))

    def stream(self, spark: SparkSession, tolerance: af.Tolerance) -> af.StatefulStream:
        join = self._join()
        read = af.read_stream(spark)
        left, right = (read.source(side) for side in self.sides)
        return left.map(join.left).union(right.map(join.right)).apply(join, workers=2, tolerance=tolerance)

    def score(self, results: pa.Table, batch: int) -> dict[str, float]:
        (row,) = (row for row in results.to_pylist() if row["aggregate"] == "count")
        truth = self._truth[batch][0]
        return {
            "score": abs(row["estimate"] - truth) / truth,
            "signed": (row["estimate"] - truth) / truth,
            "inside": float(row["low"] <= truth <= row["high"]),
            "samples": float(row["samples"]),
        }

    def verdict(self, query: af.Query, results: pa.Table, tolerance: af.Approximate) -> dict[str, float]:
        taken = self.score(results, BATCHES - 1)
        missing = self._truth[-1][1] - taken["samples"]
        bounds = query.bounds()
        realised = bounds["left"] + bounds["right"]
        # Each side is a state of its own, with all of Θ.
        promised = lost_samples(
            theta=2 * tolerance.theta, items=tolerance.items, unacked=tolerance.unacked, fan_out=FAN_OUT
        )
        return {
            "observed": missing,
            "realised": realised,
            "promised": promised,
            "inside": taken["inside"],
            "held": float(0 <= missing <= realised <= promised),
        }

    def _join(self) -> af.OnlineJoin:
        return af.OnlineJoin(on=ON, rate=RATE)

    @cached_property
    def _truth(self) -> list[tuple[float, float]]:
        """After every batch: joined pairs, and items in an undisturbed sample of both sides."""
        both = [Prefixes(side, self.batch_bytes).batches for side in self.sides]
        counted: list[dict[int, Any]] = [{}, {}]
        pairs, samples, found = 0.0, 0.0, []
        for batch in range(BATCHES):
            for side in (0, 1):
                samples += self._counted(side, both[side][batch], counted[side])
            # Both streams move through the same seconds; only the last one may go on in the next batch.
            done = sorted(set(counted[0]) & set(counted[1]))[:-1]
            pairs += sum(_pairs(counted[0].pop(second), counted[1].pop(second)) for second in done)
            open_ones = set(counted[0]) & set(counted[1])
            found.append((pairs + sum(_pairs(counted[0][one], counted[1][one]) for one in open_ones), samples))
        return found

    def _counted(self, side: int, chunks: Sequence[NumberedChunk], hosts: dict[int, Any]) -> float:
        """Adds the hosts of every second; how many of the items a join samples."""
        join, samples = self._join(), 0.0
        for chunk in chunks:
            for batch in self.sides[side].read(chunk):
                marked = join.right(batch) if side else join.left(batch)
                samples += join.sample(marked).num_rows
                seconds, dst = batch.column("second").to_numpy(), batch.column("dst").to_numpy()
                for second in np.unique(seconds):
                    hosts.setdefault(int(second), []).append(dst[seconds == second])
        return samples


def _pairs(left: Sequence[Any], right: Sequence[Any]) -> float:
    """Pairs of equal hosts."""
    ours, mine = np.unique(np.concatenate(left), return_counts=True)
    theirs, others = np.unique(np.concatenate(right), return_counts=True)
    _, at, place = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    return float((mine[at] * others[place]).sum())
