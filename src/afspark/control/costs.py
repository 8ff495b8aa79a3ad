"""What a protection takes beyond the bare primary, in units of what the primary takes itself.

Section III-E of StreamMine3G's adaptive fault tolerance: normalised by measurements of the primary, then weighted. A
secondary that processes takes the primary's CPU, one that receives its incoming traffic, one that holds state its
memory. One that sends is charged with the primary's outgoing traffic, as there; here its output is at hand, and
crosses the network if the primary fails. Checkpoints take CPU where they are made and where they are loaded, and
network wherever they go.

The primary stores a checkpoint now and then under any scheme, and what it has at hand of a batch is in memory beside
its state. Both belong to what it takes itself: so an idle primary does not make everything else infinitely dear, and
active replication takes exactly as much again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from afspark.control.history import UnitHistory
from afspark.control.quantities import Quantity
from afspark.control.schemes import SWITCHES, Protection
from afspark.policies import Costs

RARELY = 64.0
"""Seconds between checkpoints to the store where recovery does not need them, unless both copies die."""

_BATCH = 1.0
"""Seconds of input that a replica has at hand while it processes."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Parts of what the primary takes of each: 1 is as much again. A host is the place of one replica."""

    cpu: float = 0.0
    memory: float = 0.0
    network: float = 0.0
    hosts: float = 0.0

    def weighted(self, costs: Costs) -> float:
        """All of it by what a user says that it costs.

        >>> Resources(cpu=1.0, network=0.5, hosts=1.0).weighted(Costs(cpu=2, network=4, hosts=0))
        4.0
        """
        return math.fsum(
            [
                self.cpu * costs.cpu,
                self.memory * costs.memory,
                self.network * costs.network,
                self.hosts * costs.hosts,
            ]
        )

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def resources(protection: Protection, history: UnitHistory, *, now: float, interval: float | None) -> Resources:
    """What ``protection`` takes, with a checkpoint every ``interval`` seconds; None: as often as there were any."""
    on, primary = SWITCHES[protection], _Primary(history, now)
    often, rarely = primary.checkpoints(interval), primary.checkpoints(RARELY)
    stored, shipped = (often if on.storing else rarely), (often if on.shipping else 0.0)
    queue = primary.received * (_BATCH if on.processing else interval or 0.0) if on.receiving else 0.0
    cpu = _share(
        on.processing * primary.cpu + primary.checkpoint_cpu * (stored + 2 * shipped),
        primary.cpu + primary.checkpoint_cpu * rarely,
    )
    return Resources(
        # Whatever processing takes, a second copy does as much of it.
        cpu=cpu or float(on.processing),
        memory=_share(
            on.holds_state * primary.state + on.deployed * primary.static + queue,
            primary.state + primary.static + _BATCH * primary.received,
        ),
        network=_share(
            on.receiving * primary.received + on.sending * primary.sent + primary.checkpoint * (stored + shipped),
            primary.received + primary.sent + primary.checkpoint * rarely,
        ),
        hosts=float(on.deployed),
    )


class _Primary:
    """What the primary takes at present; 0 where nothing was measured."""

    def __init__(self, history: UnitHistory, now: float) -> None:
        writes = history.of(Quantity.CHECKPOINT_WRITE)
        self.cpu = history.rate(Quantity.CPU, now) or 0.0
        self.received = history.rate(Quantity.RECEIVED_BYTES, now) or 0.0
        self.sent = history.rate(Quantity.SENT_BYTES, now) or 0.0
        self.state = _newest_amount(history, Quantity.CHECKPOINT_SIZE)
        self.static = _newest_amount(history, Quantity.STATIC_SIZE)
        #: of a checkpoint: bytes, seconds of CPU, seconds since the one before
        self.checkpoint = _mean(one.amount for one in writes)
        self.checkpoint_cpu = _mean(one.seconds for one in history.of(Quantity.CHECKPOINT_CPU))
        self._apart = (writes[-1].at - writes[0].at) / (len(writes) - 1) if len(writes) > 1 else 0.0

    def checkpoints(self, interval: float | None) -> float:
        """How many checkpoints a second, of the size that they have now, checkpoints so far apart amount to at most;
        which is never more for a longer interval.

        A checkpoint holds what has changed since the one before. If the interval were longer than it was, as much would
        change in a second, or less, and no more than all of the state in a checkpoint; if it were shorter, a checkpoint
        would hold as much, or less.
        """
        present = self._apart or interval or RARELY
        planned = interval or present
        largest = max(self.state / self.checkpoint, 1.0) if self.checkpoint else math.inf
        return min(largest / planned, 1 / min(planned, present))


def _mean(found: Iterable[float]) -> float:
    values = list(found)
    return math.fsum(values) / len(values) if values else 0.0


def _newest_amount(history: UnitHistory, what: Quantity) -> float:
    newest = history.newest(what)
    return newest.amount if newest is not None else 0.0


def _share(taken: float, of: float) -> float:
    """In units of what the primary takes; nothing where nothing was measured."""
    return taken / of if of > 0 else 0.0
