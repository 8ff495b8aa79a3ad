"""How the items of a repetition come: in which batches, and in which order those of several inputs meet.

Operators of afspark are deterministic, and so is a batch. What differs between two runs of a query are its batches:
where they end, and how far the inputs have come by then. A repetition is one such interleaving, made from its seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from afspark.errors import UsageError

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Interleaving:
    """Batches of one repetition: after each of them, how many items of each input have come."""

    #: batches x inputs
    reached: Counts
    #: after how many items of all inputs each batch is to end; with several inputs it may be a few more or less
    ends: tuple[int, ...]
    seed: int
    #: over how many neighbours an item may be moved
    jitter: int = 0

    def batch_of(self, offset: int) -> int:
        """The batch that begins at an offset."""
        return self.ends.index(offset) + 1

    def batches(self, number: int, items: pa.Table) -> Iterator[pa.Table]:
        """The items of an input, batch by batch."""
        ordered = items.take(pa.array(self._order(number, items.num_rows))) if self.jitter else items
        first = 0
        for end in self.reached[:, number].tolist():
            yield ordered.slice(first, end - first)
            first = end

    def _order(self, number: int, rows: int) -> Counts:
        moved = np.arange(rows) + np.random.default_rng([self.seed, 1, number]).uniform(0, self.jitter, rows)
        return np.argsort(moved, kind="stable")


def interleave(
    sizes: Sequence[int],
    offsets: Sequence[int],
    *,
    batch_items: int,
    seed: int,
    jitter: int = 0,
    times: Sequence[npt.NDArray[np.float64]] | None = None,
) -> Interleaving:
    """Batches of about so many items, one of which ends at each offset.

    The inputs advance by their ``times`` if these are known, and by equal parts of themselves if not; how far each of
    several has come when a batch ends differs from seed to seed, except at the offsets.
    """
    total = sum(sizes)
    for offset in offsets:
        if not 0 < offset < total:
            raise UsageError(
                f"An offset of {offset:,} items is not within the input, which has {total:,}.",
                remedy="Choose offsets above 0 and before the end.",
                offset=offset,
            )
    random = np.random.default_rng([seed, 0])
    ends = {total, *offsets}
    for first, last in zip([0, *sorted(offsets)], [*sorted(offsets), total], strict=True):
        at = first
        while (at := at + int(batch_items * random.uniform(0.5, 1.5))) < last - batch_items // 2:
            ends.add(at)
    ordered = np.array(sorted(ends))
    planned = tuple(sorted(ends))
    if len(sizes) == 1:
        return Interleaving(ordered.reshape(-1, 1), planned, seed, jitter)
    reached = _reached(ordered, sizes, times)
    fixed = np.isin(ordered, [*offsets, total])
    lag = random.uniform(-0.25, 0.25, reached.shape) * batch_items * (np.array(sizes) / total)
    lag[fixed] = 0
    # No batch lacks an input: one without any new items is none for Spark, and batches have to be the same there.
    least = np.arange(1, len(ordered) + 1)[:, None] * np.ones(len(sizes), np.int64)
    most = np.array(sizes) - least[::-1] + 1
    if (least[-1] > sizes).any():
        raise UsageError(
            f"An input of {min(sizes):,} items is too short for {len(ordered)} batches.",
            remedy="Use larger batches: batch_items=…",
        )
    moved = np.clip(np.maximum.accumulate(np.rint(reached + lag), axis=0), least, most).astype(np.int64)
    for number in range(1, len(moved)):
        moved[number] = np.maximum(moved[number], moved[number - 1] + 1)
    return Interleaving(np.minimum(moved, most), planned, seed, jitter)


def _reached(
    ends: Counts, sizes: Sequence[int], times: Sequence[npt.NDArray[np.float64]] | None
) -> npt.NDArray[np.float64]:
    if times is None:
        return np.outer(ends / sum(sizes), sizes)
    inputs = np.repeat(np.arange(len(sizes)), sizes)
    merged = inputs[np.argsort(np.concatenate(list(times)), kind="stable")]
    return np.stack(
        [np.searchsorted(np.flatnonzero(merged == one), ends).astype(float) for one in range(len(sizes))], 1
    )
