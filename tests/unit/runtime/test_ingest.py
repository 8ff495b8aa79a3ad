"""The fused front of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from afspark.model.operator import Combiner, Transform
from afspark.model.windows import Hopping, Window
from afspark.protocol.parcels import Packet
from afspark.sources import ZipfWords
from afspark.task.ingest import ChunkPackets, GivenPackets, Ingest


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


def ingest(
    batches: Iterable[pa.RecordBatch],
    transforms: Sequence[Transform] = (),
    combiner: Callable[[], Combiner | None] = lambda: None,
    window: Window | None = None,
) -> Ingest:
    return Ingest(GivenPackets(map(Packet, batches)), transforms, combiner, window)


def rows(ingest: Ingest) -> list[list[int]]:
    return [packet.items.column("n").to_pylist() for packet in ingest]


def test_batches_pass_and_are_counted() -> None:
    plain = ingest([batch(1, 2), batch(), batch(3)])
    assert rows(plain) == [[1, 2], [3]] and plain.items == 3


def test_transforms_run_in_order_and_may_leave_nothing() -> None:
    """The first batch ends at the first transform, the second one is empty after the second."""
    changed = ingest([batch(1, 2), batch(3), batch(4, 6)], (large_only, evens))
    assert rows(changed) == [[4, 6]] and changed.items == 2


def test_a_combiner_gives_one_batch_and_counts_what_went_in() -> None:
    combined = ingest([batch(1, 2), batch(3)], combiner=Sum)
    assert rows(combined) == [[6]] and combined.items == 3
    empty = ingest([], combiner=Sum)
    assert rows(empty) == [] and empty.items == 0


def test_steps_and_panes_pass_transforms() -> None:
    packets = [Packet(batch(1, 2), 1), Packet(batch(3), 2), Packet(batch(4), 3, 7)]
    passed = list(Ingest(GivenPackets(packets), (evens,)))
    assert [(packet.items.column("n").to_pylist(), packet.step, packet.pane) for packet in passed] == [
        ([2], 1, None),
        ([4], 3, 7),
    ]


def test_items_of_different_steps_are_combined_apart() -> None:
    """A punctuation stands between them: what is sent before it must be seen before it."""
    packets = [Packet(batch(1, 2), 1), Packet(batch(3), 0), Packet(batch(4), 1)]
    combined = Ingest(GivenPackets(packets), (), Sum)
    assert [(packet.items.column("n").to_pylist(), packet.step) for packet in combined] == [([3], 0), ([7], 1)]
    assert combined.items == 4


def timed(*pairs: tuple[float | None, int]) -> pa.RecordBatch:
    return pa.record_batch({"at": pa.array([at for at, _ in pairs], pa.float64()), "n": [n for _, n in pairs]})


HOPPING = Hopping(10, column="at")


def test_items_of_different_panes_are_combined_apart_and_their_times_are_told() -> None:
    combined = ingest([timed((1, 1), (12, 2)), timed((15, 4), (None, 8), (3, 16))], combiner=Sum, window=HOPPING)
    assert [(packet.items.column("n").to_pylist(), packet.pane) for packet in combined] == [([17], 0), ([6], 1)]
    assert (combined.items, combined.latest, combined.unplaced) == (4, 15, 1)


def test_times_are_left_to_the_operator_where_nothing_is_combined() -> None:
    plain = ingest([timed((1, 1), (12, 2), (None, 8))], window=HOPPING)
    assert [packet.pane for packet in plain] == [None]
    assert (plain.items, plain.latest, plain.unplaced) == (3, None, 0)


def test_nothing_is_combined_for_windows_that_count_items() -> None:
    counted = ingest([batch(1, 2), batch(3)], combiner=Sum, window=Hopping(4, by="count"))
    assert rows(counted) == [[1, 2], [3]] and counted.items == 3


def test_chunks_are_read_in_order() -> None:
    source = ZipfWords(600_000, seed=1)
    planner = source.planner(None)  # type: ignore[arg-type]
    chunks = planner.chunks(planner.initial(), planner.discover())
    assert len(chunks) > 1
    one_by_one = [items for chunk in chunks for items in source.read(chunk)]
    assert [packet.items for packet in ChunkPackets(source, chunks)] == one_by_one
