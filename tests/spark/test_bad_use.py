"""What cannot work is refused with the right class of error, before anything is started."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import afspark as af
from afspark.errors import CheckpointError, StoreNotWritable, UsageError
from afspark.store import open_store, seal, unseal
from tests.spark.streams import Place, at, counts, run, words, write_text


@pytest.fixture(scope="module")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place whose query has come to its end."""
    place = Place(tmp_path_factory.mktemp("finished"))
    write_text(place.input, 2)
    run(words(spark, place, af.MiniBatch()))
    return place


def test_speculation_is_refused(spark: SparkSession, place: Place) -> None:
    eager = spark.newSession()
    eager.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    eager.conf.set("spark.speculation", "true")
    with pytest.raises(UsageError):
        af.read_stream(eager)


def test_more_workers_than_slots_are_refused(spark: SparkSession, place: Place) -> None:
    write_text(place.input, 1)
    with pytest.raises(UsageError) as caught:
        words(spark, place, af.MiniBatch(), workers=3).start()
    assert (caught.value.workers, caught.value.slots) == (3, 2)
    assert not place.checkpoint.exists()


def test_a_checkpoint_of_another_pipeline_is_refused(spark: SparkSession, finished: Place) -> None:
    with pytest.raises(CheckpointError) as caught:
        words(spark, finished, af.MiniBatch(), operator=af.WordCount(lower=True)).start()
    assert caught.value.expected != caught.value.found


def test_a_checkpoint_of_another_format_is_refused(spark: SparkSession, finished: Place, place: Place) -> None:
    shutil.copytree(finished.root, place.root, dirs_exist_ok=True)
    store = open_store(str(place.checkpoint / "afspark"))
    identity = unseal(store.get("identity"), "identity").meta["identity"]
    store.put("identity", seal({"kind": "identity", "identity": identity | {"format_version": 99}}, {}))
    with pytest.raises(CheckpointError) as caught:
        words(spark, place, af.MiniBatch()).start()
    assert caught.value.found == 99


def test_a_damaged_identity_is_refused(spark: SparkSession, finished: Place, place: Place) -> None:
    shutil.copytree(finished.root, place.root, dirs_exist_ok=True)
    identity = place.checkpoint / "afspark" / "identity"
    identity.write_bytes(identity.read_bytes()[:-3])
    with pytest.raises(CheckpointError):
        words(spark, place, af.MiniBatch()).start()


def test_a_store_that_cannot_be_written_is_refused(spark: SparkSession, place: Place) -> None:
    write_text(place.input, 1)
    place.checkpoint.write_text("a file stands where the folder should be")
    with pytest.raises(StoreNotWritable) as caught:
        words(spark, place, af.MiniBatch()).start()
    assert str(place.checkpoint) in caught.value.path


def test_input_that_is_not_there_is_refused(spark: SparkSession, place: Place) -> None:
    with pytest.raises(UsageError) as caught:
        words(spark, place, af.MiniBatch()).start()
    assert caught.value.path == str(place.input)


def test_what_is_refused_leaves_no_temporary_checkpoint(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    writer = af.read_stream(spark).text(str(tmp_path / "nowhere"), blocks=True).apply(af.WordCount()).writeStream
    with pytest.raises(UsageError):
        writer.start()
    assert not list((tmp_path / "temporary").glob("afspark-checkpoint-*")) and not caplog.records


def test_columns_that_are_not_there_are_refused(spark: SparkSession) -> None:
    with pytest.raises(UsageError) as caught:
        af.read_stream(spark).words(100).apply(af.WordCount(column="text"))
    assert caught.value.column == "text"


def test_a_dataframe_that_does_not_stream_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UsageError):
        af.read_stream(spark).frame(spark.range(3))


def test_an_operator_without_a_key_cannot_be_keyed(spark: SparkSession, place: Place) -> None:
    operator = af.HeavyHitters(keys=("src",), weight="bytes", threshold=1)
    stream = af.read_stream(spark).packets(100).apply(operator, keyed=True)
    with pytest.raises(UsageError):
        at(stream.writeStream, place).start()


@pytest.mark.parametrize("option", ["batchBytes", "hostGraceSeconds"])
def test_options_that_are_no_numbers_are_refused(spark: SparkSession, place: Place, option: str) -> None:
    write_text(place.input, 1)
    with pytest.raises(UsageError):
        words(spark, place, af.MiniBatch()).option(option, "much").start()


def test_an_unknown_output_mode_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UsageError):
        af.read_stream(spark).words(100).apply(af.WordCount()).writeStream.outputMode("upsert")


def test_a_refused_start_leaves_the_checkpoint_usable(spark: SparkSession, finished: Place) -> None:
    with pytest.raises(CheckpointError):
        words(spark, finished, af.MiniBatch(), keyed=True).start()
    truth = write_text(finished.input, 2)
    assert counts(run(words(spark, finished, af.MiniBatch()))) == truth
