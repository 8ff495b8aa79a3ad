"""Experiment 3: heavy hitters by Count-Min sketch, precision after failures; theorem 1 of the AF-Stream paper."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.accuracy.prefixes import Prefixes
from afspark.bench.accuracy.trial import BATCHES, PAPERS, AccuracyStudy
from afspark.bounds.sketch_bounds import HeavyKeys
from afspark.report.accuracy import exact_sketch
from afspark.report.recount import merge, sum_weights
from afspark.sources import Packets
from afspark.sources.generated_packets import MEAN_PAYLOAD

KEYS, WEIGHT = ("src", "dst"), "bytes"
THRESHOLD = 10_000_000
LARGEST_PACKET = 1500
_ROW_BYTES = 24


class HeavyHitterStudy(AccuracyStudy):
    """Packets of which some pairs of hosts send more than 10 MB."""

    measure, more_is_better = "precision", True
    tolerances = PAPERS

    def __init__(self, rows_per_batch: int = 1 << 19) -> None:
        self.items = rows_per_batch * BATCHES
        self.batch_bytes = rows_per_batch * _ROW_BYTES
        self.source = Packets(self.items, seed=1)
        self.operator = self.operator_anew()

    def stream(self, spark: SparkSession, tolerance: af.Tolerance) -> af.StatefulStream:
        packets = af.read_stream(spark).source(self.source)
        return packets.apply(self.operator_anew(), workers=2, tolerance=tolerance)

    def score(self, results: pa.Table, batch: int) -> dict[str, float]:
        true, found = self._heavy[batch], _pairs(results)
        hits = len(true & found)
        return {
            "score": hits / len(found) if found else 1.0,
            "recall": hits / len(true) if true else 1.0,
            "heavy": float(len(true)),
        }

    def verdict(self, query: af.Query, results: pa.Table, tolerance: af.Approximate) -> dict[str, float]:
        totals = self._totals[-1]
        sketch = np.zeros(self.operator.shape, np.int64)
        for share in query.shares():
            cells = share.cells["sketch"]
            sketch.reshape(-1)[cells.column("index").to_numpy()] += cells.column("value").to_numpy()
        lost = float(np.max(np.abs(exact_sketch(totals, KEYS, self.operator.shape, "int64") - sketch)))
        light = self.light_below(tolerance)
        falsely = totals.filter(pc.less(totals.column("total"), light))
        reported = len(_pairs(falsely) & _pairs(results)) / max(1, len(falsely))
        recall = self.score(results, BATCHES - 1)["recall"]
        realised, promised = query.bounds()["sketch"], tolerance.promise(LARGEST_PACKET)
        assert promised is not None
        return {
            "observed": lost,
            "realised": realised,
            "promised": promised,
            "recall": recall,
            "light_below": light,
            "light_reported": reported,
            "held": float(lost <= realised <= promised and recall == 1.0 and reported <= 1 / 16),
        }

    def light_below(self, tolerance: af.Approximate) -> float:
        """Keys below this may be reported with a chance of 1/16 at most."""
        keys = HeavyKeys(total=self.items * MEAN_PAYLOAD, threshold=THRESHOLD)
        return keys.light_below(theta=tolerance.theta, items=tolerance.items, alpha=LARGEST_PACKET)

    def operator_anew(self) -> af.HeavyHitters:
        return af.HeavyHitters(keys=KEYS, weight=WEIGHT, threshold=THRESHOLD, largest=LARGEST_PACKET)

    @cached_property
    def _totals(self) -> list[pa.Table]:
        """Exact totals of the pairs after every batch."""
        parts = Prefixes(self.source, self.batch_bytes).per_batch(
            lambda chunks: sum_weights(self.source, chunks, keys=KEYS, weight=WEIGHT)
        )
        totals = [parts[0]]
        for part in parts[1:]:
            totals.append(merge([totals[-1], part], KEYS))
        return totals

    @cached_property
    def _heavy(self) -> list[set[tuple[int, int]]]:
        return [_pairs(totals.filter(pc.greater_equal(totals.column("total"), THRESHOLD))) for totals in self._totals]


def _pairs(table: pa.Table) -> set[tuple[int, int]]:
    return set(zip(*(table.column(name).to_pylist() for name in KEYS), strict=True))
