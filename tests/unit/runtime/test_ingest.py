"""The fused front of a pipeline."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from afspark.model.operator import Combiner
from afspark.runtime.ingest import Ingest, read_chunks
from afspark.runtime.sources import ZipfWords


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int64())})


def evens(items: pa.RecordBatch) -> pa.RecordBatch:
    return items.filter(pc.equal(pc.bit_wise_and(items.column("n"), 1), 0))


def large_only(items: pa.RecordBatch) -> pa.RecordBatch | None:
    return items if max(items.column("n").to_pylist()) > 2 else None


class Sum(Combiner):
    def __init__(self) -> None:
        self.total = 0

    def add(self, items: pa.RecordBatch) -> None:
        self.total += pc.sum(items.column("n")).as_py()
        self.items += items.num_rows

    def finish(self) -> pa.RecordBatch | None:
        return batch(self.total) if self.items else None


def rows(ingest: Ingest) -> list[list[int]]:
    return [items.column("n").to_pylist() for items in ingest]


def test_batches_pass_and_are_counted() -> None:
    ingest = Ingest([batch(1, 2), batch(), batch(3)], (), None)
    assert rows(ingest) == [[1, 2], [3]] and ingest.items == 3


def test_transforms_run_in_order_and_may_leave_nothing() -> None:
    ingest = Ingest([batch(1, 2), batch(3), batch(4, 6)], (evens, large_only), None)
    # The second batch is empty after the first transform; none may be asked for its largest.
    ingest._transforms = (large_only, evens)
    assert rows(ingest) == [[4, 6]] and ingest.items == 2


def test_a_combiner_gives_one_batch_and_counts_what_went_in() -> None:
    ingest = Ingest([batch(1, 2), batch(3)], (), Sum())
    assert rows(ingest) == [[6]] and ingest.items == 3
    empty = Ingest([], (), Sum())
    assert rows(empty) == [] and empty.items == 0


def test_chunks_are_read_in_order() -> None:
    source = ZipfWords(600_000, seed=1)
    planner = source.planner(None)  # type: ignore[arg-type]
    chunks = planner.chunks(planner.initial(), planner.discover())
    assert len(chunks) > 1
    one_by_one = [items for chunk in chunks for items in source.read(chunk)]
    assert list(read_chunks(source, chunks)) == one_by_one
