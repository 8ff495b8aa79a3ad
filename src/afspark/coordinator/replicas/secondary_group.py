"""The secondaries of one operator: where each lives, and which of them can take the place of a lost worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from afspark.coordinator.placement import spread
from afspark.coordinator.replicas.secondary import Secondary
from afspark.coordinator.worker_state import Covered, WorkerState
from afspark.errors import UsageError
from afspark.graph.node import Node
from afspark.numbers import Batch
from afspark.resident import Survivor


class SecondaryGroup:
    """The secondaries of one operator, at most one of each worker; none unless its tolerance has them (``wanted``)."""

    def __init__(self, operator: str, *, wanted: bool) -> None:
        self.operator, self.wanted = operator, wanted
        self._members: dict[int, Secondary] = {}

    @property
    def members(self) -> list[Secondary]:
        """The secondaries, by the numbers of their workers."""
        return [self._members[worker] for worker in sorted(self._members)]

    def adopt(self, survivors: Iterable[Survivor], batch: Batch) -> None:
        """Takes up what a starting driver has found that begins with ``batch``, and can say what it did since then."""
        found = [
            Secondary.found(one)
            for one in survivors
            if one.secondary and one.version >= batch - 1 and (one.version < batch or one.kept_from < batch)
        ]
        # Of two that follow the same worker the newer one is nearer to its primary.
        self._members = {
            one.worker: one for one in sorted(found, key=lambda one: (one.incarnation, one.version)) if self.wanted
        }

    def replacement(self, member: WorkerState, covered: Batch, batch: Batch, alive: Iterable[str]) -> Secondary | None:
        """The one that takes the place of a lost ``member`` in ``batch``; from then on it is no secondary."""
        one = self._members.pop(member.worker, None)
        if one is None or one.home not in alive or not one.can_replace(member, covered):
            return None
        # It may have applied the batch, which the driver has still to see done.
        return replace(one, version=min(one.version, batch - 1))

    def can_replace(self, member: WorkerState, covered: Batch, alive: Iterable[str]) -> bool:
        """Whether there is one that can take the place of a worker whose host is away."""
        one = self._members.get(member.worker)
        return one is not None and one.home in alive and one.can_replace(member, covered)

    def house(self, members: Sequence[WorkerState], covered: Covered, slots: Mapping[str, int]) -> list[Secondary]:
        """Gives every worker a secondary on another host than its primary's; those whose places have to be cleared.

        One that follows an incarnation before, or lacks what nobody can replay any more, is built anew.
        """
        if not self.wanted:
            return []
        unusable = []
        for member in members:
            one = self._members.get(member.worker)
            if one is not None and one.home in slots:
                if one.can_follow(member, covered.batch):
                    continue
                unusable.append(one)
            others = {host: number for host, number in slots.items() if host != member.home}
            if not others:
                self._members.pop(member.worker, None)
                continue
            taken = [*(other.home for other in members), *(two.home for two in self.members if two is not one)]
            home = spread([member.worker], others, taken)[member.worker]
            durable = covered.state_of(self.operator, member.worker)
            self._members[member.worker] = Secondary.new(member, home, durable)
        return unusable

    def applied(self, one: Secondary, batch: Batch, *, damaged: bool) -> None:
        """Notes that one of them has applied ``batch``, unless it was replaced meanwhile."""
        known = self._members.get(one.worker)
        if known is not None and (known.home, known.incarnation) == (one.home, one.incarnation):
            self._members[one.worker] = known.applied(batch, damaged=damaged)

    def gone(self, one: Secondary) -> None:
        """Notes that one of them has lost its state: another one is built in its place."""
        known = self._members.get(one.worker)
        if known is not None and (known.home, known.incarnation) == (one.home, one.incarnation):
            del self._members[one.worker]


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
