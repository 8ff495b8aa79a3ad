"""A custom operator: how many errors each service has logged, with a bounded error after failures.

Run it with: .venv/bin/python examples/errors_per_service.py
"""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import afspark as af


class ErrorsPerService(af.Operator):
    """Counts log lines like ``2026-01-01T12:00:00 ERROR billing …`` by service."""

    key = ("service",)  # which worker owns an item when rows are emitted with every batch

    def states(self):
        return {"errors": af.HashTable(key="string", value="int64", divergence="max", operator_key=True)}

    def process(self, items, states):
        states["errors"].add(items.column("service"), 1)

    def rows(self, cells):
        return pa.record_batch({"service": cells.column("key").cast(pa.string()), "errors": cells.column("value")})


def parse(lines: pa.RecordBatch) -> pa.RecordBatch:
    """A stateless step, fused into the read: raw lines in, services of error lines out."""
    found = pc.extract_regex(lines.column("value"), r"^\S+ ERROR (?P<service>\S+)")
    return pa.record_batch({"service": pc.struct_field(found, "service").drop_null()})


def write_logs(folder: Path) -> None:
    services = ["billing", "search", "login", "mail"]
    for number in range(6):
        lines = (
            f"2026-01-01T12:00:00 {'ERROR' if i % 3 else 'INFO'} {services[i % 7 % 4]} request {i}"
            for i in range(50_000)
        )
        (folder / f"{number}.log").write_text("\n".join(lines) + "\n")


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    (folder / "logs").mkdir()
    write_logs(folder / "logs")

    spark = af.session("local[2]")
    query = (
        af.read_stream(spark)
        .text(str(folder / "logs"))
        .map(parse)
        .apply(ErrorsPerService(), workers=2, tolerance=af.Approximate(theta=1_000))
        .writeStream.outputMode("update")
        .foreachBatch(lambda rows, batch: print(f"batch {batch}: {rows.count()} services changed"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("batchBytes", 4_000_000)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    query.results().orderBy("errors", ascending=False).show()
    print("backed up:", query.totals.backups, "error so far at most:", query.bounds())
    query.release()


if __name__ == "__main__":
    main()
