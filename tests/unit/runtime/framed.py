"""A rig whose items come in batches of a DataFrame, as Spark would hand them over, and can be handed over again."""

from __future__ import annotations

import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from afspark.cluster.local.local_frame import LocalFrame
from afspark.cluster.remade_frame import RemadeFrame
from afspark.graph.stream_frame import StreamFrame
from afspark.numbers import Batch
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Hosts, Rig

BATCHES = 7
#: A streaming DataFrame that nobody looks at: the rig hands over its batches.
NO_FRAME: Any = None


def words_of(batch: int, row: int) -> str:
    """A line with a word that all lines have, one of some lines, and one of its own."""
    return f"all all mod{(batch + row) % 5} line{batch}x{row}"


def frame_of(batch: int, partitions: int = 3) -> LocalFrame:
    """Twelve lines, divided among partitions."""
    lines = [words_of(batch, row) for row in range(12)]
    parts = [lines[number::partitions] for number in range(partitions)]
    return LocalFrame([[pa.record_batch({"value": pa.array(part, pa.string())})] for part in parts])


def truth() -> Counter[str]:
    return Counter(word for batch in range(BATCHES) for row in range(12) for word in words_of(batch, row).split())


class FramedRig(Rig):
    """Each driver is handed the batches of a DataFrame; ``remade`` are those that were made again for it."""

    def __init__(self, root: Path, hosts: Hosts, **settings: Any) -> None:
        super().__init__(root, hosts, **settings)
        self.remade: list[int] = []
        #: into how many partitions Spark divides a batch that it makes again
        self.partitions = 3
        #: batches that cannot be made again
        self.forgotten: set[int] = set()
        self.past_frames = self
        #: what was handed over, if anybody still has it
        self.handed: list[weakref.ref[LocalFrame]] = []

    def remake(self, batch: Batch) -> RemadeFrame:
        self.remade.append(batch)
        if batch in self.forgotten:
            return RemadeFrame(None, [f"batch {batch}"])
        return RemadeFrame(frame_of(batch, self.partitions))

    def _frame(self, batch: int) -> LocalFrame:
        frame = frame_of(batch)
        self.handed.append(weakref.ref(frame))
        return frame

    def _reached(self, batch: int) -> list[str] | None:
        return [f'{{"logOffset": {batch}}}'] if batch < BATCHES else None


def framed(make_rig: MakeRig, why_not: str = "") -> MakeRig:
    """Makes rigs like ``make_rig`` does, over a DataFrame. ``why_not``: why it cannot be replayed."""

    def make(**settings: Any) -> tuple[Rig, Counter[str]]:
        source = StreamFrame(NO_FRAME, why_not)
        pipeline = settings.pop("pipeline", None)
        rig, _ = make_rig(batches=1, **settings)
        chosen = {**rig.settings, "source": source}
        if pipeline is not None:
            chosen = {**settings, "pipeline": pipeline(source)}
        return FramedRig(rig.root, rig.hosts, **chosen), truth()

    return make
