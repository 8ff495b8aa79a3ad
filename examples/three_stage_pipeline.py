"""Three operators, windows, feedback, two sinks and a failure: which slow requests a site should look at.

    access log -> gate -> counts per path and window -> top list
                   ^                                       |
                   +------------- feedback ----------------+

The gate lets slow requests pass. The top list raises the level of "slow" while windows hold more requests than
it wants to look at. The pipeline runs twice over the same log: exact and undisturbed, then approximate while
every worker of every operator is destroyed twice.

Run it with: .venv/bin/python examples/three_stage_pipeline.py
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import afspark as af
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure

WANTED = 400  # slow requests in a window that somebody can look at


def parse(lines: pa.RecordBatch) -> pa.RecordBatch:
    """Stateless, fused into the read: ``<second> <path> <milliseconds>``."""
    words = pc.split_pattern(lines.column("value"), " ")
    return pa.record_batch(
        {
            "time": pc.list_element(words, 0).cast(pa.int64()),
            "path": pc.list_element(words, 1),
            "millis": pc.list_element(words, 2).cast(pa.int64()),
        }
    )


class Gate(af.Operator):
    """Drops requests that are faster than a level, which it learns from feedback."""

    alpha = 1.0

    def states(self):
        # The level decides about every later item, so it must survive failures as it is. A count may be off a bit.
        return {"level": af.Numeric(value="int64", exact=True), "dropped": af.Numeric(value="int64")}

    def process(self, items, states):
        slow = items.filter(pc.greater_equal(items.column("millis"), states["level"].value))
        states["dropped"].add(items.num_rows - slow.num_rows)
        return slow

    def on_feedback(self, items, states):
        states["level"].put(items.column("level")[-1].as_py())

    def results(self, shares):
        levels = [pc.max(share.cells["level"].column("value")).as_py() or 0 for share in shares]
        dropped = [pc.sum(share.cells["dropped"].column("value")).as_py() or 0 for share in shares]
        return pa.table({"level": [max(levels)], "dropped": [sum(dropped)]})


class Counts(af.Operator):
    """Counts requests per path; the window is the pipeline's business."""

    key = ("path",)
    alpha = 1.0

    def states(self):
        return {"counts": af.HashTable(key="string", value="int64", divergence="max", operator_key=True)}

    def process(self, items, states):
        states["counts"].add(items.column("path"), 1)

    def rows(self, cells):
        return pa.record_batch({"path": cells.column("key").cast(pa.string()), "count": cells.column("value")})

    def on_punctuation(self, punctuation, states):
        return None if punctuation.last else self.rows(states["counts"].export())


class TopList(af.Operator):
    """The paths with most slow requests so far, after every window."""

    seen = 0  # requests of the window under way; its counts and its punctuation come in the same batch

    def states(self):
        return {
            "totals": af.HashTable(key="string", value="int64", divergence="max"),
            "level": af.Numeric(value="int64", exact=True),
        }

    def process(self, items, states):
        states["totals"].add(items.column("path"), items.column("count"))
        self.seen += pc.sum(items.column("count")).as_py()

    def on_punctuation(self, punctuation, states):
        if self.seen > WANTED:
            states["level"].add(100)
            self.context.outbox.feed_back(pa.record_batch({"level": [states["level"].value]}), to="gate")
        self.seen = 0
        best = states["totals"].export().sort_by([("value", "descending")]).slice(0, 3)
        return pa.record_batch(
            {
                "until": pa.repeat("the end" if punctuation.last else f"{punctuation.end:.0f} s", best.num_rows),
                "path": best.column("key").cast(pa.string()),
                "total": best.column("value"),
            }
        )

    def results(self, shares):
        cells = pa.Table.from_batches([share.cells["totals"] for share in shares])
        return cells.rename_columns(["path", "total"])


def write_log(folder: Path) -> None:
    """200 seconds, 20 files, skewed paths; a few requests are logged a minute late."""
    draw = np.random.default_rng(7)
    folder.mkdir()
    for number in range(20):
        times = number * 10 + np.sort(draw.integers(0, 10, 1_000))
        if number % 5 == 4:
            times[-3:] -= 60
        paths, millis = draw.zipf(1.5, 1_000) % 30, draw.exponential(200, 1_000).astype(int)
        lines = (f"{t} /page/{p} {m}\n" for t, p, m in zip(times, paths, millis, strict=True))
        (folder / f"{number:02d}.log").write_text("".join(lines))


def run(spark, log: Path, tolerance: af.Tolerance, faults: FaultPlan):
    """One run over the whole log: the query, every window's counts with their bounds, and the last top list."""
    windows: dict[tuple[float, str], tuple[int, float]] = {}
    top: dict[str, list[tuple[str, int]]] = {}

    def take_windows(rows, batch):
        for row in rows.collect():
            windows[row.window_start, row.path] = row["count"], row.bound

    def take_top(rows, batch):
        for row in rows.collect():
            top.setdefault(row.until, []).append((row.path, row.total))

    gate = af.read_stream(spark).text(str(log)).map(parse).apply(Gate(), name="gate", tolerance=tolerance)
    counts = gate.apply(
        Counts(), name="counts", tolerance=tolerance, window=af.Hopping(20, column="time", delay=5), weight=0.5
    )
    toplist = counts.apply(TopList(), name="top", workers=1, tolerance=tolerance, feeds_back=["gate"])

    query = (
        counts.writeStream.outputMode("append")
        .foreachBatch(take_windows)
        .option("bounds", True)
        .option("checkpointLocation", tempfile.mkdtemp())
        .option("batchBytes", 80_000)
        .trigger(availableNow=True)
        .also(toplist.writeStream.outputMode("append").foreachBatch(take_top))
        .inject(faults)
        .start()
    )
    query.awaitTermination()
    query.end()  # no items will follow: the windows still open close, and every operator is told
    return query, windows, top["the end"]


def largest(windows) -> Iterator[str]:
    """The path with most slow requests of each window, with the bound of its count."""
    for start in sorted({start for start, _ in windows}):
        count, path, bound = max((windows[key][0], key[1], windows[key][1]) for key in windows if key[0] == start)
        yield f"{start:5.0f} s  {path:8} {count:4} ± {bound:g}"


def main() -> None:
    log = Path(tempfile.mkdtemp()) / "log"
    write_log(log)
    spark = af.session("local[2]", config={"spark.ui.enabled": "false"})

    exact, truth, _ = run(spark, log, af.MiniBatch(), FaultPlan())
    exact.release()

    failures = FaultPlan(frozenset({InjectedFailure(2, FaultPhase.BETWEEN), InjectedFailure(3, FaultPhase.APPLYING)}))
    query, windows, top = run(spark, log, af.Approximate(theta=200), failures)

    print("\n".join(largest(windows)))
    print("top list:", top)
    print("gate:", query.results("gate").collect()[0].asDict(), "late items:", query.totals.late)

    wrong = {key: abs(truth.get(key, (0,))[0] - windows.get(key, (0,))[0]) for key in truth | windows}
    print(f"losses: {len(query.ledger())}; largest error of {len(wrong)} counts: {max(wrong.values())}, promised: 200")
    print(f"backups: {query.totals.backups['bytes']} bytes, exact: {exact.totals.backups['bytes']} bytes")
    for entry in query.tolerance():
        if entry["worker"] == 0:
            print({name: entry[name] for name in ("operator", "failures", "theta", "items", "why")})
    query.release()


if __name__ == "__main__":
    main()
