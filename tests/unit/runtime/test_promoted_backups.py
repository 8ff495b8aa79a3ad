"""The first backup of a secondary that was promoted: its primary's backups are none that it can build on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.coordinator.worker_state import WorkerState

SCHEMA = pa.schema({"name": pa.string(), "change": pa.int64()})


class Levels(af.Operator):
    """Numbers by name."""

    key = ("name",)

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"levels": af.HashTable(key="string", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["levels"].add(items.column("name"), items.column("change"))


def levels(items: af.Stream) -> af.StatefulStream:
    return items.apply(Levels(), name="levels", workers=1, tolerance=af.HotStandby(batches=1))


def after_losses() -> dict[str, int]:
    """What is there after both copies of a worker are lost that was a secondary, which had been built from backups."""
    with testing.run(levels, SCHEMA, hosts=3) as query:
        query.batch({"name": ["still"], "change": [7]})
        for _ in range(2):
            for _ in range(4):
                query.batch({"name": ["other"], "change": [1]})
            query.lose_host()
        for _ in range(3):
            query.batch({"name": ["other"], "change": [1]})
        for host in query.hosts:
            query.lose_host(host)
        query.batch({"name": ["other"], "change": [1]})
        assert [entry["restored_cells"] > 0 for entry in query.ledger()] == [False, False, True]
        return {bytes(row["key"]).decode(): row["value"] for row in query.results("levels").to_pylist()}


def test_it_has_what_did_not_change_since_the_secondary_was_built() -> None:
    assert after_losses() == {"still": 7, "other": 12}


def test_it_would_be_noticed_if_it_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake, which random schedules notice too rarely: what it writes builds on backups of its primary."""
    real = WorkerState.promoted

    def promoted(self: WorkerState, *given: Any) -> WorkerState:
        return replace(real(self, *given), restart_chain=self.restart_chain)

    monkeypatch.setattr(WorkerState, "promoted", promoted)
    assert after_losses() == {"other": 12}
