"""The items of one lane in one batch, portion by portion where steps can be closed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from afspark.protocol.parcels import Packet, Parcel
from afspark.push.wire.worker_messages import BackupNumber
from afspark.store.itemlosses import Gap
from afspark.store.lane_order import LaneOrder
from afspark.task.bad_item_search import RawItems
from afspark.task.feed import AwaitDurable, Feed, Sign, always_durable
from afspark.task.first_order import Portion
from afspark.task.ingest import Ingest
from afspark.task.intake import WAIT_SECONDS, Intake, Start
from afspark.task.isolation import Chooser, Rows
from afspark.task.step_progress import Positions, StepProgress


class LaneFeed(Feed):
    """The items of one lane in one batch, portion by portion where steps can be closed, else all at once."""

    replayable = False

    def __init__(
        self,
        name: str,
        intake: Intake,
        ingest: Callable[[Iterable[Packet]], Ingest],
        *,
        start: Positions,
        inbox: Iterable[Parcel] = (),
    ) -> None:
        super().__init__((), inbox)
        self.name, self.intake, self._ingest = name, intake, ingest
        self._start = start
        self._before = 0
        #: what was taken since the last step, the part of it that is given out (None: all), and whether more may come
        self._portions: list[Portion] = []
        self._chosen: list[Portion] | None = None
        self._more = True
        self._ingested: list[Ingest] = []
        self.stepped = False

    def resume(self, progress: StepProgress, start: Start, *, stepped: bool) -> None:
        self._before, self.stepped = progress.items, stepped
        self.intake.resume(progress, start)

    def advance(self, await_durable: AwaitDurable = always_durable) -> bool:
        """Takes the next portion; False if this is the last one."""
        self._before, self._ingested = self.items, []
        self._portions, self._chosen, self._more = [], None, not self.stepped
        if not self.stepped:
            return False
        portion = self._next(await_durable)
        while portion == Portion() and not self.intake.over:
            portion = self._next(await_durable)
        if portion is not None:
            self._portions.append(portion)
        return portion is not None

    def _next(self, await_durable: AwaitDurable) -> Portion | None:
        """Producers may wait for what a write under way holds up, so that nothing comes before it has ended."""
        if await_durable(0.0):
            return self.intake.portion()
        portion = self.intake.portion(wait=0.0)
        if portion == Portion():
            await_durable(WAIT_SECONDS)
        return portion

    @property
    def start(self) -> Positions:
        return self._start

    @property
    def positions(self) -> Positions:
        return self.intake.positions

    @property
    def lane_order(self) -> LaneOrder:
        return self.intake.order

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return self.intake.gaps

    @property
    def behind(self) -> int:
        return self.intake.behind

    @property
    def unsent(self) -> tuple[Gap, ...]:
        return self.intake.unsent

    @property
    def misses_backup(self) -> bool:
        return self.intake.misses_backup

    def claim(self) -> None:
        self.intake.claim()

    def confirm(self, positions: Positions, durable: BackupNumber) -> None:
        self.intake.confirm(positions, durable)

    def stop_logging(self) -> bool:
        return self.intake.stop_logging()

    @property
    def items(self) -> int:
        return self._before + sum(ingest.items for ingest in self._ingested) + super().items

    @property
    def bytes(self) -> int:
        return super().bytes + self.intake.bytes

    @property
    def unplaced(self) -> int:
        return sum(ingest.unplaced for ingest in self._ingested) + super().unplaced

    def latest(self) -> list[float]:
        times = [ingest.latest for ingest in self._ingested]
        return [*super().latest(), *(time for time in times if time is not None)]

    def rest(self) -> Iterator[tuple[str, Iterable[Packet | Sign]]]:
        yield from super().rest()
        for portion in list(self._portions) if self._chosen is None else self._chosen:
            yield self.name, self._given(portion)
        while self._more and (taken := self.intake.portion()) is not None:
            if taken != Portion():
                self._portions.append(taken)
            yield self.name, self._given(taken)

    def hold(self) -> list[RawItems]:
        return super().hold() + [
            RawItems(self.name, batch, producer, first)
            for portion in self._portions
            for batch, (producer, first) in zip(portion.items, portion.origins, strict=True)
        ]

    def select(self, rows: Rows, *, more: bool) -> None:
        chosen = Chooser(rows)
        self._choose(chosen)
        self._chosen = [
            replace(portion, items=tuple(chosen.of(batch) for batch in portion.items)) for portion in self._portions
        ]
        self._ingested, self._more = [], more and not self.stepped

    def _given(self, portion: Portion) -> Iterator[Packet | Sign]:
        start = 0
        for end, mark in (*portion.punctuation, (len(portion.items), None)):
            ingest = self._ingest([Packet(batch) for batch in portion.items[start:end] if batch.num_rows])
            self._ingested.append(ingest)
            yield from ingest
            if mark is not None:
                yield Sign(math.inf if mark.time is None else mark.time)
            start = end

    def progress(self, before: StepProgress) -> StepProgress:
        return replace(
            before,
            positions=dict(self.intake.positions),
            items=self.items,
            bytes=self.bytes,
            gaps=self.intake.gaps,
        )
