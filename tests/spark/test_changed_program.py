"""A program that has changed, started again on its checkpoint: what ``afspark plan`` says of it, and what it does."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import afspark as af
from afspark.cli.main import main
from afspark.errors import CheckpointError
from tests.spark.streams import Place, at, counts, run, words, write_text

PROGRAM = """
import afspark as af


class Tallies(af.WordCount):
    pass


if __name__ == "__main__":
    lines = af.read_stream(af.session()).text({input!r}, blocks=True)
    tallies = lines.apply(Tallies(), id="wordcount", tolerance=af.Approximate(theta={theta}))
    tallies.writeStream.option("checkpointLocation", {checkpoint!r}).start()
"""


class Tallies(af.WordCount):
    """The same operator under another name."""


def test_a_renamed_class_goes_on_with_its_state(
    spark: SparkSession, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = write_text(place.input, 8)
    assert counts(run(words(spark, place, af.Approximate(theta=50)))) == truth
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(input=str(place.input), checkpoint=str(place.checkpoint), theta=5))
    capsys.readouterr()
    assert main(["plan", str(place.checkpoint), str(program)]) == 0
    told = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert told[1:] == [
        "kept: 'tallies' keeps its state.",
        "changed: The operator 'wordcount' is called 'tallies' now, and was called 'wordcount'.",
        "changed: 'tallies' is of class Tallies now, not WordCount.",
        "changed: 'tallies' has theta 5 from the next batch on, instead of 50.",
        "The pipeline would start on it.",
    ]
    assert not spark.streams.active, "nothing was started"
    place.lose_segments()
    truth += write_text(place.input, 4, first=8)
    lines = af.read_stream(spark).text(str(place.input), blocks=True)
    renamed = lines.apply(Tallies(), id="wordcount", tolerance=af.Approximate(theta=5))
    query = run(at(renamed.writeStream, place))
    assert counts(query) == truth and query.bounds("tallies") == {"counts": 0.0}
    assert {one["operator"] for one in query.lastProgress["workers"]} == {"tallies"}  # type: ignore[index]

    writer = at(lines.apply(af.WordCount(lower=True), workers=2).writeStream, place)
    with pytest.raises(CheckpointError) as refused:
        writer.start()
    assert "discardState" in refused.value.remedy and "another pipeline" in refused.value.message
    later = write_text(place.input, 4, first=12)
    assert counts(run(writer.option("discardState", "wordcount"))) == later
