"""The items of a batch that is applied once more, in the portions and the order of the first time. Pure.

Whoever sends them again sends them when it likes, and cuts them as it likes; what an operator makes of them may depend
on both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from afspark.push.wire.messages import PunctuationMark as Mark
from afspark.store.lane_order import LaneOrder


@dataclass(frozen=True)
class Portion:
    """New items of a lane in order, and the punctuation among them: after how many of the batches, and what."""

    items: tuple[pa.RecordBatch, ...] = ()
    punctuation: tuple[tuple[int, Mark], ...] = ()
    #: of each batch: its producer, and the number of its first item
    origins: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class LanePiece:
    """What was taken of one entry of a lane: items, or a punctuation, which has a number of its own."""

    producer: str
    first: int
    items: pa.RecordBatch | None = None
    punctuation: Mark | None = None

    @property
    def end(self) -> int:
        return self.first + (1 if self.items is None else self.items.num_rows)

    def before(self, end: int) -> LanePiece:
        """The part of it below a number."""
        return self if self.items is None else replace(self, items=self.items.slice(0, end - self.first))

    def since(self, end: int) -> LanePiece:
        """The part of it from a number on."""
        return self if self.items is None else replace(self, first=end, items=self.items.slice(end - self.first))


def portion_of(pieces: Iterable[LanePiece]) -> Portion:
    """The pieces as they are given to an operator."""
    items: list[pa.RecordBatch] = []
    origins: list[tuple[str, int]] = []
    punctuation: list[tuple[int, Mark]] = []
    for piece in pieces:
        if piece.punctuation is not None:
            punctuation.append((len(items), piece.punctuation))
        elif piece.items is not None:
            items.append(piece.items)
            origins.append((piece.producer, piece.first))
    return Portion(tuple(items), tuple(punctuation), tuple(origins))


class FirstOrder:
    """Holds pieces until the portion that they belonged to is complete. Without an ``order`` they are given out as they
    come. ``until``: where the batch ended.
    """

    def __init__(self, order: LaneOrder, until: Mapping[str, int]) -> None:
        self._portions, self._until = deque(order), until
        self._held: dict[str, deque[LanePiece]] = {}

    def put(self, pieces: Iterable[LanePiece]) -> None:
        """Takes what has come; of each producer in the order of its numbers."""
        for piece in pieces:
            self._held.setdefault(piece.producer, deque()).append(piece)

    def next(self, positions: Mapping[str, int]) -> Portion | None:
        """The next portion, if all of it has come up to ``positions``; None if not, or if none is left."""
        while self._portions and all(
            positions.get(producer, 0) >= min(end, self._until.get(producer, 0)) for producer, end in self._portions[0]
        ):
            taken = [piece for producer, end in self._portions.popleft() for piece in self._up_to(producer, end)]
            if taken:
                return portion_of(taken)
        if self._portions:
            return None
        return self._rest()

    def _rest(self) -> Portion | None:
        rest = [piece for held in self._held.values() for piece in held]
        self._held = {}
        return portion_of(rest) if rest else None

    def _up_to(self, producer: str, end: int) -> list[LanePiece]:
        """What is held of a producer below a number; items that follow each other in one piece."""
        held = self._held.get(producer, deque())
        found: list[LanePiece] = []
        while held and held[0].first < end:
            piece = held.popleft()
            if piece.end > end:
                held.appendleft(piece.since(end))
                piece = piece.before(end)
            last = found[-1] if found else None
            if last is not None and last.items is not None and piece.items is not None and last.end == piece.first:
                found[-1] = replace(last, items=pa.concat_batches([last.items, piece.items]))
            else:
                found.append(piece)
        return found
