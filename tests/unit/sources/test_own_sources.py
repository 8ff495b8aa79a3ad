"""A kind of source that a user has written, where Spark plans its batches in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from afspark.cluster.spark.offset_source import PlanReader
from afspark.errors import UsageError

MODULE = """
from dataclasses import dataclass

import pyarrow as pa

from afspark.sources import Source
from afspark.sources.source import EvenPlanner


@dataclass(frozen=True)
class OwnRows(Source, kind="own-rows"):
    rows: int

    def schema(self):
        return pa.schema([("number", pa.int64())])

    def planner(self, log):
        return EvenPlanner(self.rows, 10, 8)

    def read(self, chunk):
        yield pa.record_batch({"number": list(range(chunk.units))})
"""


def options(folder: Path, module: str) -> dict[str, str]:
    return {
        "source": json.dumps({"kind": "own-rows", "rows": 25}),
        "module": module,
        "folder": "rows",
        "checkpoint": str(folder),
        "batch_bytes": "80",
        "wait_seconds": "1",
    }


def test_its_module_makes_it_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_rows.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match="own-rows"):
        PlanReader(options(tmp_path, "not_there"))
    reader = PlanReader(options(tmp_path, "own_rows"))
    assert reader.planner.discover() == {"chunks": 3}
    assert reader.planner.latest({"chunks": 0}, None, 80) == {"chunks": 1}
