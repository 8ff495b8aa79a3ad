"""The part of the loss ledger that is about items: which numbers of which producer never came."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace

from afspark.numbers import Batch
from afspark.store.base import Store
from afspark.store.format import seal
from afspark.store.reading import Damage, read_sealed

ITEM_LOSSES = "itemlosses"


@dataclass(frozen=True)
class Gap:
    """Items of a producer that were acknowledged and never came: numbers [first, end) of a lane."""

    producer: str
    first: int
    end: int
    #: between the last item before the gap and the first sign of it
    seconds: float = 0.0

    @property
    def items(self) -> int:
        return self.end - self.first

    @property
    def described(self) -> str:
        """The items, for people."""
        return f"items {self.first} to {self.end - 1} of {self.producer}"

    def beyond(self, known: Iterable[Gap]) -> list[Gap]:
        """The parts of it that are in no ``known`` gap.

        >>> Gap("p", 2, 9).beyond([Gap("p", 4, 6), Gap("other", 0, 9)])
        [Gap(producer='p', first=2, end=4, seconds=0.0), Gap(producer='p', first=6, end=9, seconds=0.0)]
        """
        parts = [self]
        for gap in known:
            if gap.producer == self.producer:
                cut = [replace(part, first=max(part.first, gap.end)) for part in parts]
                parts = [replace(part, end=min(part.end, gap.first)) for part in parts] + cut
        return [part for part in parts if part.first < part.end]


@dataclass(frozen=True, kw_only=True)
class ItemLoss:
    """Items [first, end) that ``producer`` sent to a worker were acknowledged and lost.

    ``seconds`` passed between the last item before the gap and the first sign of it.
    """

    batch: Batch
    operator: str
    worker: int
    producer: str
    first: int
    end: int
    seconds: float = 0.0
    at: float = field(default_factory=time.time)

    @property
    def items(self) -> int:
        return self.end - self.first


class ItemLosses:
    """One object per batch and worker that found a gap; a batch that runs again writes the same one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: what the last reading of `entries` passed over
        self.damaged: list[Damage] = []

    def note(self, batch: Batch, operator: str, worker: int, gaps: Sequence[Gap]) -> None:
        """Makes the gaps that a worker has found in a batch durable."""
        losses = [ItemLoss(batch=batch, operator=operator, worker=worker, **vars(gap)) for gap in gaps]
        meta = {"kind": "items", "losses": [asdict(loss) for loss in losses]}
        self._store.put(f"{ITEM_LOSSES}/{batch:012d}-{operator}-{worker:05d}", seal(meta, {}))

    def by_batch_and_worker(self, operator: str, *, before: int) -> dict[tuple[int, int], int]:
        """How many items were lost in which batch, up to that one, by which worker."""
        lost: Counter[tuple[int, int]] = Counter()
        for loss in self.entries():
            if loss.operator == operator and loss.batch < before:
                lost[loss.batch, loss.worker] += loss.items
        return dict(lost)

    def entries(self) -> list[ItemLoss]:
        """All losses, oldest first."""
        names = self._store.list(ITEM_LOSSES)
        found = read_sealed(self._store, names)
        self.damaged = [damage for damage in found if isinstance(damage, Damage)]
        sound = [sealed for sealed in found if not isinstance(sealed, Damage)]
        return [ItemLoss(**loss) for sealed in sound for loss in sealed.meta["losses"]]
