"""Three operators in a row, with windows and feedback, and a count of what they should find.

Lines ``time key`` pass a gate, are counted by key in windows, and the ended windows are added up; for every window
that has ended, the last operator sends one item back to the gate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

import afspark as af
from afspark.protocol.fault_plan import FaultPlan
from tests.spark.streams import Place, at

LENGTH = 20
LINES = 800
BATCH_BYTES = 4 * 6_400
Windows = dict[tuple[int, str], int]


def write_events(place: Place, files: int, *, first: int = 0) -> Windows:
    """Files of ten seconds each; returns the count of every key in every window."""
    place.input.mkdir(parents=True, exist_ok=True)
    truth: Counter[tuple[int, str]] = Counter()
    for number in range(first, first + files):
        draw = np.random.default_rng(number)
        times = number * 10 + np.sort(draw.integers(0, 10, LINES))
        keys = draw.zipf(1.5, LINES) % 40
        lines = [f"{time} k{key}" for time, key in zip(times.tolist(), keys.tolist(), strict=True)]
        hidden = place.input / f".{number:03d}"
        hidden.write_text("\n".join(lines) + "\n")
        hidden.rename(place.input / f"{number:03d}.txt")
        truth.update((int(line.split()[0]) // LENGTH, line.split()[1]) for line in lines)
    return dict(truth)


def parse(lines: pa.RecordBatch) -> pa.RecordBatch:
    parts = pc.split_pattern(lines.column("value"), " ")
    return pa.record_batch({"time": pc.list_element(parts, 0).cast(pa.int64()), "key": pc.list_element(parts, 1)})


class Gate(af.Operator):
    """Lets everything pass; counts items and what was fed back."""

    alpha = 1.0

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"passed": af.Numeric(), "fed": af.Numeric()}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        states["passed"].add(items.num_rows)
        return items

    def on_feedback(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["fed"].add(items.num_rows)

    def results(self, shares: Any) -> pa.Table:
        return sums(shares, "passed", "fed")


class Count(af.Operator):
    """Counts by key; sends the counts of a window when it has ended."""

    key = ("key",)
    alpha = 1.0

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"counts": af.HashTable(key="string", value="int64", divergence="max")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("key"), 1)

    def rows(self, cells: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"key": cells.column("key").cast(pa.string()), "count": cells.column("value")})

    def on_punctuation(self, punctuation: af.Punctuation, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        if punctuation.last:
            return None
        return self.rows(states["counts"].export())


class Total(af.Operator):
    """Adds up what ended windows held; one worker for all. Not approximable: it must not forget an end."""

    approximable = "it counts ends of windows, which nobody sends twice"

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"total": af.Numeric(), "windows": af.Numeric(), "ended": af.Numeric()}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["total"].add(int(pc.sum(items.column("count")).as_py()))

    def on_punctuation(self, punctuation: af.Punctuation, states: Mapping[str, Any]) -> None:
        if punctuation.last:
            states["ended"].add(1)
            return
        states["windows"].add(1)
        self.context.outbox.feed_back(pa.record_batch({"window": [punctuation.window]}), to="gate")

    def results(self, shares: Any) -> pa.Table:
        return sums(shares, "total", "windows", "ended")


def sums(shares: Any, *names: str) -> pa.Table:
    """The sums of numbers over all workers."""
    cells = {name: [share.cells[name].column("value") for share in shares] for name in names}
    return pa.table({name: [sum(pc.sum(found).as_py() or 0 for found in cells[name])] for name in names})


@dataclass
class Run:
    """One query of the three operators, and what its sink has received."""

    place: Place
    tolerance: af.Tolerance
    windows: Windows = field(default_factory=dict)
    bounds: dict[int, float] = field(default_factory=dict)
    #: in which batch each window came out
    delivered: dict[int, set[int]] = field(default_factory=dict)

    def writer(self, spark: SparkSession, faults: FaultPlan | None = None) -> af.StreamWriter:
        gate = (
            af.read_stream(spark)
            .text(str(self.place.input))
            .map(parse)
            .apply(Gate(), name="gate", tolerance=self.tolerance)
        )
        count = gate.apply(Count(), name="count", tolerance=self.tolerance, window=af.Hopping(LENGTH, column="time"))
        total = count.apply(Total(), name="total", workers=1, tolerance=af.MiniBatch(), feeds_back=["gate"])
        first = count.writeStream.outputMode("append").foreachBatch(self._take).option("bounds", True)
        return at(first.also(total.writeStream), self.place, BATCH_BYTES).inject(faults or FaultPlan())

    def _take(self, frame: DataFrame, batch: int) -> None:
        for row in frame.collect():
            window = int(row["window_start"]) // LENGTH
            self.windows[window, row["key"]] = row["count"]
            self.bounds[window] = row["bound"]
            self.delivered.setdefault(window, set()).add(batch)


def numbers(query: af.Query, operator: str) -> dict[str, int]:
    (row,) = query.results(operator).collect()
    return row.asDict()
