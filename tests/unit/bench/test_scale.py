"""What is made of the batches that were seen."""

from __future__ import annotations

from typing import Any

import pytest

from afspark.bench.scale import _Watch


class FakeSparkQuery:
    def __init__(self, first: int, last: int) -> None:
        self.recentProgress = [
            {"batchId": batch, "durationMs": {"triggerExecution": 1000 if batch > 1 else 9000, "addBatch": 1}}
            for batch in range(first, last)
        ]


class FakeQuery:
    """Batches of a second for a million items each; two workers of a quarter of a second."""

    def __init__(self, first: int, last: int) -> None:
        self.spark_query = FakeSparkQuery(first, last)
        self.recentProgress: list[dict[str, Any]] = [
            {
                "batch": batch,
                "items": 1_000_000,
                "state": {"bytes": 8 * batch},
                "workers": [{"seconds": {"process": 0.2, "backup": 0.05}}] * 2,
            }
            for batch in range(first, last)
        ]


def test_figures_leave_out_the_warm_up_and_count_every_batch_once() -> None:
    watch = _Watch()
    for first, last in ((0, 15), (10, 22)):
        watch.look(FakeQuery(first, last))  # type: ignore[arg-type]
    figures = watch.figures()
    assert figures["batches"] == 22
    assert figures["nanoseconds_per_item"] == pytest.approx(1000)
    assert figures["worker_nanoseconds_per_item"] == pytest.approx(500)
    assert figures["tenths"] == pytest.approx([1000] * 10)
    assert figures["state_bytes"] == [8 * batch for batch in range(3, 22, 2)]
    assert all(size > 0 for size in figures["resident_bytes"]["driver"])
