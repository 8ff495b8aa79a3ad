"""The steps of all workers in one batch: what was pushed, what is merged, and who may go on. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from afspark.exchange.model_versions import ModelVersions
from afspark.model.consistency import Consistency
from afspark.model.kernels.plain_arrays import Array
from afspark.model.training import Cells, Merge, StepFacts

_NOTHING = Cells(np.zeros(0, np.uint32), np.zeros(0))


class PushOutcome(StrEnum):
    """What became of a push."""

    TAKEN = "taken"
    #: it was there already, and says the same
    REPEATED = "repeated"
    #: another one of the same worker and step was there already, and holds
    DIFFERS = "differs"


@dataclass(frozen=True, kw_only=True, eq=False)
class Push:
    """What a worker has learned in a step: changes of cells of the model it began the step with."""

    worker: int
    step: int
    facts: StepFacts
    cells: Cells
    #: of everything that it says
    digest: str
    #: of the worker
    incarnation: int = 0


@dataclass
class _Member:
    """A worker in this batch."""

    pushes: list[Push] = field(default_factory=list)
    merged: int = 0
    #: the latest that is known of
    incarnation: int = 0
    #: how many steps it makes; None while that is not known
    steps: int | None = None

    @property
    def is_done(self) -> bool:
        return self.steps is not None and self.merged >= self.steps


class Rounds:
    """One batch of one model, or of one shard of it.

    A push stays what it is however often it is repeated: whoever runs a share again finds the answers that were given
    first, as long as pushes are merged in rounds, and what was merged once is never merged again.

    In a round each push counts by its part of the items. What is merged as it arrives counts as much as in a round of
    equal steps: 1/k, if k workers have not come to their end before that step. A short step counts no less: items that
    are not there have changed nothing, and how far a gradient leads is for the learner to say.
    """

    def __init__(self, model: Array, workers: Sequence[int], consistency: Consistency) -> None:
        self.versions = ModelVersions(model, forgets=not consistency.in_rounds)
        self.consistency = consistency
        self._members = {worker: _Member() for worker in sorted(workers)}
        self._present: set[int] = set()
        #: what went into each version after the first
        self.merged: list[list[Push]] = []

    def check_in(self, worker: int, incarnation: int = 0) -> None:
        self.admit(worker, incarnation)
        self._present.add(worker)

    def admit(self, worker: int, incarnation: int) -> None:
        """ValueError if a later incarnation of the worker is known: nothing that the lost one says counts any more."""
        member = self._members[worker]
        if incarnation < member.incarnation:
            raise ValueError(f"incarnation {incarnation} of worker {worker} is lost, {member.incarnation} is at work")
        member.incarnation = incarnation

    def push(self, push: Push) -> PushOutcome:
        """Takes what a worker has learned in its next step, and merges what can be merged."""
        self.admit(push.worker, push.incarnation)
        member = self._members[push.worker]
        if push.step < len(member.pushes):
            same = member.pushes[push.step].digest == push.digest
            return PushOutcome.REPEATED if same else PushOutcome.DIFFERS
        if push.step > len(member.pushes) or (member.steps is not None and push.step >= member.steps):
            raise ValueError(
                f"worker {push.worker} pushes step {push.step} after {len(member.pushes)} of {member.steps}"
            )
        member.pushes.append(push)
        if self.consistency.in_rounds:
            self._merge_rounds()
        else:
            self._merge([push], [1 / len(self._at_work(push.step))])
        return PushOutcome.TAKEN

    def finish(self, worker: int, steps: int, incarnation: int = 0) -> None:
        """A worker has no further items after so many steps."""
        self.admit(worker, incarnation)
        member = self._members[worker]
        if member.steps is None:
            if steps != len(member.pushes):
                raise ValueError(f"worker {worker} ends after {steps} steps and has pushed {len(member.pushes)}")
            member.steps = steps
            if self.consistency.in_rounds:
                self._merge_rounds()

    def missing(self) -> list[int]:
        """Who has not checked in."""
        return [worker for worker in self._members if worker not in self._present]

    def may_begin(self, worker: int, step: int) -> bool:
        """Whether a worker may begin a step with the model that `answer` gives."""
        return not self.missing() and self.consistency.may_begin(step, self._merged_by_all())

    def waits_for(self, step: int) -> list[int]:
        """Whose results a worker waits for that wants to begin a step."""
        return self.missing() or [
            worker
            for worker, member in self._members.items()
            # In rounds nothing of anybody is merged as long as something of one is missing.
            if not member.is_done and not self.consistency.may_begin(step, len(member.pushes))
        ]

    def version_for(self, step: int) -> int:
        """The version that a step begins with: in rounds always the same, else the newest."""
        return min(step, self.versions.newest) if self.consistency.in_rounds else self.versions.newest

    @property
    def is_over(self) -> bool:
        return all(member.is_done for member in self._members.values())

    def merges(self) -> list[Merge]:
        """All merges so far."""
        return [
            Merge(norm=norm, facts=_together([push.facts for push in pushes]), by=(pushes[0].worker, pushes[0].step))
            for norm, pushes in zip(self.versions.norms, self.merged, strict=True)
        ]

    def _merged_by_all(self) -> float:
        return min((member.merged for member in self._members.values() if not member.is_done), default=math.inf)

    def _merge_rounds(self) -> None:
        """Merges every round that is complete, in the order of workers."""
        while True:
            step = self.versions.newest
            members = self._at_work(step)
            if not members or any(len(one.pushes) <= step for one in members):
                return
            pushes = [one.pushes[step] for one in members]
            items = sum(push.facts.items for push in pushes)
            self._merge(pushes, [push.facts.items / items for push in pushes])

    def _at_work(self, step: int) -> list[_Member]:
        """Those who make this step, as far as is known."""
        return [one for one in self._members.values() if one.steps is None or one.steps > step]

    def _merge(self, pushes: list[Push], weights: Sequence[float]) -> None:
        """Merges what was pushed, with these weights."""
        self.versions.merge([(push.cells, weight) for push, weight in zip(pushes, weights, strict=True)])
        for push in pushes:
            member = self._members[push.worker]
            member.merged += 1
            # To know it again, its digest is enough.
            member.pushes[push.step] = replace(push, cells=_NOTHING)
        self.merged.append([self._members[push.worker].pushes[push.step] for push in pushes])


def _together(facts: Sequence[StepFacts]) -> StepFacts:
    return StepFacts(
        items=sum(one.items for one in facts),
        correct=sum(one.correct for one in facts),
        loss=sum(one.loss for one in facts),
    )
