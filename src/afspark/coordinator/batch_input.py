"""What the sources have for a batch, now or once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from afspark.sources import Chunk, Planner


@dataclass(frozen=True)
class Slice:
    """What of a source belongs to a batch. ``gone`` is left out, and every other chunk keeps its reader: some
    workers may have applied their share before the query went down.
    """

    planner: Planner
    chunks: Sequence[Chunk]
    gone: Sequence[Chunk] = ()

    def shares(self, workers: int) -> dict[int, list[Chunk]]:
        """The chunks of each worker."""
        shares = self.planner.shares(self.chunks, workers)
        return {worker: [chunk for chunk in part if chunk not in self.gone] for worker, part in enumerate(shares)}


Slices = Mapping[str, Slice]


class BatchFrame:
    """A batch of a streaming DataFrame, made when it is asked for the first time.

    What Spark hands over is bound to the offsets of its batch: it reads the same rows however often it is run, also
    after Spark has committed the batch and run others.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: tuple[Any] | None = None

    def get(self) -> Any:
        """What the cluster can read; None if there is nothing to be read."""
        if self._made is None:
            self._made = (self._make(),)
        return self._made[0]


@dataclass(frozen=True)
class BatchInput:
    """What belongs to a batch: of sources that afspark plans, and of a DataFrame.

    ``tell`` is called before a worker that lacks a batch of the past is given it: some of it may be gone.
    """

    slices: Slices = field(default_factory=dict)
    frame: BatchFrame | None = None
    tell: Callable[[], None] = lambda: None
