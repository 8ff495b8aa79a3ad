"""The progress of a batch as users read it: the keys of Spark's progress, and ours beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from afspark.coordinator.batch_progress import BatchProgress


@dataclass(frozen=True)
class ToldBatch:
    """A batch that has ended at ``ended``, in seconds since 1970; ``before``: when the one before had, if any.

    ``query`` gives ``id``, ``runId`` and ``name``; ``sources`` and ``sinks`` are what the query reads and writes.
    """

    progress: BatchProgress
    ended: float
    before: float | None
    query: Callable[[], Mapping[str, Any]]
    sources: str
    sinks: str

    def to_json(self) -> dict[str, Any]:
        return {**self.query(), **self._as_spark(), **self.progress.to_json()}

    def _as_spark(self) -> dict[str, Any]:
        """The keys of Spark's ``StreamingQueryProgress``. -1 stands, as there, for what is not counted."""
        one = self.progress
        began = self.ended - one.seconds
        since = self.ended - (began if self.before is None else self.before)
        rates = {"inputRowsPerSecond": _rate(one.items, since), "processedRowsPerSecond": _rate(one.items, one.seconds)}
        return {
            "timestamp": datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "batchId": one.batch,
            "batchDuration": _milliseconds(one.seconds),
            "numInputRows": one.items,
            **rates,
            "durationMs": {
                **{name: _milliseconds(seconds) for name, seconds in one.parts.items()},
                "triggerExecution": _milliseconds(one.seconds),
            },
            "eventTime": {},
            "stateOperators": [_state_operator(entry, one) for entry in one.operators],
            "sources": [{"description": self.sources, "numInputRows": one.items, **rates}],
            "sink": {"description": self.sinks, "numOutputRows": one.emitted if self.sinks else -1},
            "observedMetrics": {},
        }


def _state_operator(entry: Mapping[str, Any], progress: BatchProgress) -> dict[str, Any]:
    return {
        "operatorName": entry["operator"],
        "numRowsTotal": entry["cells"],
        "numRowsUpdated": entry["emitted"] if entry["emits"] else -1,
        "numRowsRemoved": -1,
        "allUpdatesTimeMs": _milliseconds(entry["seconds"]),
        "allRemovalsTimeMs": -1,
        "commitTimeMs": _milliseconds(progress.parts.get("record", 0.0)),
        "memoryUsedBytes": entry["bytes"],
        "numRowsDroppedByWatermark": entry["late"],
        "numShufflePartitions": entry["workers"],
        "numStateStoreInstances": entry["workers"],
        "customMetrics": {"backupBytes": entry["backup_bytes"], "backupCells": entry["backup_cells"]},
    }


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _rate(rows: int, seconds: float) -> float:
    return rows / seconds if seconds > 0 else 0.0
