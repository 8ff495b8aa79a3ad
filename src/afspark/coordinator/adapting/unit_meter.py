"""What is measured of one unit, from the reports of its worker: a few numbers a batch, whatever the size of its state.

Batches may be short, and a history remembers few measurements. So what flows (items, bytes, CPU) is summed up over a
while, and one measurement is made of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from afspark.control import Quantity, UnitHistory
from afspark.numbers import Batch

SPAN = 2.0
"""Seconds that a measurement of what flows covers at least."""

_SHORTEST = SPAN / 4
"""A measurement of the present over less than this would be noise."""

_FLOWS = (Quantity.RECEIVED, Quantity.RECEIVED_BYTES, Quantity.SENT_BYTES, Quantity.CPU)

_STAGES = 32
"""How many stages tell what the next one takes."""


@dataclass(frozen=True, kw_only=True)
class BatchFacts:
    """What one batch has told of a unit; ``ended`` is when its stage had ended, in seconds since 1970."""

    batch: Batch
    ended: float
    #: how long the stage took, and how much of that its worker was at work
    stage: float
    work: float = 0.0
    items: float = 0.0
    received: float = 0.0
    sent: float = 0.0
    cpu: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Capture:
    """A checkpoint that a batch has made: bytes in it, bytes that a restore would read, and seconds of CPU."""

    batch: Batch
    at: float
    written: float
    size: float
    cpu: float = 0.0


class UnitMeter:
    """The measurements of one unit. ``history``: what is known of it from before."""

    def __init__(self, history: UnitHistory | None = None) -> None:
        self.history = history or UnitHistory()
        #: what flows: seconds and amount since the last measurement
        self._open: dict[Quantity, tuple[float, float]] = {}
        self._ended: float | None = None
        #: checkpoints that are not safe yet, and the items that had come before each
        self._captures: list[tuple[Capture, float]] = []
        self._items = 0.0
        self._safe_items: float | None = None
        #: of the last stages: seconds, and those of them in which the worker was not at work
        self._stages: deque[tuple[float, float]] = deque(maxlen=_STAGES)
        self._first_stage: float | None = None
        #: whether no batch was measured yet: the first one starts processes and loads code, and tells nothing else
        self.is_new = True

    def batch(self, facts: BatchFacts) -> None:
        """Takes up what a batch has told."""
        since = facts.stage if self._ended is None else max(facts.ended - self._ended, 0.0)
        busy = max(facts.stage, SPAN)
        if since > busy:
            # What came after a pause came at its end.
            self._flow(since - busy, {})
            self._close(facts.ended - busy)
            since = busy
        self._flow(
            since,
            {
                Quantity.RECEIVED: facts.items,
                Quantity.RECEIVED_BYTES: facts.received,
                Quantity.SENT_BYTES: facts.sent,
                Quantity.CPU: facts.cpu,
            },
        )
        if facts.items and not self.is_new:
            # A replay goes through batches by stages, too.
            seconds, items = self._open.get(Quantity.PROCESSED, (0.0, 0.0))
            self._open[Quantity.PROCESSED] = (seconds + facts.stage, items + facts.items)
        self._ended = facts.ended
        self._items += facts.items
        if self._open[Quantity.RECEIVED][0] >= SPAN:
            self._close(facts.ended)
        overhead = max(facts.stage - facts.work, 0.0)
        if self.is_new:
            self._first_stage = max(overhead, self._first_stage or 0.0)
        else:
            self._stages.append((facts.stage, overhead))
        self.is_new = False

    def captured(self, capture: Capture) -> None:
        """A batch has made a checkpoint, which is not safe yet."""
        self._captures.append((capture, self._items))

    @property
    def waiting(self) -> float | None:
        """Items that came since the last checkpoint that is safe; None if there was none yet."""
        return None if self._safe_items is None else self._items - self._safe_items

    def covered(self, batch: Batch, at: float) -> None:
        """A recovery can count on all checkpoints up to that of ``batch``, since ``at``."""
        safe = [one for one, _ in self._captures if one.batch <= batch]
        if not safe:
            return
        self._safe_items = self._captures[len(safe) - 1][1]
        self._captures = self._captures[len(safe) :]
        newest, written = safe[-1], sum(one.written for one in safe)
        self.add(Quantity.CHECKPOINT_SIZE, at=newest.at, amount=newest.size)
        self.add(Quantity.CHECKPOINT_SAFE, at=at, seconds=max(at - newest.at, 0.0), amount=written)
        self.add(Quantity.CHECKPOINT_CPU, at=at, seconds=sum(one.cpu for one in safe))

    def add(self, what: Quantity, *, at: float, seconds: float = 0.0, amount: float = 0.0) -> None:
        self.history = self.history.add(what, at=at, seconds=seconds, amount=amount)

    def at(self, now: float) -> UnitHistory:
        """The history up to ``now``: if nothing has come since the last batch, that is part of it."""
        found = self.history
        idle = 0.0 if self._ended is None else max(now - self._ended, 0.0)
        for what in (*_FLOWS, Quantity.PROCESSED):
            seconds, amount = self._open.get(what, (0.0, 0.0))
            lasted = seconds if what is Quantity.PROCESSED else seconds + idle
            if lasted >= _SHORTEST or (lasted > 0 and not found.of(what)):
                found = found.add(what, at=now, seconds=lasted, amount=amount)
        return found

    def expected(self, *, record_seconds: float, grace_seconds: float) -> Mapping[Quantity, float]:
        """Seconds of steps that no recovery has measured, if a record takes so many seconds and a host is waited for so
        long; nothing before a batch.

        Each stage wires its workers anew; the one that does so in a recovery gives the worker its batch, too. A
        promotion is a stage, after an entry in the ledger and the end of the record under way. A new replica needs what
        the first stage needed.
        """
        if self._first_stage is None:
            return {}
        stages = list(self._stages) or [(self._first_stage, self._first_stage)]
        wiring, longest = max(overhead for _, overhead in stages), max(seconds for seconds, _ in stages)
        return {
            Quantity.WAIT: grace_seconds,
            Quantity.WIRE_SEND: wiring,
            Quantity.WIRE_RECEIVE: longest,
            Quantity.PROMOTION: longest + 2 * record_seconds,
            Quantity.DEPLOY: max(self._first_stage, wiring),
        }

    def known(self, now: float) -> Callable[[], dict[str, Any]]:
        """What makes all of it JSON, as it is now: that may happen later, while more is measured."""
        history, stages, first = self.at(now), list(self._stages), self._first_stage
        return lambda: {"history": history.to_json(), "stages": stages, "first_stage": first}

    def take_up(self, found: Mapping[str, Any]) -> None:
        """Goes on with what a driver before has known; KeyError, TypeError or ValueError for anything else."""
        history = self.history.merged(UnitHistory.from_json(found["history"]))
        stages = [(float(seconds), float(overhead)) for seconds, overhead in found["stages"]]
        first = None if found["first_stage"] is None else float(found["first_stage"])
        self.history, self._first_stage = history, first
        self._stages = deque(stages, maxlen=_STAGES)

    def _flow(self, seconds: float, amounts: Mapping[Quantity, float]) -> None:
        for what in _FLOWS:
            before, amount = self._open.get(what, (0.0, 0.0))
            self._open[what] = (before + seconds, amount + amounts.get(what, 0.0))

    def _close(self, at: float) -> None:
        """Makes measurements of what has flowed up to now."""
        for what, (seconds, amount) in self._open.items():
            if seconds > 0:
                self.add(what, at=at, seconds=seconds, amount=amount)
        self._open = {}
