"""The secondaries of one operator: the scheme of each worker, where its secondary lives, and whether that can take its
place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from afspark.control import InForce, Scheme
from afspark.coordinator.placement import spread
from afspark.coordinator.replicas.secondary import Secondary
from afspark.coordinator.replicas.unit_scheme import Evidence, UnitScheme
from afspark.coordinator.worker_state import Covered, WorkerState
from afspark.errors import UsageError
from afspark.graph.node import Node
from afspark.numbers import Batch, Incarnation
from afspark.policies import Adaptive, Approximate, Tolerance
from afspark.policies.barriers import BarrierTolerance
from afspark.protocol.shipments import Shipping
from afspark.resident import Survivor
from afspark.resident.side_files import Delta, leading_from

LOG = logging.getLogger("afspark")

#: Of how many checkpoints of a worker the driver remembers that they can be shipped.
_DELTAS = 16

#: How long a secondary is kept whose host does not answer: it may wake up, and has little to catch up with.
KEPT_SILENT_SECONDS = 5.0


class SecondaryGroup:
    """The secondaries of one operator, at most one of each worker; none unless a worker's scheme has one."""

    def __init__(self, operator: str, tolerance: Tolerance, workers: int, now: float) -> None:
        self.operator, self.tolerance = operator, tolerance
        #: without barriers there are no checkpoints to begin with
        self.can_have_some = isinstance(tolerance, BarrierTolerance | Adaptive)
        self.units: dict[int, UnitScheme] = (
            {worker: UnitScheme.new(tolerance, now) for worker in range(workers)} if self.can_have_some else {}
        )
        self._members: dict[int, Secondary] = {}
        #: the checkpoints that lie beside the present primaries
        self._deltas: dict[int, list[Delta]] = {}
        #: secondaries whose state has to be removed
        self._unusable: list[Secondary] = []
        #: workers whose secondaries are kept although their hosts do not answer, and since when
        self._silent: dict[int, float] = {}
        #: where the last secondary of a worker could not be built
        self._refused: dict[int, str] = {}
        #: where workers have left states, and the incarnation before which those are nobody's
        self._left: dict[tuple[int, str], Incarnation] = {}

    # --- schemes --------------------------------------------------------------------------------------------

    @property
    def has_some(self) -> bool:
        """Whether any worker has a secondary, is to have one, or is to have one no more."""
        wanted = any(unit.switches.deployed or unit.ahead for unit in self.units.values())
        return wanted or bool(self._members) or bool(self._unusable)

    @property
    def could_replace(self) -> bool:
        """Whether any worker has a secondary, or is to have one; a controller may give it one at any time."""
        return any(one.has_secondaries for one in self._wanted) or bool(self._members)

    @property
    def restores_elsewhere(self) -> bool:
        """Whether the hosts of lost workers are not waited for, of some of them at least."""
        return any(one.recovers_elsewhere for one in (self.tolerance, *self._wanted))

    @property
    def _wanted(self) -> list[Tolerance]:
        chosen = isinstance(self.tolerance, Adaptive) or not self.units
        return [self.tolerance] if chosen else [unit.wanted for unit in self.units.values()]

    @property
    def barriers(self) -> list[Tolerance]:
        """What says how often there are checkpoints."""
        found = [
            unit.wanted.rarely if unit.is_complete and worker not in self._silent else unit.wanted
            for worker, unit in self.units.items()
        ]
        return found or [self.tolerance]

    @property
    def wants_barrier(self) -> bool:
        """Whether a transition waits for a barrier."""
        return any(unit.wants_barrier for unit in self.units.values())

    def want(self, worker: int, tolerance: Tolerance, seen: Evidence, now: float) -> None:
        """From now on ``worker`` is to be protected by ``tolerance``; the way there begins."""
        seen = replace(seen, secondary=self._members.get(worker))
        self.units[worker] = self.units[worker].wanting(tolerance, now, seen)

    def start_with(self, worker: int, tolerance: Tolerance, now: float) -> None:
        """Has a worker protected by ``tolerance`` from the start, whatever the program says."""
        self.units[worker] = UnitScheme.new(tolerance, now)

    def approximation(self, worker: int) -> Approximate | None:
        """The approximate tolerance that was chosen for a worker; None if another protection was."""
        wanted = self.units[worker].wanted if worker in self.units else None
        return wanted if isinstance(wanted, Approximate) else None

    def in_force(self, seen: Evidence) -> dict[int, InForce]:
        """What protects each worker at this moment."""
        return {
            # One whose host does not answer protects nobody.
            worker: unit.set_up(seen.batch).in_force(seen)
            if worker in self._silent
            else unit.in_force(replace(seen, secondary=self._members.get(worker)))
            for worker, unit in self.units.items()
        }

    def advance(self, seen: Evidence) -> bool:
        """Ends actions that are complete and begins those that follow; whether anything has changed."""
        before = dict(self.units)
        for worker, unit in before.items():
            self.units[worker] = unit.advanced(replace(seen, secondary=self._members.get(worker)))
        return self.units != before

    # --- secondaries ----------------------------------------------------------------------------------------

    @property
    def members(self) -> list[Secondary]:
        """The secondaries, by the numbers of their workers."""
        return [self._members[worker] for worker in sorted(self._members)]

    def those(self, wanted: Callable[[UnitScheme, Secondary], bool]) -> list[Secondary]:
        """The secondaries of which something is ``wanted``, and whose hosts answer."""
        answering = [one for one in self.members if one.worker not in self._silent]
        return [one for one in answering if wanted(self.units[one.worker], one)]

    def adopt(self, survivors: Iterable[Survivor], batch: Batch) -> None:
        """Takes up what a starting driver has found that begins with ``batch``, and can say what it did since then.

        Others are removed: the schemes of their workers may have no secondaries any more. So are those that are further
        than their primaries: these may be given something else in the batch that they have yet to apply.
        """
        survivors = list(survivors)
        copies = [one for one in survivors if one.secondary]
        reached = {(one.worker, one.incarnation): one.version for one in survivors if not one.secondary}
        found = [
            Secondary.found(one)
            for one in copies
            if batch - 1 <= one.version <= reached.get((one.worker, one.incarnation), one.version)
            and (one.version < batch or one.kept_from < batch)
        ]
        # Of two that follow the same worker the newer one is nearer to its primary.
        self._members = {
            one.worker: one
            for one in sorted(found, key=lambda one: (one.incarnation, one.version))
            if one.worker in self.units and self.units[one.worker].switches.holds_state
        }
        taken = {(one.worker, one.home) for one in self.members}
        for one in copies:
            if (one.worker, one.host) in taken:
                continue
            if one.worker in self.units:
                self._unusable.append(Secondary.found(one))
            else:
                # There will be no other in its place.
                self.leave(one.worker, one.host, Incarnation(one.incarnation + 1))

    def shipping(self, member: WorkerState) -> Shipping | None:
        """What the primary of a worker is told whose checkpoints go to its secondary; None if they do not."""
        unit, one = self.units.get(member.worker), self._members.get(member.worker)
        if unit is None or not unit.switches.shipping or member.checkpointed is None:
            return None
        reached = one.version if one is not None and one.incarnation == member.incarnation else -1
        return Shipping(since=member.checkpointed, reached=reached)

    def has_shipped(self, worker: int, delta: Delta) -> None:
        """Notes a checkpoint that lies beside a primary."""
        self._deltas[worker] = [*self._deltas.get(worker, []), delta][-_DELTAS:]

    def has_more(self, one: Secondary) -> bool:
        """Whether checkpoints wait that a secondary lacks."""
        return bool(leading_from(self._deltas.get(one.worker, []), one.version))

    def reach(self, one: Secondary) -> int:
        """The version of one of them when it has got all checkpoints that wait."""
        waiting = leading_from(self._deltas.get(one.worker, []), one.version)
        return waiting[-1].until if waiting else one.version

    def completed(self, one: Secondary, covered: Covered) -> Secondary:
        """One of them as the backups of a durable record make it: it may have been slower than the record."""
        if not one.is_built or one.damaged:
            return one
        plan = covered.completion(self.operator, one.worker, one.version)
        return one if plan is None else one.to_complete(plan)

    def replacement(
        self, member: WorkerState, covered: Covered, batch: Batch, alive: Iterable[str]
    ) -> Secondary | None:
        """The one that takes the place of a lost ``member`` in ``batch``; from then on it is no secondary."""
        one = self._members.pop(member.worker, None)
        self._deltas.pop(member.worker, None)
        self._restart(member.worker, batch)
        if one is None:
            return None
        if one.home not in alive or not (one := self.completed(one, covered)).can_replace(member, covered.batch):
            self.leave(one.worker, one.home, Incarnation(member.incarnation + 1))
            return None
        # It may have applied the batch, which the driver has still to see done.
        return replace(one, version=min(one.version, batch - 1))

    def reached(self, worker: int) -> int | None:
        """The batch up to which a secondary has come that processes everything; None if there is no such."""
        unit, one = self.units.get(worker), self._members.get(worker)
        if unit is None or one is None or worker in self._silent:
            return None
        return one.version if one.is_built and unit.switches.processing else None

    def prepared_home(self, member: WorkerState, alive: Iterable[str]) -> str | None:
        """Where a lost ``member`` is restored that has no copy: where its code is loaded; None if that is nowhere."""
        one = self._members.get(member.worker)
        return None if one is None or not one.deployed or one.home not in alive else one.home

    def moves(self, worker: int) -> bool:
        """Whether a lost worker begins anew on another host, if there is one."""
        return worker in self.units and self.units[worker].protection is Scheme.PASSIVE_REPLICATION

    def recovers_elsewhere(self, worker: int) -> bool:
        """Whether the host of a lost worker is not waited for, because its scheme says what recovers it."""
        unit = self.units.get(worker)
        return unit is not None and (unit.wanted.recovers_elsewhere or self.tolerance.recovers_elsewhere)

    def can_replace(self, member: WorkerState, covered: Covered, alive: Iterable[str]) -> bool:
        """Whether there is one that can take the place of a worker whose host is away."""
        one = self._members.get(member.worker)
        return one is not None and one.home in alive and self.completed(one, covered).can_replace(member, covered.batch)

    def keep_silent(
        self, members: Sequence[WorkerState], covered: Covered, silent: Collection[str], now: float
    ) -> None:
        """Notes which secondaries live on ``silent`` hosts and are kept for a while: those that could catch up."""
        kept = {}
        for member in members:
            one, since = self._members.get(member.worker), self._silent.get(member.worker, now)
            is_away = one is not None and one.is_built and one.home in silent and now - since < KEPT_SILENT_SECONDS
            if one is not None and is_away and self._is_of_use(one, member, covered):
                kept[member.worker] = since
        self._silent = kept

    def house(self, members: Sequence[WorkerState], covered: Covered, slots: Mapping[str, int]) -> list[Secondary]:
        """Gives every worker the secondary that its scheme has, on another host than its primary's; those whose places
        have to be cleared and can be: hosts that are away wait until they are back.

        A state that follows an incarnation before, or lacks what nobody can replay any more, is built anew.
        """
        for member in members:
            if (unit := self.units.get(member.worker)) is not None and member.worker not in self._silent:
                self._house(member, unit, covered, slots, [other.home for other in members])
        waiting = [one for one in self._unusable if not self._is_built_again(one)]
        self._unusable = [one for one in waiting if one.home not in slots]
        return [one for one in waiting if one.home in slots]

    def to_clear(self, one: Secondary) -> None:
        """Notes that the place of one of them could not be cleared."""
        self._unusable.append(one)

    def _is_built_again(self, one: Secondary) -> bool:
        """Whether another one of the same incarnation has taken its place, which was cleared before."""
        known = self._members.get(one.worker)
        return known is not None and known.is_built and (known.home, known.incarnation) == (one.home, one.incarnation)

    def _house(
        self, member: WorkerState, unit: UnitScheme, covered: Covered, slots: Mapping[str, int], taken: Sequence[str]
    ) -> None:
        one = self._members.get(member.worker)
        if one is not None and (not unit.switches.deployed or one.home not in slots or one.home == member.home):
            if unit.switches.deployed and one.home not in slots:
                LOG.warning(
                    "The secondary of worker %d of %s is given up, because %s is away.",
                    one.worker,
                    self.operator,
                    one.home,
                )
            self._give_up(one, moved=unit.switches.deployed)
            one = None
        if not unit.switches.deployed:
            return
        if one is None:
            others = {host: number for host, number in slots.items() if host != member.home}
            if not others:
                return
            # The folder for states may be full there, and is not elsewhere.
            refused = self._refused.get(member.worker)
            others = {host: number for host, number in others.items() if host != refused} or others
            taken = [*taken, *(two.home for two in self.members)]
            one = Secondary.placed(member, spread([member.worker], others, taken)[member.worker])
        if not unit.switches.holds_state:
            self._unusable += [one] if one.holds_state else []
            self._members[member.worker] = one.without_state(member) if one.holds_state else one
            return
        if one.holds_state and self._is_of_use(one, member, covered):
            return
        if one.holds_state:
            self._unusable.append(one)
            self._restart(member.worker, covered.batch)
            one = one.without_state(member)
        self._members[member.worker] = one
        durable = covered.state_of(self.operator, member.worker)
        if not covered.is_whole or not durable.is_whole:
            # What a lost worker is given back lacks something. The next record has all that its primary has.
            return
        self._members[member.worker] = one.to_build(member, durable)

    def _give_up(self, one: Secondary, *, moved: bool) -> None:
        del self._members[one.worker]
        self._unusable += [one] if one.holds_state else []
        if moved:
            self._restart(one.worker, Batch(one.version))

    def _is_of_use(self, one: Secondary, member: WorkerState, covered: Covered) -> bool:
        """Whether a state can be kept: also if the checkpoints that it lacks are on their way, or in the store."""
        if self.completed(one, covered).can_follow(member, covered.batch):
            return True
        return one.is_built and replace(one, version=self.reach(one)).can_follow(member, covered.batch)

    def _restart(self, worker: int, batch: Batch) -> None:
        """What the scheme of a worker needs has to be made again."""
        if worker in self.units:
            self.units[worker] = self.units[worker].set_up(batch)

    # --- states that nobody needs ---------------------------------------------------------------------------

    def leave(self, worker: int, home: str, incarnation: Incarnation) -> None:
        """Notes that what incarnations of a worker before this one have left at ``home`` is nobody's."""
        self._left[worker, home] = max(incarnation, self._left.get((worker, home), incarnation))

    def left_behind(self) -> list[tuple[int, str, Incarnation]]:
        """Workers, where they have left states, and the incarnation before which those are nobody's."""
        return [(worker, home, incarnation) for (worker, home), incarnation in self._left.items()]

    def is_left_no_more(self, worker: int, home: str, incarnation: Incarnation) -> None:
        """Notes that it was removed."""
        if self._left.get((worker, home)) == incarnation:
            del self._left[worker, home]

    # --- what jobs have found out ---------------------------------------------------------------------------

    def note(self, one: Secondary, change: Callable[[Secondary], Secondary]) -> None:
        """Notes a ``change`` of one of them, unless it was replaced meanwhile."""
        known = self._members.get(one.worker)
        if known is not None and (known.home, known.incarnation) == (one.home, one.incarnation):
            self._members[one.worker] = change(known)

    def applied(self, one: Secondary, batch: Batch, *, damaged: bool) -> None:
        """Notes that one of them has the state after ``batch``."""
        self.note(one, lambda known: known.applied(batch, damaged=damaged))

    def given_checkpoint(self, one: Secondary, version: int) -> None:
        """Notes that checkpoints have brought one of them to ``version``."""
        self.note(one, lambda known: known.given_checkpoint(version))

    def is_whole(self, one: Secondary, member: WorkerState) -> bool:
        """Whether one of them is still there, follows ``member`` as it is now, and lacks nothing."""
        known = self._members.get(one.worker)
        if known is None or known.damaged or known.incarnation != member.incarnation:
            return False
        return (known.home, known.incarnation) == (one.home, one.incarnation)

    def gone(self, one: Secondary) -> None:
        """Notes that one of them has lost its state, or could not be built: another one is built in its place."""
        known = self._members.get(one.worker)
        if known is not None and (known.home, known.incarnation) == (one.home, one.incarnation):
            if not known.is_built:
                self._refused[one.worker] = one.home
            del self._members[one.worker]
            self._restart(one.worker, Batch(one.version))

    def discard(self, one: Secondary) -> None:
        """Gives up a state that was given something that does not count."""
        known = self._members.get(one.worker)
        if known is not None and known.holds_state and (known.home, known.incarnation) == (one.home, one.incarnation):
            self._give_up(known, moved=True)

    def discard_from(self, batch: Batch) -> None:
        """Gives up the states of those that may have applied ``batch``, which is taken back."""
        for one in self.members:
            # One that was found may have come through it for an earlier driver, whatever its scheme is.
            may_have = one.version >= batch or self.units[one.worker].switches.sending
            if may_have and one.version >= batch - 1:
                self.discard(one)


def check_hosts(slots: Mapping[str, int], nodes: Iterable[Node]) -> None:
    """Raises UsageError if the workers of these operators cannot have the secondaries that their tolerances ask for."""
    workers = max((node.workers for node in nodes if node.tolerance.has_secondaries), default=0)
    if not workers:
        return
    if len(slots) < 2:
        raise UsageError(
            f"A secondary has to be on another host than its primary, and there is {len(slots)} host.",
            remedy="Use a cluster with two hosts or more, or a tolerance without secondaries.",
            hosts=len(slots),
        )
    if sum(slots.values()) < 2 * workers:
        raise UsageError(
            f"{workers} workers and their secondaries need {2 * workers} task slots and Spark offers"
            f" {sum(slots.values())}.",
            remedy="Use fewer workers, or a master with more cores.",
            workers=workers,
        )
