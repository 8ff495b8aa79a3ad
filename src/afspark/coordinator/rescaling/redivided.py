"""Who is given what when an operator has other workers in number: shares, chains and counted failures. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.rescaling.inherited_failures import inherited
from afspark.numbers import Incarnation
from afspark.store import Chain, Loss, OperatorRecord, Rescaled, WorkerRecord, chain_to_restore
from afspark.task.redividing import Joined, Written


@dataclass(frozen=True, kw_only=True)
class Handover:
    """The workers that an operator had (``former``), as a record has them, and how many it is to have."""

    former: tuple[WorkerRecord, ...]
    workers: int
    keyed: bool

    def shares_of(self, worker: int) -> tuple[int, ...]:
        """The former workers whose local shares a new one is given as a whole.

        >>> three_to_two = Handover(former=(None, None, None), workers=2, keyed=False)
        >>> [three_to_two.shares_of(worker) for worker in range(2)]
        [(0, 2), (1,)]
        """
        return tuple(range(worker, len(self.former), self.workers))

    def feedback_of(self, worker: int) -> tuple[int, ...]:
        """Those whose feedback it is given: in the order of the former workers it stays.

        >>> one_to_three = Handover(former=(None,), workers=3, keyed=True)
        >>> [one_to_three.feedback_of(worker) for worker in range(3)]
        [(0,), (), ()]
        """
        last = len(self.former) if worker == self.workers - 1 else worker + 1
        return tuple(range(worker, min(last, len(self.former))))

    def chains(self) -> dict[int, tuple[Chain, Chain]]:
        """The durable state of each former worker, and the one before it."""
        return {one.worker: chain_to_restore(one) for one in self.former}

    def joined(self, *, parts_apart: bool, feeds_back: bool) -> list[Joined]:
        """What has to be brought together for new workers, where it is not as it was.

        ``parts_apart``: a keyed operator has states that belong to no key.
        """
        found = []
        for worker in range(self.workers):
            shares = self.shares_of(worker) if parts_apart or not self.keyed else ()
            feedback = self.feedback_of(worker) if feeds_back else ()
            if (shares or feedback) and not self._stays(worker, shares, feedback):
                found.append(Joined(worker, shares, feedback))
        return found

    def _stays(self, worker: int, shares: Sequence[int], feedback: Sequence[int]) -> bool:
        """Whether all that a new worker is given are the backups of the former one with its number."""
        return not self.keyed and tuple(shares) == (worker,) and tuple(feedback) in ((), (worker,))

    def incarnation(self, losses: Sequence[Loss]) -> Incarnation:
        """One that no worker of the operator has had."""
        known = [*(one.incarnation for one in self.former), *(loss.incarnation for loss in losses)]
        return Incarnation(max(known) + 1)

    def made(
        self,
        found: OperatorRecord,
        written: Sequence[Written],
        incarnation: Incarnation,
        *,
        before: ErrorBudget,
        now: ErrorBudget,
    ) -> OperatorRecord:
        """The operator's part of the record that hands it over. ``before`` and ``now``: what it may lose."""
        failures = inherited(
            before,
            [one.counted_failures for one in self.former],
            [self.shares_of(worker) for worker in range(self.workers)],
            keyed=self.keyed,
            word=f"before incarnation {incarnation}",
        )
        chains = self._chains_after(written)
        workers = tuple(
            WorkerRecord(
                worker=worker,
                incarnation=incarnation,
                failures=len(failures[worker]),
                completed=0,
                host="",
                theta=now.theta(failures[worker]),
                chain=chains.get(worker, ((), ()))[0],
                previous=chains.get(worker, ((), ()))[1],
                counted_failures=failures[worker],
                untold=self._untold(worker),
            )
            for worker in range(self.workers)
        )
        return replace(found, workers=workers, schemes={}, rescaled=Rescaled(len(self.former), incarnation))

    def _chains_after(self, written: Sequence[Written]) -> Mapping[int, tuple[Chain, Chain]]:
        parts: dict[int, list[Written]] = {}
        for one in written:
            parts.setdefault(one.worker, []).append(one)
        found: dict[int, tuple[Chain, Chain]] = {}
        if not self.keyed:
            former = self.chains()
            found = {worker: former[worker] for worker in range(self.workers) if worker in former}
        for worker, several in parts.items():
            found[worker] = (tuple(one.ref for one in sorted(several, key=lambda one: one.number)), ())
        return found

    def _untold(self, worker: int) -> int | None:
        """How many feedback items losses took that the operator has yet to be told of at a worker."""
        whose = range(len(self.former)) if self.keyed else self.shares_of(worker)
        told = [self.former[one].untold for one in whose]
        items = [one for one in told if one is not None]
        return sum(items) if items else None
