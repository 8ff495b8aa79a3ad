"""A source and an operator's kernel without Spark: in as many processes at once as a stream has workers.

The *kernel* of an operator is what a worker's task calls for the items of a batch: ``begin``, its combiner where it
has one, ``process``, ``finish``, with states in ordinary memory. Nothing is journalled, measured or backed up for it.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from threading import Barrier
from typing import Any

import pyarrow as pa

from afspark.model.kernels.lines import count_lines
from afspark.model.operator import Operator, WorkerContext
from afspark.model.states import HeapColumns
from afspark.protocol.parcels import Packet
from afspark.sources import Chunk, Source
from afspark.store import open_store
from afspark.task.ingest import GivenPackets, Ingest

WORKERS = 2
#: How long a measurement lasts at least, after a pass that warms up.
SECONDS = 1.0


class BarePart(StrEnum):
    """What is run."""

    INPUT = "input"
    KERNEL = "kernel"
    BOTH = "input and kernel"


def shares_of(source: Source, workers: int = WORKERS) -> list[list[Chunk]]:
    """All chunks of a source, as workers would get them."""
    with tempfile.TemporaryDirectory() as folder:
        planner = source.planner(open_store(folder))
        return planner.shares(planner.chunks(planner.initial(), planner.discover()), workers)


def run_alone(part: BarePart, source: Source, operator: Operator) -> dict[str, float]:
    """``mb_per_second`` and ``items_per_second`` of all processes together; one process a worker, all at once.

    ``mb_per_cpu_second`` is what one process does in a second of its own: the figure that others on the machine touch
    least.
    """
    shares = shares_of(source)
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(len(shares)), context.SimpleQueue()
    processes = [
        context.Process(target=_measure, args=(part, source, operator, chunks, barrier, results)) for chunks in shares
    ]
    for process in processes:
        process.start()
    figures = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return {name: sum(one[name] for one in figures) for name in figures[0]}


def _measure(
    part: BarePart, source: Source, operator: Operator, chunks: Sequence[Chunk], barrier: Barrier, results: Any
) -> None:
    kept = [batch for chunk in chunks for batch in source.read(chunk)] if part is BarePart.KERNEL else None
    kernel = Kernel(operator) if part is not BarePart.INPUT else None

    def once() -> None:
        batches = _read(source, chunks) if kept is None else iter(kept)
        if kernel is None:
            for _ in batches:
                pass
        else:
            kernel.run(batches)

    once()
    barrier.wait()
    passes, started, worked = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - started < SECONDS:
        once()
        passes += 1
    rate = passes / (time.perf_counter() - started)
    cpu_rate = passes / (time.process_time() - worked)
    # Nobody's measurement ends in a machine that the others have left already.
    barrier.wait()
    items = sum(items_in(batch) for batch in _read(source, chunks))
    megabytes = sum(chunk.bytes for chunk in chunks) / 1e6
    results.put(
        {
            "mb_per_second": megabytes * rate,
            "items_per_second": items * rate,
            "mb_per_cpu_second": megabytes * cpu_rate / WORKERS,
        }
    )


class Kernel:
    """An operator with its states in ordinary memory."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.states = {name: spec.open(HeapColumns(), name) for name, spec in operator.states().items()}

    def run(self, batches: Iterable[pa.RecordBatch]) -> None:
        """One batch of a stream."""
        for state in self.states.values():
            state.begin()
        self.operator.context = WorkerContext(worker=0, workers=WORKERS, batch=0)
        self.operator.begin(self.states, self.operator.context)
        for packet in Ingest(GivenPackets(map(Packet, batches)), (), self.operator.combiner):
            self.operator.process(packet.items, self.states)
        self.operator.finish(self.states)


def items_in(batch: pa.RecordBatch) -> int:
    """Rows, or lines where a row is a block of them."""
    blocks = batch.num_columns == 1 and pa.types.is_large_binary(batch.schema.field(0).type)
    return count_lines(batch.column(0)) if blocks else batch.num_rows


def _read(source: Source, chunks: Sequence[Chunk]) -> Iterator[pa.RecordBatch]:
    for chunk in chunks:
        yield from source.read(chunk)
