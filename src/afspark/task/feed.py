"""The items of one worker in one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import ClassVar, NamedTuple

from afspark.protocol.bad_items import Bad
from afspark.protocol.parcels import Packet, Parcel, open_bad
from afspark.protocol.punctuation_plan import Step
from afspark.push.wire.worker_messages import BackupNumber
from afspark.store.itemlosses import Gap
from afspark.store.lane_order import LaneOrder
from afspark.task.bad_item_search import RawItems
from afspark.task.ingest import Ingest, numbered
from afspark.task.intake import Start
from afspark.task.isolation import Chooser, Rows
from afspark.task.step_progress import Positions, StepProgress


class Sign(NamedTuple):
    """Punctuation that came among the items: their sender has sent everything up to ``time`` (inf: it has ended)."""

    time: float


#: Waits at most so many seconds for what is being written; whether all of it is durable.
AwaitDurable = Callable[[float], bool]


def always_durable(seconds: float) -> bool:
    return True


class Feed:
    """The items of one worker in one batch: what it reads itself, and the parcels that others sent.

    Items of a lane come in steps that become final one by one. For all others, which can be brought again, what is
    said here of positions and steps is nothing.
    """

    #: whether the items can be brought again, so that the batch can be applied anew
    replayable: ClassVar[bool] = True
    #: whether they come in portions, each of which can be made final
    stepped = False

    def __init__(
        self,
        direct: Iterable[tuple[str, Ingest]] = (),
        inbox: Iterable[Parcel] = (),
        *,
        size: int = 0,
        order: Mapping[str, int] | None = None,
    ) -> None:
        self._direct = list(direct)
        places = order or {}
        parcels = sorted(
            inbox, key=lambda parcel: (places.get(parcel.origin, len(places)), parcel.origin, parcel.partition)
        )
        self._received = [(parcel, tuple(parcel.packets())) for parcel in parcels if not parcel.feedback]
        self._waiting = [(parcel, list(packets)) for parcel, packets in self._received]
        self._feedback = [parcel for parcel in parcels if parcel.feedback]
        self._parcels = [parcel for parcel, _ in self._received]
        self._size = size + sum(parcel.size for parcel in parcels)
        self.consumed = {parcel.label: parcel.digest for parcel in parcels}

    @property
    def bytes(self) -> int:
        return self._size

    @property
    def items(self) -> int:
        received = sum(parcel.items for parcel in self._parcels)
        return received + sum(ingest.items for _, ingest in self._direct)

    @property
    def arrived_items(self) -> int:
        """The items that came to this worker. Those of a parcel are counted where they were read, for all its readers
        at once.
        """
        rows = sum(packet.items.num_rows for _, packets in self._received for packet in packets)
        return self.items - sum(parcel.items for parcel in self._parcels) + rows

    @property
    def arrived_bytes(self) -> int:
        """The bytes that came to this worker."""
        return self.bytes + sum(len(parcel.payload) - parcel.size for parcel in self._parcels)

    @property
    def unplaced(self) -> int:
        received = sum(parcel.unplaced for parcel in self._parcels)
        return received + sum(ingest.unplaced for _, ingest in self._direct)

    def latest(self) -> list[float]:
        times = [ingest.latest for _, ingest in self._direct] + [parcel.latest for parcel in self._parcels]
        return [time for time in times if time is not None]

    def feedback(self) -> Iterator[tuple[str, Packet]]:
        for parcel in self._feedback:
            for packet in parcel.packets():
                yield parcel.origin, packet

    def before(self, step: Step) -> Iterator[tuple[str, Packet]]:
        """What was sent before the punctuation of ``step``, and has not been given out yet."""
        for parcel, packets in self._waiting:
            last = step.after.get(parcel.origin)
            while last is not None and packets and packets[0].step <= last:
                yield parcel.origin, packets.pop(0)

    def bad(self) -> Bad:
        """What the senders of parcels have left out."""
        return reduce(Bad.and_also, (open_bad(parcel.bad) for parcel in self._parcels if parcel.bad), Bad())

    def hold(self) -> list[RawItems]:
        held = [raw for parcel, packets in self._received for raw in numbered(parcel.origin, packets)]
        return held + [raw for origin, ingest in self._direct for raw in ingest.hold(origin)]

    def select(self, rows: Rows, *, more: bool) -> None:
        self._choose(Chooser(rows))

    def _choose(self, chosen: Chooser) -> None:
        self._waiting = []
        for parcel, packets in self._received:
            some = [packet._replace(items=chosen.of(packet.items)) for packet in packets]
            self._waiting.append((parcel, [packet for packet in some if packet.items.num_rows]))
        for _, ingest in self._direct:
            ingest.select(chosen)

    @property
    def start(self) -> Positions:
        """How far the lane was taken before the batch."""
        return {}

    @property
    def positions(self) -> Positions:
        """How far the lane has been taken."""
        return {}

    @property
    def lane_order(self) -> LaneOrder:
        """In which order items were taken off a lane, if they may have to be applied once more."""
        return ()

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The items that were acknowledged and never came."""
        return ()

    @property
    def behind(self) -> int:
        """How many items the receiver has released that the state does not have."""
        return 0

    @property
    def unsent(self) -> tuple[Gap, ...]:
        """The items that a batch had when it was applied first, and that nobody has sent again."""
        return ()

    @property
    def misses_backup(self) -> bool:
        """Whether the state begins before a backup that was durable, and damage is the reason."""
        return False

    def claim(self) -> None:
        """Shuts out whoever has the lane."""

    def resume(self, progress: StepProgress, start: Start, *, stepped: bool) -> None:
        """Goes on where ``progress`` says."""

    def progress(self, before: StepProgress) -> StepProgress:
        """How far the batch has come with this portion."""
        return before

    def confirm(self, positions: Positions, durable: BackupNumber) -> None:
        """Tells the lane that what is below the positions is in the state for good."""

    def stop_logging(self) -> bool:
        """Whether any of the portion's items is in the item log; no more of them will be."""
        return False

    def advance(self, await_durable: AwaitDurable = always_durable) -> bool:
        """Takes the next portion of items that come in several; False if it is the last."""
        return False

    def rest(self) -> Iterator[tuple[str, Iterable[Packet | Sign]]]:
        """What has not been given out yet, by origin: streams that are to be taken one after the other."""
        for parcel, packets in self._waiting:
            yield parcel.origin, _taken(packets)
        yield from self._direct


def _taken(packets: list[Packet]) -> Iterator[Packet]:
    while packets:
        yield packets.pop(0)
