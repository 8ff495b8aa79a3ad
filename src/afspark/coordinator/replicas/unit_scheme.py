"""What protects a worker now, and the way from one scheme to another while the query runs. Pure.

A transition is carried out action by action (`control/transitions.py`), at the ends of batches: the next one begins
when there is evidence that the one before is complete. If anything comes between (the secondary is lost, its primary
is, or the user changes their mind), the rest of the way leads from what there is: all that the new scheme needs is
switched on, and nothing goes before that stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from afspark.control import SWITCHES, InForce, Protection, Scheme, SchemeAction, Switches, actions
from afspark.control.schemes import protection
from afspark.coordinator.replicas.secondary import Secondary
from afspark.numbers import Batch
from afspark.policies import Adaptive, Tolerance


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of a worker's secondary at the end of ``batch``, up to which records ``covered`` everything."""

    batch: Batch
    covered: Batch
    secondary: Secondary | None = None


@dataclass(frozen=True, kw_only=True)
class UnitScheme:
    """The scheme of one worker: ``wanted``, and what is switched on. ``ahead``: the actions that are still to be
    completed, the first of which is under way since the end of batch ``begun``.
    """

    wanted: Tolerance
    switches: Switches = SWITCHES[Scheme.PASSIVE_REPLICATION]
    ahead: tuple[SchemeAction, ...] = ()
    begun: Batch = Batch(-1)  # noqa: RUF009 (a number)
    #: how many checkpoints the secondary had got when the action began
    had: int = 0
    #: seconds since 1970
    since: float = 0.0

    @classmethod
    def new(cls, tolerance: Tolerance, now: float) -> UnitScheme:
        """That of a worker without secondary, which is to have one if its tolerance says so."""
        wanted = tolerance.first if isinstance(tolerance, Adaptive) else tolerance
        return cls(wanted=wanted, since=now).set_up()

    @property
    def protection(self) -> Protection:
        """What is wanted."""
        return protection(self.wanted.name)

    @property
    def is_complete(self) -> bool:
        """Whether what is wanted is in force."""
        return not self.ahead

    @property
    def wants_barrier(self) -> bool:
        """Whether the action under way is complete at a barrier, and not before."""
        return bool(self.ahead) and self.ahead[0] in (SchemeAction.SHIP_CHECKPOINTS, SchemeAction.STORE_CHECKPOINTS)

    def wanting(self, tolerance: Tolerance, now: float, seen: Evidence) -> UnitScheme:
        """On the way to another scheme, or with other checkpoints."""
        if tolerance == self.wanted:
            return self
        before, unit = self.protection, replace(self, wanted=tolerance, since=now)
        if not self.is_complete:
            return unit.set_up(seen.batch)
        return replace(unit, ahead=actions(before, unit.protection))._begin(seen)

    def set_up(self, batch: Batch = Batch(-1)) -> UnitScheme:  # noqa: B008 (a number)
        """On the way to what is wanted, from whatever is there: nothing of it goes before the rest stands."""
        goal = SWITCHES[self.protection]
        kept = self.switches
        # Where checkpoints were rare there has to be one before the secondary goes: it has what is not stored.
        stored = kept.storing and SchemeAction.STORE_CHECKPOINTS not in self.ahead
        first = () if stored or not goal.storing else (SchemeAction.STORE_CHECKPOINTS,)
        return replace(
            self,
            switches=Switches(
                deployed=kept.deployed or goal.deployed,
                receiving=(kept.receiving and kept.deployed) or goal.receiving,
                holds_state=kept.holds_state or goal.holds_state,
                # One that processes has what a checkpoint would bring it.
                processing=goal.processing or (kept.processing and not goal.shipping),
                sending=goal.sending,
                shipping=goal.shipping or (kept.shipping and not goal.processing),
                storing=True,
            ),
            ahead=(*first, *(one for one in actions(Scheme.PASSIVE_REPLICATION, self.protection) if one.on)),
            begun=batch,
            had=0,
        )

    def advanced(self, seen: Evidence) -> UnitScheme:
        """After all actions that are complete by what was ``seen``; the next one begins."""
        unit = self
        while unit.ahead and unit._has_ended(seen):
            unit = replace(unit, ahead=unit.ahead[1:])._begin(seen)
        return unit if unit.ahead else replace(unit, switches=SWITCHES[unit.protection])

    def _begin(self, seen: Evidence) -> UnitScheme:
        if not self.ahead:
            return self
        had = 0 if seen.secondary is None else seen.secondary.checkpoints
        return replace(self, switches=self.ahead[0].applied(self.switches), begun=seen.batch, had=had)

    def _has_ended(self, seen: Evidence) -> bool:
        one = seen.secondary
        match self.ahead[0]:
            case SchemeAction.DEPLOY:
                return one is not None and one.deployed
            case SchemeAction.LOAD_STATE:
                return one is not None and one.is_built
            case SchemeAction.START_PROCESSING:
                # By when it has what there was when it began, there is more: how far it is behind is up to its speed.
                return one is not None and one.is_built and one.version >= max(self.begun, seen.covered)
            case SchemeAction.SHIP_CHECKPOINTS:
                return one is not None and one.checkpoints > self.had
            case SchemeAction.STORE_CHECKPOINTS:
                return seen.covered >= self.begun
            case _:
                return True

    def in_force(self, seen: Evidence) -> InForce:
        """What would recover the worker if it were lost now."""
        return InForce(protection=self._standing(seen), interval=self._interval, since=self.since)

    def _standing(self, seen: Evidence) -> Protection:
        if self.is_complete:
            return self.protection
        one = seen.secondary
        built = one is not None and one.is_built
        actual = replace(
            self.switches,
            deployed=one is not None and one.deployed,
            holds_state=built,
            receiving=self.switches.receiving and built,
            processing=self.switches.processing and built and one is not None and one.version >= seen.batch,
            shipping=self.switches.shipping and built,
        )
        return actual.protects_as or Scheme.PASSIVE_REPLICATION

    @property
    def _interval(self) -> float | None:
        barriers = self.wanted.rarely if self.is_complete else self.wanted
        return barriers.barrier_seconds or None
