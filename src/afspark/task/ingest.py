"""The fused front of a pipeline: read, transform and combine a share of a batch in one pass, as Arrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from afspark.model.operator import Combiner, Transform
from afspark.model.windows import Window, split
from afspark.numbers import PaneNumber
from afspark.protocol.parcels import Packet
from afspark.sources import Chunk, Source
from afspark.task.bad_item_search import RawItems
from afspark.task.isolation import Chooser
from afspark.task.returned import named, no_batch


class IncomingPackets(ABC):
    """What goes into an `Ingest`."""

    @abstractmethod
    def __iter__(self) -> Iterator[Packet]: ...

    @abstractmethod
    def raw(self, origin: str) -> Iterator[RawItems]:
        """All items, as they came."""

    def held(self, origin: str) -> tuple[list[RawItems], list[Packet]]:
        """All items and the packets that they are in, to be kept in memory."""
        raw = list(self.raw(origin))
        return raw, [Packet(one.items) for one in raw]


class GivenPackets(IncomingPackets):
    """Packets that are there, and come once."""

    def __init__(self, packets: Iterable[Packet]) -> None:
        self._packets = packets

    def __iter__(self) -> Iterator[Packet]:
        return iter(self._packets)

    def raw(self, origin: str) -> Iterator[RawItems]:
        yield from numbered(origin, self._packets)

    def held(self, origin: str) -> tuple[list[RawItems], list[Packet]]:
        packets = list(self._packets)
        return numbered(origin, packets), packets


class ChunkPackets(IncomingPackets):
    """The Arrow batches of a share, in order, read anew each time they are asked for."""

    def __init__(self, source: Source, chunks: Sequence[Chunk]) -> None:
        self._source, self._chunks = source, chunks

    def __iter__(self) -> Iterator[Packet]:
        for chunk in self._chunks:
            for batch in self._source.read(chunk):
                yield Packet(batch)

    def raw(self, origin: str) -> Iterator[RawItems]:
        for chunk in self._chunks:
            first = 0
            for batch in self._source.read(chunk):
                yield RawItems(origin, batch, first=first, place=chunk.place)
                first += batch.num_rows


class PassingPackets(IncomingPackets):
    """A stream of Arrow batches that comes once. All those that have passed are remembered, or the last one alone."""

    def __init__(self, batches: Iterable[pa.RecordBatch], *, whole: bool) -> None:
        self._batches, self._whole = iter(batches), whole
        self._seen: deque[RawItems] = deque(maxlen=None if whole else 1)

    def __iter__(self) -> Iterator[Packet]:
        first = 0
        for batch in self._batches:
            self._seen.append(RawItems("", batch, first=first))
            first += batch.num_rows
            yield Packet(batch)

    def raw(self, origin: str) -> Iterator[RawItems]:
        """What is remembered, and where that is all of it also what has not passed yet."""
        if self._whole:
            first = sum(raw.items.num_rows for raw in self._seen)
            self._seen.extend(numbered(origin, map(Packet, self._batches), first))
        yield from (replace(raw, origin=origin) for raw in self._seen)


class Ingest:
    """Iterates over what reaches the operator; ``items`` counts what went in, before combining.

    Items of different steps are combined apart; so are those of different panes, because a combiner forgets the
    time of what it has combined. Count windows number items one by one, so that nothing can be combined for them.
    """

    def __init__(
        self,
        packets: IncomingPackets,
        transforms: Sequence[Transform],
        combiner: Callable[[], Combiner | None] = lambda: None,
        window: Window | None = None,
        now: float = 0.0,
    ) -> None:
        self._incoming = packets
        self._packets: Iterable[Packet] = packets
        self._held: list[RawItems] | None = None
        self._transforms = transforms
        self._window, self._now = window, now
        combines = window is None or window.by != "count"
        self._combiner = combiner if combines and combiner() is not None else None
        self._chosen: list[Packet] | None = None
        self._clear()

    def _clear(self) -> None:
        self.items = 0
        self.unplaced = 0
        self.latest: float | None = None

    def hold(self, origin: str) -> list[RawItems]:
        """All that goes in, as it came; from now on in memory."""
        if self._held is None:
            self._held, self._packets = self._incoming.held(origin)
        return self._held

    def select(self, chosen: Chooser) -> None:
        """Starts anew, with a part of what `hold` gave."""
        self._chosen = [packet._replace(items=chosen.of(packet.items)) for packet in self._packets]
        self._clear()

    def __iter__(self) -> Iterator[Packet]:
        if self._combiner is None:
            for packet in self._transformed():
                self.items += packet.items.num_rows
                yield packet
            return
        combiners: dict[tuple[int, PaneNumber | None], Combiner] = {}
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
            if not isinstance(combined, pa.RecordBatch | None):
                raise no_batch(f"{type(combiner).__name__}.finish", combined)
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
        for packet in self._packets if self._chosen is None else self._chosen:
            if self._chosen is not None and not packet.items.num_rows:
                continue
            result: Any = packet.items
            for transform in self._transforms:
                result = transform(result)
                if result is None:
                    break
                if not isinstance(result, pa.RecordBatch):
                    raise no_batch(f"The transform {named(transform)}", result)
            if result is not None and result.num_rows:
                yield packet._replace(items=result)


def numbered(origin: str, packets: Iterable[Packet], first: int = 0) -> list[RawItems]:
    """The items of packets, with their rows counted."""
    held = []
    for packet in packets:
        held.append(RawItems(origin, packet.items, first=first))
        first += packet.items.num_rows
    return held
