"""What a user is told of errors: the thresholds in force, and the bounds that failures so far have realised."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from afspark.bounds import state_bound
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.recovery.coverage import uncovered
from afspark.coordinator.recovery.upstream import is_unbounded, upstream_losses
from afspark.store import LedgerEntry, OperatorRecord


def realised(run: OperatorRun, window: int | None = None) -> dict[str, float]:
    """Per state, the most that failures so far can have changed it (in one window); 0 before any.

    Infinite if nobody knows: because nothing limited what was lost, because a backup or a record that a recovery needed
    could not be read, because a replayed batch has done something else than the first time, or because the ledger has
    lost entries.
    With panes and without ``window``: all panes that failures concern and that still matter, taken together.
    What operators upstream have lost is in their bounds, not in this one (`upstream_losses`).
    """
    budget, counted_failures = (
        run.group.budget,
        [member.counted_failures for member in run.group.members],
    )
    # A lost entry of the ledger may have told of a loss that nothing covers.
    if run.group.ledger.missing or uncovered(run, window):
        return dict.fromkeys(budget.states, math.inf)
    if window is not None:
        return budget.realised(counted_failures, window=window)
    if budget.paned:
        return budget.pane_sum(counted_failures)
    return budget.realised(counted_failures, tick=run.latest_tick)


def is_whole(run: OperatorRun) -> bool:
    """Whether the operator's state is as if nothing had failed."""
    return not any(realised(run).values())


def told(run: OperatorRun, window: int | None = None) -> dict[str, float]:
    """What users are told: `realised`, and what the pushed items that the operator lost can amount to.

    Those may have belonged to any window. Infinite if no bound covers what an operator upstream has lost, whose items
    or feedback reach this one.
    """
    if is_unbounded(run):
        return dict.fromkeys(run.group.budget.states, math.inf)
    return with_items(realised(run, window), run.lost_items(), run.node.operator.alpha)


def operator_record(run: OperatorRun) -> OperatorRecord:
    """The operator as a commit record keeps it, with what users are told, for whoever looks into the checkpoint."""
    return with_told(run, run.record())


def with_told(run: OperatorRun, record: OperatorRecord) -> OperatorRecord:
    """A record of the operator with what users are told."""
    return replace(record, bounds=told(run), lost_items=run.lost_items(), upstream=tuple(upstream_losses(run)))


def with_items(bounds: dict[str, float], items: int, alpha: float | None) -> dict[str, float]:
    """Bounds of an operator that has also lost so many items, each of which changes a state by at most ``alpha``.

    >>> with_items({"counts": 10.0}, 3, 2.0), with_items({"counts": 10.0}, 0, None)
    ({'counts': 16.0}, {'counts': 10.0})
    """
    each = math.inf if alpha is None else alpha
    return {name: state_bound(bound, items=items, alpha=each) for name, bound in bounds.items()}


def with_lost_items(run: OperatorRun, worker: int, missing: dict[str, float]) -> dict[str, float]:
    """What may be missing from a worker's states, with the pushed items that it has lost."""
    alpha, tolerance, items = run.node.operator.alpha, run.group.budget.tolerance, run.lost_items(worker)
    return {name: tolerance.missing_with(most, items, alpha) for name, most in missing.items()}


def in_force(run: OperatorRun) -> list[dict[str, Any]]:
    """θ, l and γ of every worker, and why; with panes also those of the panes that failures concern.

    ``covered``: whether a bound holds for all losses of the operator so far.
    """
    unknown = uncovered(run)
    entries = []
    for member in run.group.members:
        budget = run.group.budget_of(member.worker)
        entry: dict[str, Any] = {
            "operator": run.title,
            "worker": member.worker,
            "host": member.home,
            "incarnation": member.incarnation,
            "failures": member.failures,
            **budget.thresholds(member.counted_failures).to_json(),
            "covered": not unknown,
        }
        entry["why"] += "".join(map(_no_bound, unknown))
        if budget.paned:
            entry["panes"] = {
                pane: budget.thresholds(member.counted_failures, pane).to_json()
                for pane in budget.pane_thetas(member.counted_failures)
            }
        entries.append(entry)
    return entries


def _no_bound(entry: LedgerEntry) -> str:
    unread = ", ".join(entry.recovery.damaged) if entry.recovery else ""
    reason = f"{unread} could not be read" if unread else entry.loss.cause
    if not entry.loss.limited:
        reason += ", and no threshold limited what that took"
    return f"; no bound holds since batch {entry.loss.batch}, because {reason}"
