"""One worker's work on one batch: items, punctuation and feedback meet the operator, in the programme's order.

Knows nothing of Spark, segments or stores: what it changes are states in a transaction, what it makes is an `Output`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, NamedTuple

import pyarrow as pa

from afspark.errors import OperatorMisuse
from afspark.model.operator import Operator, Outbox, WorkerContext
from afspark.model.states import HashTableState
from afspark.model.windows import Decaying, PaneReport, Part, Punctuation, Sliding, Split, late, split
from afspark.runtime.baditems import Bad, RawItems
from afspark.runtime.exchange import Packet, Parcel, open_bad, pack_packets, pack_parts
from afspark.runtime.ingest import Ingest, numbered
from afspark.runtime.isolation import Chooser, Rows
from afspark.runtime.orders import Mission, Order
from afspark.runtime.panes import Pane, Panes, merged
from afspark.runtime.programme import Step

#: Ports of what a worker keeps for others: items for all operators downstream, rows for the sink, closed windows.
ALL = "all"
ROWS = "rows"
WINDOWS = "windows"

#: Window number of punctuation that came with the items and ends no window by itself.
NO_WINDOW = -(2**63)


def items_for(successor: str) -> str:
    """The port of items for one operator only."""
    return f"to-{successor}"


def feedback_for(target: str) -> str:
    """The port of feedback to an operator upstream."""
    return f"back-{target}"


def waiting_feedback(images: Mapping[str, Sequence[pa.RecordBatch]], batch: int) -> dict[str, list[Packet]]:
    """The feedback of ``batch`` that a backup holds, by port, in the order it was sent."""
    found: list[tuple[str, int, pa.RecordBatch]] = []
    for name, sent in images.items():
        if name.startswith(feedback_for("")):
            port, sender, number = name.rsplit("@", 2)
            if int(sender) == batch:
                found += [(port, int(number), one) for one in sent]
    ports: dict[str, list[Packet]] = {}
    for port, _, items in sorted(found, key=lambda entry: entry[:2]):
        ports.setdefault(port, []).append(Packet(items))
    return ports


class Sign(NamedTuple):
    """Punctuation that came among the items: their sender has sent everything up to ``time`` (inf: it has ended)."""

    time: float


#: Waits at most so many seconds for what is being written; whether all of it is durable.
Settled = Callable[[float], bool]


def always_settled(seconds: float) -> bool:
    return True


class Feed:
    """The items of one worker in one batch: what it reads itself, and the parcels that others sent."""

    def __init__(
        self, direct: Iterable[tuple[str, Ingest]] = (), inbox: Iterable[Parcel] = (), *, size: int = 0
    ) -> None:
        self._direct = list(direct)
        parcels = sorted(inbox, key=lambda parcel: (parcel.origin, parcel.partition))
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

    def advance(self, settled: Settled = always_settled) -> bool:
        """Takes the next portion of items that come in several; False if it is the last."""
        return False

    def rest(self) -> Iterator[tuple[str, Packet | Sign]]:
        for parcel, packets in self._waiting:
            while packets:
                yield parcel.origin, packets.pop(0)
        for origin, ingest in self._direct:
            for packet in ingest:
                yield origin, packet


@dataclass
class Output:
    """What a batch made besides its changes of state."""

    #: what is kept for others, by port
    kept: dict[str, bytes] = field(default_factory=dict)
    #: feedback by receiver
    feedback: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    panes: PaneReport | None = None
    #: of the items for everybody; None if there are none
    schema: pa.Schema | None = None


class _Outbox(Outbox):
    def __init__(self, operator: str, successors: tuple[str, ...], feeds_back: tuple[str, ...]) -> None:
        self.operator, self.successors, self.feeds_back = operator, successors, feeds_back
        self.step = 0
        self.sent: dict[str, list[Packet]] = {}
        self.feedback: dict[str, list[pa.RecordBatch]] = {}

    def send(self, items: pa.RecordBatch, *, to: str) -> None:
        if to not in self.successors:
            raise OperatorMisuse(
                f"{self.operator!r} sends items to {to!r}, which does not read from it.",
                remedy=f"It can send to {', '.join(self.successors) or 'nobody'}.",
            )
        self._put(items_for(to), items)

    def feed_back(self, items: pa.RecordBatch, *, to: str) -> None:
        if to not in self.feeds_back:
            raise OperatorMisuse(
                f"{self.operator!r} sends feedback to {to!r}, which it did not announce.",
                remedy="Announce it: apply(..., feeds_back=[name]).",
            )
        if items.num_rows:
            self.feedback.setdefault(to, []).append(items)

    def put(self, items: pa.RecordBatch | None) -> None:
        """What the operator has returned."""
        if items is not None:
            self._put(ALL, items)

    def _put(self, port: str, items: pa.RecordBatch) -> None:
        if items.num_rows:
            self.sent.setdefault(port, []).append(Packet(items, self.step))


class Shift:
    """Runs the operator over a feed. ``probe`` is called between any two pieces of work."""

    def __init__(
        self,
        mission: Mission,
        order: Order,
        operator: Operator,
        panes: Panes,
        probe: Callable[[], None] = lambda: None,
        resumed: PaneReport | None = None,
        first: bool = True,
    ) -> None:
        self.operator, self.specs, self.panes, self.order = operator, operator.states(), panes, order
        self.window, self.calendar, self.workers = mission.window, order.calendar, mission.workers
        self.keyed = mission.keyed
        self.paned = self.window is not None and not isinstance(self.window, Decaying)
        self.keeps_items = mission.appends or bool(mission.successors)
        self.probe = probe
        self.outbox = _Outbox(mission.operator_name, mission.successors, mission.feeds_back)
        self.context = WorkerContext(
            worker=order.worker,
            workers=mission.workers,
            batch=order.batch,
            missing=order.missing,
            lost=order.lost or {},
            lost_items=order.lost_items,
            losable_items=mission.losable_items,
            outbox=self.outbox,
        )
        self.output = Output()
        self.seen = resumed or self.calendar.agenda.blank(order.worker)
        self._first = first
        self._begun: dict[Pane, Mapping[str, Any]] = {}
        self._closed: list[tuple[Any, pa.RecordBatch]] = []

    def run(self, feed: Feed) -> Output:
        self.operator.context = self.context
        if self._first:
            self._open(feed)
        self.outbox.step = len(self.order.programme)
        for origin, packet in feed.rest():
            if isinstance(packet, Sign):
                self._heed(origin, packet)
            else:
                self._take(origin, packet)
        self._finish_open()
        self._refuse_foreign_keys()
        self.probe()
        return self._collected(feed)

    def _open(self, feed: Feed) -> None:
        """What comes before the items of a batch, however many portions those come in."""
        if self.order.lost is not None:
            for pane in self.panes:
                self.operator.on_recover(self._view(pane), self.context)
        for origin, packet in feed.feedback():
            self.context.input = origin
            self._each_open(partial(self.operator.on_feedback, packet.items))
            self.probe()
        for number, step in enumerate(self.order.programme):
            self.outbox.step = number
            for origin, packet in feed.before(step):
                self._take(origin, packet)
            self._finish_open()
            self._punctuate(step)
            self.probe()

    # --- items ----------------------------------------------------------------------------------------------

    def _take(self, origin: str, packet: Packet) -> None:
        self.context.input = origin
        for pane, items in self._placed(packet):
            self.outbox.put(self.operator.process(items, self._states(pane)))
        self.probe()

    def _heed(self, origin: str, sign: Sign) -> None:
        """The sender's punctuation moves event time on, and the operator hears of it."""
        self._end_open()
        self.context.input = origin
        if self.window is not None and self.window.by == "event" and math.isfinite(sign.time):
            latest = sign.time if self.seen.latest is None else max(self.seen.latest, sign.time)
            self.seen = replace(self.seen, latest=latest)
        punctuation = Punctuation(origin, NO_WINDOW, -math.inf, sign.time)
        self._each_open(partial(self.operator.on_punctuation, punctuation))
        self.probe()

    def _placed(self, packet: Packet) -> Iterator[tuple[Pane, pa.RecordBatch]]:
        """The items by pane, without those that are too late for theirs."""
        window = self.window
        if window is None:
            yield None, packet.items
            return
        if packet.pane is not None:
            divided = Split(parts=[Part(packet.pane, packet.items)], items=packet.items.num_rows)
        else:
            divided = split(window, packet.items, now=self.calendar.now, seen=self.seen.seen, workers=self.workers)
        kept, too_late = late(window, self.calendar.agenda, divided.parts)
        self.seen = self.seen.noting(divided, kept, too_late)
        for part in kept:
            yield part.pane, part.items

    # --- states ---------------------------------------------------------------------------------------------

    def _view(self, pane: Pane) -> Mapping[str, Any]:
        """The states as the operator sees them: a decaying one in the units of its tick."""
        if isinstance(self.window, Decaying):
            return self.panes.at(self._newest(self.window) if pane is None else pane, updating=True)
        return self.panes.of(pane)

    def _newest(self, window: Decaying) -> int | None:
        """The newest tick known; as long as ticks are to be told that they have ended, the newest of those."""
        if self.calendar.exposed and any(
            step.own and not step.punctuation.last for step in self.order.programme[self.outbox.step :]
        ):
            return max(self.calendar.exposed)
        known = [*self.seen.panes, self.calendar.agenda.tick(window)]
        return max((tick for tick in known if tick is not None), default=None)

    def _states(self, pane: Pane) -> Mapping[str, Any]:
        """The states for items of a pane; the operator is told of the first of them."""
        if pane not in self._begun:
            # One pane at a time, so that an operator can keep what belongs to it in attributes.
            self._end_open()
            self._begun[pane] = self._view(pane)
            self.context.missing = self.order.pane_missing.get(pane or 0, self.order.missing)
            self.operator.begin(self._begun[pane], self.context)
        return self._begun[pane]

    def _finish_open(self) -> None:
        # An operator without windows expects begin and finish in every batch, with or without items.
        if self.window is None and not self._begun and self.outbox.step == len(self.order.programme):
            self._states(None)
        self._end_open()

    def _end_open(self) -> None:
        for states in self._begun.values():
            self.outbox.put(self.operator.finish(states))
        self._begun.clear()

    def _each_open(self, act: Callable[[Mapping[str, Any]], pa.RecordBatch | None]) -> None:
        """For what is not bound to a pane: every open one, or the only set of states.

        Where no pane is open the operator is told all the same, with empty states that nobody keeps.
        """
        # Also panes whose cells are all zero: a recovery does not bring those back.
        known = {*self.panes, *(self.calendar.agenda.touched if self.paned else ())}
        panes = sorted(
            (pane for pane in known if pane is None or not self._is_closed(pane)), key=lambda pane: pane or 0
        )
        for pane in panes:
            self.outbox.put(act(self._view(pane)))
        if not panes:
            self.outbox.put(act(merged(self.specs, ())))

    def _is_closed(self, pane: int) -> bool:
        first = self.calendar.agenda.first_open
        return first is not None and pane < first

    def _refuse_foreign_keys(self) -> None:
        """A table that was declared to have the operator's key must have it: its threshold relies on that."""
        if self.keyed and self.workers > 1:
            for _, _, state in self.panes.named():
                if isinstance(state, HashTableState) and state.spec.operator_key:
                    state.refuse_foreign_keys(self.order.worker, self.workers)

    # --- punctuation ----------------------------------------------------------------------------------------

    def _punctuate(self, step: Step) -> None:
        punctuation = step.punctuation
        if punctuation.last:
            # No window of its own: all of them have ended before, and with panes there is nothing left.
            paned = self.window is not None and not isinstance(self.window, Decaying)
            remains = merged(self.specs, []) if paned else self._view(None)
            self.outbox.put(self.operator.on_punctuation(punctuation, remains))
            return
        if not step.own:
            self._each_open(partial(self.operator.on_punctuation, punctuation))
            return
        states = self._window_states(punctuation.window)
        for name, state in states.items():
            self._closed.append(([punctuation.window, punctuation.start, punctuation.end, name], state.export()))
        self.outbox.put(self.operator.on_punctuation(punctuation, states))

    def _window_states(self, window: int) -> Mapping[str, Any]:
        """The states of the window that ends with pane ``window``."""
        if isinstance(self.window, Decaying):
            # The state holds the items of later ticks as well; in units of an earlier one they would weigh more than 1.
            return self._view(max({window, *self.calendar.exposed}))
        first = window - self.window.panes + 1 if isinstance(self.window, Sliding) else window
        present = [self.panes.of(pane) for pane in self.panes if pane is not None and first <= pane <= window]
        if isinstance(self.window, Sliding) or not present:
            return merged(self.specs, present)
        return present[0]

    # --- the end --------------------------------------------------------------------------------------------

    def _collected(self, feed: Feed) -> Output:
        output = self.output
        if self.window is not None:
            times = [*feed.latest(), *([] if self.seen.latest is None else [self.seen.latest])]
            output.panes = replace(
                self.seen, latest=max(times, default=None), unplaced=self.seen.unplaced + feed.unplaced
            )
        output.feedback = self.outbox.feedback
        if self.keeps_items:
            output.kept = {port: pack_packets(packets) for port, packets in self.outbox.sent.items()}
            output.schema = next((packet.items.schema for packet in self.outbox.sent.get(ALL, ())), None)
        for target, batches in self.outbox.feedback.items():
            output.kept[feedback_for(target)] = pack_packets([Packet(batch) for batch in batches])
        if self._closed:
            output.kept[WINDOWS] = pack_parts(self._closed)
        return output
