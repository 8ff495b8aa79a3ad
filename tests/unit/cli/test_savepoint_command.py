"""``afspark savepoint`` and ``afspark run --savepoint``: what they are asked, and refuse before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.api.savepoints import held_record, save
from afspark.cli.main import main
from afspark.cli.options import SavepointOptions, parse


def test_what_is_asked() -> None:
    assert parse(["savepoint", "a", "b"]) == SavepointOptions(checkpoint="a", destination="b")
    options = parse(["run", "wordcount", "--generate", "1MB", "--savepoint", "s", "--checkpoint", "c"])
    assert (options.savepoint, options.checkpoint) == ("s", "c")  # type: ignore[union-attr]


def refused(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    """What the command says, in one line."""
    assert main(list(line)) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("afspark: error: ") and "\n" not in told
    return told


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, new, unknown = tmp_path / "saved", tmp_path / "new", tmp_path / "unknown"
    with testing.run(_counted, pa.schema([("value", pa.string())])) as query:
        query.batch({"value": ["to be"]})
        with held_record(query._engine) as record:
            assert record is not None
            save(query._engine, record, str(place))
    run = ("run", "wordcount", "--generate", "1MB", "--savepoint")
    assert str(unknown) in refused(capsys, "savepoint", str(unknown), "x")
    assert "--checkpoint" in refused(capsys, *run, str(place))
    assert str(unknown) in refused(capsys, *run, str(unknown), "--checkpoint", str(new))
    assert not [path for path in new.rglob("*") if path.is_file()]
    new.mkdir(exist_ok=True)
    (new / "something").write_text("of mine")
    assert "not empty" in refused(capsys, *run, str(place), "--checkpoint", str(new))
    (place / "afspark" / "savepoint").write_bytes(b"torn")
    assert "cannot be used" in refused(capsys, *run, str(place), "--checkpoint", str(tmp_path / "other"))


def _counted(stream: af.Stream) -> af.StatefulStream:
    return stream.apply(af.WordCount(), workers=2, tolerance=af.MiniBatch())
