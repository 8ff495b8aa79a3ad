"""Bad items as driver and tasks speak of them: what is done about them, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from afspark.model.onbad import BAD_LIMIT, SKIP, STOP, OnBad
from afspark.store.quarantine import Count, sum_counts

#: How many bytes of an operator's bad items are kept.
QUARANTINE_BYTES = 64_000_000


@dataclass(frozen=True, kw_only=True)
class BadRules:
    """What an operator does about bad items: for each of its inputs, and how many it bears."""

    choices: Mapping[str, OnBad] = field(default_factory=dict)
    limit: int = BAD_LIMIT
    #: how many bytes of bad items are kept
    most_bytes: int = QUARANTINE_BYTES

    #: null keys are left out wherever nobody has asked for a stop
    spares_null_keys: bool = False

    def choice(self, origin: str, *, null_key: bool = False) -> OnBad:
        """What happens to a bad item of that input; ``null_key``: that is all that is wrong with it."""
        return SKIP if null_key and self.spares_null_keys else self.choices.get(origin, STOP)


@dataclass(frozen=True)
class Bad:
    """Items that were left out: how many of each source and kind, and the rows that are kept of them."""

    counts: tuple[Count, ...] = ()
    rows: tuple[pa.RecordBatch, ...] = ()

    @property
    def items(self) -> int:
        return sum(count.items for count in self.counts)

    def and_also(self, other: Bad) -> Bad:
        return Bad(sum_counts((*self.counts, *other.counts)), (*self.rows, *other.rows))

    def within(self, room: int) -> Bad:
        """The same with rows of at most ``room`` bytes."""
        kept: list[pa.RecordBatch] = []
        for batch in self.rows:
            fitting = batch.num_rows if batch.nbytes <= room else room * batch.num_rows // batch.nbytes
            if fitting <= 0:
                break
            # Copied, so that what is left out does not stay in memory, nor goes into the object.
            kept.append(batch if fitting == batch.num_rows else batch.take(pa.array(range(fitting))))
            room -= kept[-1].nbytes
        return Bad(self.counts, tuple(kept))
