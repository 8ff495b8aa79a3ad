"""What lies in a lane: records, and how far each has come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from afspark.push.wire.messages import PunctuationMark

#: what an entry takes in memory besides its buffers, so that a flood of tiny ones is bounded too
ENTRY_BYTES = 2048


@dataclass(frozen=True, slots=True)
class LaneItems:
    """What an entry says, apart from what becomes of it: the numbers [start, start + span) of a producer."""

    producer: str
    start: int
    span: int
    batch: pa.RecordBatch | None = None
    punctuation: PunctuationMark | None = None
    mark: bool = False

    @property
    def end(self) -> int:
        return self.start + self.span

    def above(self, position: int) -> LaneItems:
        """The part that a reader at ``position`` still needs."""
        if self.batch is None or not self.start < position < self.end:
            return self
        return LaneItems(self.producer, position, self.end - position, self.batch.slice(position - self.start))


@dataclass(eq=False, slots=True)
class LaneEntry:
    """A record in the lane and how far it has come."""

    record: LaneItems | None
    producer: str
    end: int
    span: int
    nbytes: int
    arrived: float
    order: int
    durable: bool = False  # may only be acknowledged out of the log
    acked: bool = False
    writing: bool = False
    logged: bool = False
    kept_out: bool = False  # a worker is about to make it final, so it is not logged any more
    handed_out: bool = False
    released: bool = False
    object: str = ""

    @property
    def is_said_again(self) -> bool:
        """Whether it is a mark in no log: a later one says all that it does."""
        return self.record is not None and self.record.mark and not (self.durable or self.logged)

    @property
    def only_opens(self) -> bool:
        """Whether it merely tells of its session, as whatever follows does."""
        return self.record is not None and self.record.mark and not self.end

    @property
    def belongs_in_log(self) -> bool:
        # A mark that is not final is said again by the next hello.
        return self.durable or (self.record is not None and not self.record.mark)


@dataclass(slots=True)
class ProducerSession:
    """What a lane knows of one run of a producer."""

    end: int
    acked: int
    #: nothing has arrived yet since this receiver started: numbers may be missing
    fresh: bool = True
    over: bool = False
    pending: deque[LaneEntry] = field(default_factory=deque)
    #: entries that are being written to the log
    writing: int = 0
    #: log objects not yet deleted that hold entries of this session
    objects: int = 0


class Handout(NamedTuple):
    """An entry as a worker gets it. ``logged``: it is in the item log."""

    record: LaneItems
    logged: bool


@dataclass
class LaneCounters:
    """What has happened on a lane since it was opened, in items unless named otherwise."""

    accepted: int = 0
    acknowledged: int = 0
    duplicates: int = 0
    restored: int = 0
    logged: int = 0
    released: int = 0
    punctuation: int = 0
    marks: int = 0


#: a pull of at most so many entries hands them out as they came
_FEW = 32
#: items of more rows are not copied for the sake of fewer entries
_MANY_ROWS = 4096


def joined(handouts: list[Handout]) -> list[Handout]:
    """Many small entries as few larger ones, where a producer's numbers go on and nothing else is between."""
    if len(handouts) <= _FEW:
        return handouts
    runs: list[list[Handout]] = []
    for handout in handouts:
        if runs and _goes_on(runs[-1][-1], handout):
            runs[-1].append(handout)
        else:
            runs.append([handout])
    return [run[0] if len(run) == 1 else _one(run) for run in runs]


def _goes_on(last: Handout, following: Handout) -> bool:
    return (
        last.logged == following.logged
        and last.record.producer == following.record.producer
        and last.record.end == following.record.start
        and all(each.record.batch is not None and each.record.span < _MANY_ROWS for each in (last, following))
    )


def _one(run: list[Handout]) -> Handout:
    first = run[0]
    batch = pa.concat_batches([handout.record.batch for handout in run])
    return Handout(LaneItems(first.record.producer, first.record.start, batch.num_rows, batch), first.logged)


def in_order(records: Iterable[tuple[str, LaneItems, int]]) -> list[tuple[str, LaneItems, int]]:
    """What a log held, each producer's by their numbers; producers take turns as they did in the log."""
    found = list(records)
    of_producer: dict[str, list[tuple[str, LaneItems, int]]] = {}
    for each in found:
        of_producer.setdefault(each[1].producer, []).append(each)
    turns = {
        producer: iter(sorted(theirs, key=lambda each: (each[1].start, each[1].end)))
        for producer, theirs in of_producer.items()
    }
    return [next(turns[record.producer]) for _, record, _ in found]
