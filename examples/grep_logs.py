"""Grep over a folder of logs: matching lines go to a sink with every batch; nothing has to be backed up.

Run it with: .venv/bin/python examples/grep_logs.py
"""

import tempfile
from pathlib import Path

import afspark as af


def write_logs(folder: Path) -> None:
    folder.mkdir()
    for number in range(6):
        lines = (f"12:00:{i % 60:02d} {'ERROR' if i % 97 == 0 else 'INFO'} request {i}" for i in range(50_000))
        (folder / f"{number}.log").write_text("\n".join(lines) + "\n")


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    write_logs(folder / "logs")

    spark = af.session("local[2]")
    query = (
        af.read_stream(spark)
        .text(str(folder / "logs"), blocks=True)
        .apply(af.Grep(r"ERROR request \d*7$", regex=True), workers=2)
        .writeStream.outputMode("append")
        .format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "errors"))
    )
    query.awaitTermination()

    errors = spark.read.parquet(str(folder / "errors"))
    errors.show(5, truncate=False)
    print("lines found:", errors.count(), "backed up:", query.totals.backups)
    query.release()


if __name__ == "__main__":
    main()
