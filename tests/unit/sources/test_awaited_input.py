"""An empty landing folder is a stream that has not begun; a place that is not there is a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import afspark as af
from afspark.api.stream import Inflow, Stream
from afspark.api.writer import _validate
from afspark.errors import UsageError
from afspark.sources import CsvFiles, JsonFiles, LibsvmFiles, ParquetFiles, TextFiles
from afspark.sources.file_source import InputAwaited, require_files


@pytest.mark.parametrize(
    "made",
    [
        TextFiles,
        ParquetFiles,
        LibsvmFiles,
        lambda path: CsvFiles(path, label=None, numeric=("a",)),
        lambda path: JsonFiles(path, numeric=("a",)),
    ],
)
def test_an_empty_folder_is_waited_for(tmp_path: Path, made: Any) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    _validate(made(str(landing)))
    with pytest.raises(UsageError) as caught:
        _validate(made(str(tmp_path / "elsewhere")))
    assert not isinstance(caught.value, InputAwaited) and caught.value.path.endswith("elsewhere")


def test_a_pipeline_can_be_built_before_its_input_is_there(tmp_path: Path) -> None:
    stream = Stream(None, (Inflow(ParquetFiles(str(tmp_path))),))
    stream.apply(af.HeavyHitters(keys=("src",), weight="bytes", threshold=1)).writeStream.check()


def test_a_glob_waits_where_its_folder_is(tmp_path: Path) -> None:
    with pytest.raises(InputAwaited):
        require_files(str(tmp_path / "*.csv"))
    with pytest.raises(UsageError) as caught:
        require_files(str(tmp_path / "none" / "*.csv"))
    assert not isinstance(caught.value, InputAwaited)
