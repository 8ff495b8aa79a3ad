"""The six schemes as settings of a few switches, and the steps that each needs after a failure.

StreamMine3G's adaptive fault tolerance, section III: figure 2 and table 1. A unit is a worker with a primary and at
most one secondary, on another host. Members of `Scheme` come in the order in which they recover, the fastest first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from afspark.policies import (
    ActiveReplication,
    ActiveStandby,
    Adaptive,
    Approximate,
    BarrierSnapshot,
    ColdStandby,
    Deployed,
    HotStandby,
    PassiveReplication,
    Tolerance,
)


class Scheme(StrEnum):
    """A scheme with a secondary, or with a place for one; by the name of its tolerance."""

    ACTIVE_REPLICATION = ActiveReplication.name
    ACTIVE_STANDBY = ActiveStandby.name
    HOT_STANDBY = HotStandby.name
    COLD_STANDBY = ColdStandby.name
    DEPLOYED = Deployed.name
    PASSIVE_REPLICATION = PassiveReplication.name


class Unreplicated(StrEnum):
    """A tolerance beyond the paper that the controller may choose: what it needs after a failure is in the store."""

    BARRIER_SNAPSHOT = BarrierSnapshot.name
    APPROXIMATE = Approximate.name


Protection = Scheme | Unreplicated


def protection(name: str) -> Protection:
    """The protection that a tolerance of that name gives; ValueError for any other name."""
    return Unreplicated(name) if name in list(Unreplicated) else Scheme(name)


def protection_under(tolerance: Tolerance) -> Protection:
    """The protection that recovers as a worker under ``tolerance`` does.

    Where every batch is backed up, that is a snapshot with nothing to replay; where nothing is, there is nothing to
    read.

    >>> from afspark.policies import MiniBatch
    >>> protection_under(ActiveStandby()), protection_under(MiniBatch())
    (<Scheme.ACTIVE_STANDBY: 'active-standby'>, <Unreplicated.BARRIER_SNAPSHOT: 'snapshot'>)
    """
    if isinstance(tolerance, Adaptive):
        tolerance = tolerance.first
    if tolerance.name in {*Scheme, *Unreplicated}:
        return protection(tolerance.name)
    return Unreplicated.BARRIER_SNAPSHOT if tolerance.exact else Unreplicated.APPROXIMATE


@dataclass(frozen=True, kw_only=True)
class Switches:
    """What is switched on for a unit. Of the secondary: ``deployed`` (its code is loaded, its static data built),
    ``receiving`` (upstream sends to it), ``holds_state``, ``processing`` (otherwise it sleeps, and items queue up),
    ``sending``. Of the primary's checkpoints, at the interval of the scheme: ``shipping`` (into the secondary's memory)
    and ``storing`` (into the store; where that is off one is stored rarely, so that both copies may die).
    """

    deployed: bool = False
    receiving: bool = False
    holds_state: bool = False
    processing: bool = False
    sending: bool = False
    shipping: bool = False
    storing: bool = False

    @property
    def is_legal(self) -> bool:
        """Whether a unit may be in this state, if only on its way to another."""
        return (
            (self.deployed or not (self.receiving or self.holds_state))
            and (not self.processing or (self.receiving and self.holds_state))
            and (not self.sending or self.processing)
            # Deltas build on a state; and one that processes has applied what a checkpoint would bring it.
            and (not self.shipping or (self.holds_state and not self.processing))
        )

    @property
    def protects_as(self) -> Scheme | None:
        """The fastest scheme whose recovery would succeed now; None: state would be lost."""
        if self.processing:
            return Scheme.ACTIVE_REPLICATION if self.sending else Scheme.ACTIVE_STANDBY
        # Even if no checkpoint comes any more, the queue has all that came since the last one.
        if self.holds_state and self.receiving:
            return Scheme.HOT_STANDBY
        if self.holds_state and self.shipping:
            return Scheme.COLD_STANDBY
        if not self.storing:
            return None
        return Scheme.DEPLOYED if self.deployed else Scheme.PASSIVE_REPLICATION


_ABSENT = Switches(storing=True)

SWITCHES: Mapping[Protection, Switches] = {
    Scheme.ACTIVE_REPLICATION: Switches(deployed=True, receiving=True, holds_state=True, processing=True, sending=True),
    Scheme.ACTIVE_STANDBY: Switches(deployed=True, receiving=True, holds_state=True, processing=True),
    Scheme.HOT_STANDBY: Switches(deployed=True, receiving=True, holds_state=True, shipping=True),
    Scheme.COLD_STANDBY: Switches(deployed=True, holds_state=True, shipping=True),
    Scheme.DEPLOYED: Switches(deployed=True, storing=True),
    Scheme.PASSIVE_REPLICATION: _ABSENT,
    Unreplicated.BARRIER_SNAPSHOT: _ABSENT,
    Unreplicated.APPROXIMATE: _ABSENT,
}


class RecoveryStep(StrEnum):
    """A part of the time from a failure to the next batch that the unit has applied."""

    DETECTION = "detection"  # the driver finds out
    WAIT = "wait"  # a host may come back with its state: it is given time, unless a scheme says what recovers it
    PROMOTION = "promotion"  # the secondary, which has state, becomes the primary
    DEPLOY = "deploy"  # a replica is loaded, and its static data built
    READ = "read"  # the last checkpoint comes from the store
    WIRE_SEND = "wire_send"  # downstream takes what the new primary sends
    WIRE_RECEIVE = "wire_receive"  # upstream sends to the new primary
    REPLAY = "replay"  # what came since the last checkpoint is processed again; not with gap recovery


_REWIRE = (RecoveryStep.WIRE_SEND, RecoveryStep.WIRE_RECEIVE, RecoveryStep.REPLAY)

STEPS: Mapping[Protection, tuple[RecoveryStep, ...]] = {
    Scheme.ACTIVE_REPLICATION: (),
    Scheme.ACTIVE_STANDBY: (RecoveryStep.DETECTION, RecoveryStep.PROMOTION),
    Scheme.HOT_STANDBY: (
        RecoveryStep.DETECTION,
        RecoveryStep.PROMOTION,
        RecoveryStep.WIRE_SEND,
        RecoveryStep.REPLAY,
    ),
    Scheme.COLD_STANDBY: (RecoveryStep.DETECTION, RecoveryStep.PROMOTION, *_REWIRE),
    Scheme.DEPLOYED: (RecoveryStep.DETECTION, RecoveryStep.READ, *_REWIRE),
    Scheme.PASSIVE_REPLICATION: (
        RecoveryStep.DETECTION,
        RecoveryStep.DEPLOY,
        RecoveryStep.READ,
        *_REWIRE,
    ),
    # Where its host is waited for, executors are up, and a worker that is restored on one of them is a task like any
    # other, in a stage that brings it its items.
    Unreplicated.BARRIER_SNAPSHOT: (
        RecoveryStep.DETECTION,
        RecoveryStep.WAIT,
        RecoveryStep.READ,
        RecoveryStep.WIRE_RECEIVE,
        RecoveryStep.REPLAY,
    ),
    Unreplicated.APPROXIMATE: (
        RecoveryStep.DETECTION,
        RecoveryStep.WAIT,
        RecoveryStep.READ,
        RecoveryStep.WIRE_RECEIVE,
    ),
}
"""In the order in which they are taken; both kinds of wiring at once."""


def steps_of(protection: Protection, *, elsewhere: bool) -> tuple[RecoveryStep, ...]:
    """The steps of a recovery. ``elsewhere``: a lost worker is restored on another host at once, so that its own is not
    waited for, and the other one has to be made ready.

    >>> RecoveryStep.DEPLOY in steps_of(Unreplicated.BARRIER_SNAPSHOT, elsewhere=True)
    True
    """
    steps = STEPS[protection]
    return tuple(RecoveryStep.DEPLOY if one is RecoveryStep.WAIT else one for one in steps) if elsewhere else steps
