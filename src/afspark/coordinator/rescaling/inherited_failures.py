"""What the failures of an operator's workers mean for others in number that take over their state. Pure.

Θ is one for all workers. With k failures of a worker, one of n, its losses come to Θ/n·(1 - 2^-k) at most; so if K is
the most that any has had, those of all come to Θ·(1 - 2^-K), and new workers that begin with K failures each have the
rest to lose, however many they are. What was lost may be anywhere in a state that is divided by keys: there every new
worker has all of it, but where losses add up it is told once. A local share takes what it has lost along.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from afspark.coordinator.recovery.error_budget import CountedFailures, ErrorBudget, once
from afspark.numbers import NO_INCARNATION, PaneNumber
from afspark.store import CountedFailure


def inherited(
    budget: ErrorBudget,
    per_worker: Sequence[CountedFailures],
    merged: Sequence[Sequence[int]],
    *,
    keyed: bool,
    word: str,
) -> list[tuple[CountedFailure, ...]]:
    """The counted failures that each of the new workers begins with.

    ``budget``: that of the operator as it was. ``merged``: for each new worker the local shares that it is given.
    ``word`` marks what all of them share.
    """
    halving = _halving(budget, per_worker)
    found = []
    for shares in merged:
        # By keys nobody can say where in the state a loss was; a local share is somewhere as a whole.
        whose = list(per_worker) if keyed else [per_worker[share] for share in shares]
        found.append(tuple(_with_amounts(budget, halving, _amounts(budget, whose, keyed=keyed), word if keyed else "")))
    return found


def _amounts(budget: ErrorBudget, per_worker: Sequence[CountedFailures], *, keyed: bool) -> list[CountedFailure]:
    """What failures have taken from shares that become one, or parts of one: an entry for each tick."""
    if budget.paned:
        panes = {pane for counted_failures in per_worker for failure in counted_failures for pane in failure.affected}
        taken = {pane: _in_pane(budget, pane, per_worker, keyed=keyed) for pane in sorted(panes)}
        found = [CountedFailure(pane_taken=taken, panes=(min(taken), max(taken)))] if taken else []
    else:
        ticks = sorted({failure.tick for counted_failures in per_worker for failure in counted_failures})
        found = [CountedFailure(taken=_at_tick(budget, tick, per_worker, keyed=keyed), tick=tick) for tick in ticks]
    return [one for one in found if _takes(one)]


def _in_pane(
    budget: ErrorBudget, pane: PaneNumber, per_worker: Sequence[CountedFailures], *, keyed: bool
) -> Mapping[str, float]:
    if keyed:
        return budget.in_pane(pane, per_worker)
    taken = [failure.pane_taken.get(pane, {}) for one in once(per_worker) for failure in one]
    return {state: math.fsum(one.get(state, 0.0) for one in taken) for state in budget.states}


def _at_tick(
    budget: ErrorBudget, tick: PaneNumber, per_worker: Sequence[CountedFailures], *, keyed: bool
) -> Mapping[str, float]:
    def taken(state: str) -> float:
        apart = keyed and not budget.adds_up(state)
        sums = [
            math.fsum(failure.taken.get(state, 0.0) for failure in counted_failures if failure.tick == tick)
            for counted_failures in (per_worker if apart else once(per_worker))
        ]
        return max(sums, default=0.0) if apart else math.fsum(sums)

    return {state: taken(state) for state in budget.states}


def _halving(budget: ErrorBudget, per_worker: Sequence[CountedFailures]) -> list[CountedFailure]:
    """Failures that lower thresholds as far as those of any worker did, in every pane; what they took is elsewhere."""
    panes: list[PaneNumber | None] = list(budget.concerned(per_worker)) if budget.paned else [None]
    needed = {pane: max((budget.failures_in(one, pane) for one in per_worker), default=0) for pane in panes}
    chosen: list[CountedFailure] = []
    for counted_failures in sorted(per_worker, key=len, reverse=True):
        for failure in counted_failures:
            if any(
                budget.failures_in(chosen, pane) < needed[pane] and budget.failures_in([failure], pane)
                for pane in panes
            ):
                chosen.append(_without_amounts(failure))
    # Those that lowered no threshold of a state have lowered how many items may wait, which goes by their number.
    others = ([one for one in found if not one.may_take and not _takes(one)] for found in per_worker)
    most: list[CountedFailure] = max(others, key=len, default=[])
    return [*map(_without_amounts, most), *chosen]


def _takes(failure: CountedFailure) -> bool:
    return any(failure.labelled().values())


def _without_amounts(failure: CountedFailure) -> CountedFailure:
    nothing = {pane: dict.fromkeys(taken, 0.0) for pane, taken in failure.pane_taken.items()}
    return replace(
        failure,
        taken=dict.fromkeys(failure.taken, 0.0),
        pane_taken=nothing,
        incarnation=NO_INCARNATION,
        shared="",
    )


def _with_amounts(
    budget: ErrorBudget, halving: Sequence[CountedFailure], amounts: Sequence[CountedFailure], word: str
) -> list[CountedFailure]:
    """Both together, the newest amount last: it is what operators are told that they have lost."""
    marked = [replace(one, shared=word) for one in amounts]
    if not halving or not marked or budget.paned:
        # Reckoned with 0, so that these halve nothing once more.
        none = dict.fromkeys(budget.states, 0.0)
        return [*halving, *(replace(one, theta=none) for one in marked)]
    first, last = halving[:-1], halving[-1]
    none = dict.fromkeys(budget.states, 0.0)
    *before, newest = marked
    return [*first, *(replace(one, theta=none) for one in before), replace(newest, theta=last.theta)]
