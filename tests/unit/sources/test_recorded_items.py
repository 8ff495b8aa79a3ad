"""Recorded items as a source."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa

from afspark.sources.recorded_items import RecordedItems, record


def test_a_planner_can_be_pickled_after_it_has_planned(tmp_path: Path) -> None:
    """Spark does so."""
    items = pa.table({"n": [1, 2, 3, 4, 5]})
    record(tmp_path / "items.arrow", items.schema, [items.slice(0, 3), items.slice(3)], 1)
    log: Any = None
    planner = RecordedItems(str(tmp_path / "items.arrow")).planner(log)
    end = planner.discover()
    planned = [chunk.units for chunk in planner.chunks({"chunks": 0}, end)]
    again = pickle.loads(pickle.dumps(planner))
    assert [chunk.units for chunk in again.chunks({"chunks": 0}, end)] == planned == [3, 2]
