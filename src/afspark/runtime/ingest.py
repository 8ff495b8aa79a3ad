"""The fused front of a pipeline: read, transform and combine a share of a batch in one pass, as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from afspark.model.operator import Combiner, Transform
from afspark.model.windows import Window, split
from afspark.runtime.exchange import Packet
from afspark.runtime.sources import Chunk, Source


def read_chunks(source: Source, chunks: Sequence[Chunk]) -> Iterator[Packet]:
    """The Arrow batches of a share, in order."""
    for chunk in chunks:
        for batch in source.read(chunk):
            yield Packet(batch)


class Ingest:
    """Iterates over what reaches the operator; ``items`` counts what went in, before combining.

    Items of different steps are combined apart; so are those of different panes, because a combiner forgets the
    time of what it has combined. Count windows number items one by one, so that nothing can be combined for them.
    """

    def __init__(
        self,
        packets: Iterable[Packet],
        transforms: Sequence[Transform],
        combiner: Callable[[], Combiner | None] = lambda: None,
        window: Window | None = None,
        now: float = 0.0,
    ) -> None:
        self._packets = packets
        self._transforms = transforms
        self._window, self._now = window, now
        combines = window is None or window.by != "count"
        self._combiner = combiner if combines and combiner() is not None else None
        self.items = 0
        self.unplaced = 0
        self.latest: float | None = None

    def __iter__(self) -> Iterator[Packet]:
        if self._combiner is None:
            for packet in self._transformed():
                self.items += packet.items.num_rows
                yield packet
            return
        combiners: dict[tuple[int, int | None], Combiner] = {}
        for packet in self._transformed():
            for part in self._placed(packet):
                at = (part.step, part.pane)
                if at not in combiners:
                    made = self._combiner()
                    assert made is not None
                    combiners[at] = made
                combiners[at].add(part.items)
        for (step, pane), combiner in sorted(combiners.items(), key=lambda entry: (entry[0][0], entry[0][1] or 0)):
            combined = combiner.finish()
            self.items += combiner.items
            if combined is not None and combined.num_rows:
                yield Packet(combined, step, pane)

    def _placed(self, packet: Packet) -> Iterator[Packet]:
        if self._window is None:
            yield packet
            return
        found = split(self._window, packet.items, now=self._now, seen=0, workers=1)
        self.unplaced += found.unplaced
        if found.latest is not None:
            self.latest = found.latest if self.latest is None else max(self.latest, found.latest)
        for part in found.parts:
            yield Packet(part.items, packet.step, part.pane)

    def _transformed(self) -> Iterator[Packet]:
        for packet in self._packets:
            result: Any = packet.items
            for transform in self._transforms:
                result = transform(result)
                if result is None:
                    break
            if result is not None and result.num_rows:
                yield packet._replace(items=result)


def batches_as_packets(batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
    for batch in batches:
        yield Packet(batch)
