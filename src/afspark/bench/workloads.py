"""The five algorithms as the papers' experiments run them, each ready for any tolerance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import afspark as af
from afspark.bench.bench_inputs import BATCH_BYTES
from afspark.bench.rig import Rig
from afspark.sources import Clicks, Visits
from afspark.sources.generated_visits import VISIT_BYTES
from afspark.sources.labelled_rows import CLICK_BYTES

GREP, WORDCOUNT, HITTERS, JOIN, REGRESSION = "Grep", "WordCount", "heavy hitters", "online join", "logistic regression"
PATTERN = "qu"


@dataclass(frozen=True)
class Workload:
    """``start`` gives the writer of a run; ``approximate`` is what the papers set; one batch has ``batch_bytes``."""

    start: Callable[[af.Tolerance], af.StreamWriter]
    approximate: af.Approximate
    batch_bytes: int
    #: the papers' second setting, with a tenth of Θ
    tighter: af.Approximate | None
    #: the operator whose results are asked for at the end; None: there are none
    results: str | None


def workloads(rig: Rig) -> Mapping[str, Workload]:
    """Two workers each. Text and packets come from files, visits and clicks from generators in the workers."""
    read = af.read_stream(rig.spark)
    hitters, visits, clicks = rig.packet_bytes, BATCH_BYTES // 2, BATCH_BYTES
    rows = rig.batches * visits // VISIT_BYTES, rig.batches * clicks // CLICK_BYTES

    def grep(tolerance: af.Tolerance) -> af.StreamWriter:
        lines = read.text(str(rig.text), blocks=True).apply(af.Grep(PATTERN), workers=2, tolerance=tolerance)
        return lines.writeStream.outputMode("append").format("noop")

    def words(tolerance: af.Tolerance) -> af.StreamWriter:
        return read.text(str(rig.text), blocks=True).apply(af.WordCount(), workers=2, tolerance=tolerance).writeStream

    def heavy(tolerance: af.Tolerance) -> af.StreamWriter:
        operator = af.HeavyHitters(keys=("src", "dst"), weight="bytes", threshold=10_000_000, largest=1500)
        return read.parquet(str(rig.packets)).apply(operator, workers=2, tolerance=tolerance).writeStream

    def join(tolerance: af.Tolerance) -> af.StreamWriter:
        operator = af.OnlineJoin(on=("dst", "second"), rate=0.1)
        left, right = (read.source(Visits(rows[0], stream=side, seed=1)) for side in (0, 1))
        both = left.map(operator.left).union(right.map(operator.right))
        return both.apply(operator, workers=2, tolerance=tolerance).writeStream

    def regression(tolerance: af.Tolerance) -> af.StreamWriter:
        model: af.StatefulStream = af.logistic_regression(
            read.source(Clicks(rows[1], seed=1)), workers=2, tolerance=tolerance
        )
        return model.writeStream

    papers, tenth = {"items": 1e3, "unacked": 1e3}, {"items": 1e2, "unacked": 1e3}
    return {
        GREP: Workload(grep, af.Approximate(theta=1e4), BATCH_BYTES, None, None),
        WORDCOUNT: Workload(words, af.Approximate(theta=1e4), BATCH_BYTES, None, "wordcount"),
        HITTERS: Workload(
            heavy, af.Approximate(theta=1e5, **papers), hitters, af.Approximate(theta=1e4, **tenth), "heavyhitters"
        ),
        JOIN: Workload(
            join, af.Approximate(theta=1e5, **papers), visits, af.Approximate(theta=1e4, **tenth), "onlinejoin"
        ),
        REGRESSION: Workload(
            regression, af.Approximate(theta=10, **papers), clicks, af.Approximate(theta=1, **tenth), "local"
        ),
    }
