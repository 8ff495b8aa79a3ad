"""Savepoints through the public interface: of a running query, of a stopped one, and what starts from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import afspark as af
from afspark.api.savepoints import savepoint_of
from afspark.cli.main import main
from afspark.errors import UsageError
from tests.spark.streams import Place, at, counts, words, write_text


def test_a_running_query_is_saved_and_two_go_on_from_there(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 8)
    first = words(spark, place, af.BarrierSnapshot(batches=2)).trigger(processingTime="0 seconds").start()
    try:
        # No batch has ended yet.
        assert first.savepoint(place.root / "early") == str(place.root / "early")
        first.processAllAvailable()
        saved = first.savepoint("before")
        assert saved == str(place.checkpoint / "savepoints" / "before")
        with pytest.raises(UsageError):
            first.savepoint("before")
        # As anybody could from another process: the driver at work is asked, and answers.
        asked, savepoint = savepoint_of(place.checkpoint, "asked")
        assert Path(asked).parent == Path(saved).parent and savepoint.query_id == first._engine.identity.query_id
        truth += write_text(place.input, 4, first=8)
        first.processAllAvailable()
        # Beside the first one, on the same hosts.
        other = Place(place.root / "other")
        other.root.mkdir()
        writer = words(spark, Place(place.root), af.BarrierSnapshot(batches=2)).option("savepoint", saved)
        second = writer.option("checkpointLocation", other.checkpoint).start()
        second.awaitTermination()
        assert first.isActive and second.id != first.id
        assert counts(first) == counts(second) == truth
        assert second.bounds() == {"counts": 0.0} and not any(entry["counted"] for entry in second.ledger())
        with pytest.raises(UsageError):
            writer.option("checkpointLocation", other.checkpoint).start()
        assert first.snapshots()[0]["stage"] == "complete"
        assert first.lastProgress is not None and first.lastProgress["durable"]["snapshot"]["barrier"] >= 0
    finally:
        first.stop()


def test_a_stopped_query_over_a_dataframe_is_saved_by_the_command(
    spark: SparkSession, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = write_text(place.input, 6)

    def started(checkpoint: Path, **options: object) -> af.Query:
        lines = spark.readStream.option("maxFilesPerTrigger", 3).text(str(place.input))
        stateful = af.read_stream(spark).frame(lines).apply(af.WordCount(), workers=2, tolerance=af.MiniBatch())
        writer = at(stateful.writeStream, place).option("checkpointLocation", checkpoint)
        for name, value in options.items():
            writer = writer.option(name, value)
        query = writer.start()
        query.awaitTermination()
        return query

    first = started(place.checkpoint)
    assert counts(first) == truth
    saved = tmp_path / "saved"
    assert main(["savepoint", str(place.checkpoint), str(saved)]) == 0
    assert str(saved) in capsys.readouterr().out
    truth += write_text(place.input, 3, first=6)
    second = started(tmp_path / "second", savepoint=saved)
    assert counts(second) == truth and second.bounds() == {"counts": 0.0}
    document = tmp_path / "found.json"
    assert main(["inspect", str(tmp_path / "second"), "--json", str(document)]) == 0
    assert json.loads(document.read_text())["started_from"] == str(saved)
