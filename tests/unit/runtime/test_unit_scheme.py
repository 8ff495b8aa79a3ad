"""The way of one worker from scheme to scheme, whatever comes between."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from afspark.control import SWITCHES, SchemeAction
from afspark.coordinator.replicas.secondary import Secondary
from afspark.coordinator.replicas.unit_scheme import Evidence, UnitScheme
from afspark.numbers import Batch, Incarnation
from afspark.policies import BarrierSnapshot
from afspark.policies.replication import SCHEMES, ActiveStandby, Deployed, HotStandby, PassiveReplication
from afspark.protocol.lifecycle import Hint

PROTECTIONS = (*SCHEMES, BarrierSnapshot)


class FollowedUnit:
    """A unit with a secondary that is prepared as its switches say, batch after batch."""

    def __init__(self, tolerance: Any) -> None:
        self.batch, self.covered = Batch(0), Batch(0)
        self.secondary: Secondary | None = None
        self.unit = UnitScheme.new(tolerance, 0.0)

    @property
    def seen(self) -> Evidence:
        return Evidence(batch=self.batch, covered=self.covered, secondary=self.secondary)

    def go(self, batches: int, *, stores: bool = True) -> None:
        """Batches at whose ends all is prepared; ``stores``: and a record is durable."""
        for _ in range(batches):
            self.batch = Batch(self.batch + 1)
            self._prepare()
            if stores:
                self.covered = self.batch
            self.advance()

    def advance(self) -> None:
        self.unit = self.unit.advanced(self.seen)
        assert self.unit.switches.is_legal

    def want(self, tolerance: Any) -> None:
        self.unit = self.unit.wanting(tolerance, 0.0, self.seen)

    def lose(self) -> None:
        """The secondary is lost, or has taken the place of its primary."""
        self.secondary = None
        self.unit = self.unit.set_up(self.batch)

    def _prepare(self) -> None:
        switches, one = self.unit.switches, self.secondary
        if not switches.deployed:
            self.secondary = None
            return
        one = one or Secondary(worker=0, home="b", incarnation=Incarnation(0))
        one = replace(one, deployed=True, holds_state=switches.holds_state)
        if switches.holds_state:
            version = self.batch if switches.processing or one.hint is not Hint.RESUME else one.version
            one = replace(one, hint=Hint.RESUME, version=version)
            one = one.given_checkpoint(self.batch) if switches.shipping else one
        self.secondary = one


@pytest.mark.parametrize("seed", range(20))
def test_any_way_leads_to_what_was_wanted_last(seed: int) -> None:
    rng = random.Random(seed)
    followed = FollowedUnit(rng.choice(PROTECTIONS)())
    for _ in range(60):
        match rng.randrange(4):
            case 0:
                followed.want(rng.choice(PROTECTIONS)())
            case 1 if followed.secondary is not None:
                followed.lose()
            case _:
                followed.go(1, stores=rng.random() < 0.5)
        followed.advance()
    followed.go(10)
    unit = followed.unit
    assert unit.is_complete and unit.switches == SWITCHES[unit.protection]


@pytest.mark.parametrize("after", [PassiveReplication(), Deployed(), BarrierSnapshot()], ids=lambda one: one.name)
@pytest.mark.parametrize("interrupted", ["another wish", "a loss", "both"])
def test_no_secondary_goes_before_a_checkpoint_is_stored(after: Any, interrupted: str) -> None:
    """Its state is newer than what is stored, which may be rare: also if the way there was another one at first."""
    followed = FollowedUnit(ActiveStandby())
    followed.go(5)
    followed.go(3, stores=False)
    assert followed.unit.is_complete and not followed.unit.switches.storing
    if interrupted != "a loss":
        followed.want(HotStandby())
    followed.want(after)
    if interrupted != "another wish":
        followed.lose()
    begun = followed.batch
    followed.go(5, stores=False)
    assert followed.unit.ahead[0] is SchemeAction.STORE_CHECKPOINTS and followed.unit.wants_barrier
    assert followed.unit.switches.holds_state
    followed.covered = begun
    followed.go(2, stores=False)
    assert followed.unit.is_complete and not followed.unit.switches.holds_state


def test_a_worker_that_starts_waits_for_no_checkpoint() -> None:
    assert UnitScheme.new(PassiveReplication(), 0.0).is_complete
