"""Progress has the keys of Spark's, with numbers of ours."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pyarrow as pa

import afspark as af
from afspark import testing
from afspark.api.told_batch import ToldBatch
from afspark.coordinator.batch_progress import BatchProgress

#: of StreamingQueryProgress and StateOperatorProgress, Spark 4
SPARKS = {
    *("id", "runId", "name", "timestamp", "batchId", "batchDuration", "numInputRows", "inputRowsPerSecond"),
    *("processedRowsPerSecond", "durationMs", "eventTime", "stateOperators", "sources", "sink", "observedMetrics"),
}
SPARKS_OPERATORS = {
    *("operatorName", "numRowsTotal", "numRowsUpdated", "numRowsRemoved", "allUpdatesTimeMs", "allRemovalsTimeMs"),
    *("commitTimeMs", "memoryUsedBytes", "numRowsDroppedByWatermark", "numShufflePartitions"),
    *("numStateStoreInstances", "customMetrics"),
}


def progress_of(items: dict[str, Any]) -> BatchProgress:
    def pipeline(stream: Any) -> Any:
        return stream.apply(af.WordCount(), name="counts", workers=2)

    with testing.run(pipeline, pa.schema({"value": pa.large_string()})) as query:
        given = query.batch(items)
    return BatchProgress(**{one.name: given[one.name] for one in fields(BatchProgress)} | {"durable": None})


def test_progress_has_the_keys_of_spark() -> None:
    named = {"id": "1", "runId": "2", "name": None}
    told = ToldBatch(
        progress_of({"value": ["a b a", "c"]}), 100.0, 98.0, lambda: named, "text[in]", "console[]"
    ).to_json()
    assert told.keys() >= SPARKS
    assert (told["numInputRows"], told["batchId"], told["inputRowsPerSecond"]) == (told["items"], 0, told["items"] / 2)
    (operator,) = told["stateOperators"]
    assert operator.keys() == SPARKS_OPERATORS
    assert (operator["operatorName"], operator["numRowsTotal"], operator["numStateStoreInstances"]) == ("counts", 3, 2)
    assert operator["memoryUsedBytes"] == told["state"]["bytes"] > 0
    assert told["timestamp"].startswith("1970-01-01T00:01:3") and told["timestamp"].endswith("Z")
