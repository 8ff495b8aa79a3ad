"""One worker's work on one batch: items, punctuation and feedback meet the operator, as the punctuation plan says.

Knows nothing of Spark, segments or stores: what it changes are states in a transaction, what it makes is an `Output`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from afspark.model.operator import Operator, WorkerContext
from afspark.model.state_label import Pane
from afspark.model.windows import PaneReport, Part, Punctuation, Split, Window, late, split
from afspark.numbers import PaneNumber
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import Packet, packed_packets, packed_parts
from afspark.protocol.ports import ALL, WINDOWS, feedback_for
from afspark.protocol.punctuation_plan import Step
from afspark.protocol.requests import TaskRequest
from afspark.task.feed import Feed, Sign
from afspark.task.outbox import CollectingOutbox, Output
from afspark.task.pane_states import PaneStates, merged

#: Window number of punctuation that came with the items and ends no window by itself.
NO_WINDOW = -(2**63)


class BatchProcessor:
    """Runs the operator over a feed. ``probe`` is called between any two pieces of work."""

    def __init__(
        self,
        config: OperatorConfig,
        request: TaskRequest,
        operator: Operator,
        panes: PaneStates,
        probe: Callable[[], None] = lambda: None,
        resumed: PaneReport | None = None,
        first: bool = True,
        exchange: Any = None,
    ) -> None:
        self.operator, self.specs, self.panes, self.request = operator, operator.states(), panes, request
        self.window, self.batch_time, self.workers = config.window, request.batch_time, config.workers
        self.keyed, self.names = config.keyed, {**config.titles, **config.input_names}
        self.paned = self.window is not None and self.window.has_panes
        self.keeps_items = config.appends or bool(config.successors)
        self.probe = probe
        self.outbox = CollectingOutbox(config.title, config.successors, config.feeds_back, config.titles)
        self.context = WorkerContext(
            worker=request.worker,
            workers=config.workers,
            batch=request.batch,
            missing=request.missing,
            lost=request.lost or {},
            lost_items=request.lost_items,
            losable_items=config.losable_items,
            outbox=self.outbox,
            exchange=exchange,
        )
        self.output = Output()
        self.seen = resumed or self.batch_time.window_progress.blank(request.worker)
        self._first = first
        self._begun: dict[Pane, Mapping[str, Any]] = {}
        self._closed: list[tuple[Any, pa.RecordBatch]] = []

    def run(self, feed: Feed) -> Output:
        self.operator.context = self.context
        if self._first:
            self._open(feed)
        self.outbox.step = len(self.request.punctuation_plan)
        for origin, given in feed.rest():
            for packet in given:
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
        if self.request.lost is not None:
            for pane in self.panes:
                self.operator.on_recover(self._view(pane), self.context)
        for origin, packet in feed.feedback():
            self.context.input = self.names.get(origin, origin)
            self._each_open(partial(self.operator.on_feedback, packet.items))
            self.probe()
        for number, step in enumerate(self.request.punctuation_plan):
            self.outbox.step = number
            for origin, packet in feed.before(step):
                self._take(origin, packet)
            self._finish_open()
            self._punctuate(step)
            self.probe()

    # --- items ----------------------------------------------------------------------------------------------

    def _take(self, origin: str, packet: Packet) -> None:
        self.context.input = self.names.get(origin, origin)
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
            divided = split(window, packet.items, now=self.batch_time.now, seen=self.seen.seen, workers=self.workers)
        kept, too_late = late(window, self.batch_time.window_progress, divided.parts)
        self.seen = self.seen.noting(divided, kept, too_late)
        for part in kept:
            yield part.pane, part.items

    # --- states ---------------------------------------------------------------------------------------------

    def _view(self, pane: Pane) -> Mapping[str, Any]:
        """The states as the operator sees them: a decaying one in the units of its tick."""
        if self.window is not None and not self.window.has_panes:
            return self.panes.at(self._newest(self.window) if pane is None else pane, updating=True)
        return self.panes.of(pane)

    def _newest(self, window: Window) -> int | None:
        """The newest tick known; as long as ticks are to be told that they have ended, the newest of those."""
        if self.batch_time.exposed and any(
            step.own and not step.punctuation.last for step in self.request.punctuation_plan[self.outbox.step :]
        ):
            return max(self.batch_time.exposed)
        known = [*self.seen.panes, self.batch_time.window_progress.tick(window)]
        return max((tick for tick in known if tick is not None), default=None)

    def _states(self, pane: Pane) -> Mapping[str, Any]:
        """The states for items of a pane; the operator is told of the first of them."""
        if pane not in self._begun:
            # One pane at a time, so that an operator can keep what belongs to it in attributes.
            self._end_open()
            self._begun[pane] = self._view(pane)
            self.context.missing = self.request.pane_missing.get(pane or PaneNumber(0), self.request.missing)
            self.operator.begin(self._begun[pane], self.context)
        return self._begun[pane]

    def _finish_open(self) -> None:
        # An operator without windows expects begin and finish in every batch, with or without items.
        if self.window is None and not self._begun and self.outbox.step == len(self.request.punctuation_plan):
            self._states(None)
        self._end_open()

    def _end_open(self) -> None:
        for states in self._begun.values():
            self.outbox.put(self.operator.finish(states))
        self._begun.clear()

    def _each_open(self, act: Callable[[Mapping[str, Any]], pa.RecordBatch | None]) -> None:
        """Every open pane, or the only set of states, for calls that are not bound to a pane.

        Where no pane is open the operator is told all the same, with empty states that nobody keeps.
        """
        # Also panes whose cells are all zero: a recovery does not bring those back.
        known = {*self.panes, *(self.batch_time.window_progress.touched if self.paned else ())}
        panes = sorted(
            (pane for pane in known if pane is None or not self._is_closed(pane)), key=lambda pane: pane or 0
        )
        for pane in panes:
            self.outbox.put(act(self._view(pane)))
        if not panes:
            self.outbox.put(act(merged(self.specs, ())))

    def _is_closed(self, pane: PaneNumber) -> bool:
        first = self.batch_time.window_progress.first_open
        return first is not None and pane < first

    def _refuse_foreign_keys(self) -> None:
        """A table that was declared to have the operator's key must have it: its threshold relies on that."""
        if self.keyed and self.workers > 1:
            for _, _, state in self.panes.named():
                if state.spec.disjoint:
                    state.refuse_foreign_keys(self.request.worker, self.workers)

    # --- punctuation ----------------------------------------------------------------------------------------

    def _punctuate(self, step: Step) -> None:
        punctuation = self._in_words(step.punctuation)
        if punctuation.last:
            # No window of its own: all of them have ended before, and with panes there is nothing left.
            remains = merged(self.specs, []) if self.paned else self._view(None)
            self.outbox.put(self.operator.on_punctuation(punctuation, remains))
            return
        if not step.own:
            self._each_open(partial(self.operator.on_punctuation, punctuation))
            return
        states = self._window_states(punctuation.window)
        for name, state in states.items():
            self._closed.append(([punctuation.window, punctuation.start, punctuation.end, name], state.export()))
        self.outbox.put(self.operator.on_punctuation(punctuation, states))

    def _in_words(self, punctuation: Punctuation) -> Punctuation:
        """The punctuation as the operator is told of it: with what the user calls the one whose window has ended."""
        title = self.names.get(punctuation.operator)
        return punctuation if title is None else replace(punctuation, operator=title)

    def _window_states(self, window: int) -> Mapping[str, Any]:
        """The states of the window that ends with pane ``window``."""
        assert self.window is not None
        if not self.window.has_panes:
            # The state holds the items of later ticks as well; in units of an earlier one they would weigh more than 1.
            return self._view(PaneNumber(max({window, *self.batch_time.exposed})))
        first = window - self.window.panes + 1
        present = [self.panes.of(pane) for pane in self.panes if pane is not None and first <= pane <= window]
        if self.window.panes > 1 or not present:
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
        output.feedback, output.metrics = self.outbox.feedback, self.context.metrics
        if self.keeps_items:
            output.kept = {port: packed_packets(packets) for port, packets in self.outbox.sent.items()}
            output.schema = next((packet.items.schema for packet in self.outbox.sent.get(ALL, ())), None)
        for target, batches in self.outbox.feedback.items():
            output.kept[feedback_for(target)] = packed_packets([Packet(batch) for batch in batches])
        if self._closed:
            output.kept[WINDOWS] = packed_parts(self._closed)
        return output
