"""Losses of operators upstream: whose may have changed what an operator received, and which of them no bound covers.

A bound is of what an operator's own failures have taken. What the same items would have made it send, had nothing been
lost, nobody knows: so it is told of whom that holds. Where no bound covers a loss, none holds for what it reaches.
"""

from __future__ import annotations

from collections.abc import Sequence

from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.recovery.coverage import is_unfinished
from afspark.store import LedgerEntry


def upstream_losses(run: OperatorRun) -> list[str]:
    """The operators whose losses may have changed what this one received, in the order in which they run.

    An operator is among its own, if what it sends comes back to it as feedback.
    """
    return [one.title for one in run.senders if _telling(one) or one.lost_items()]


def is_unbounded(run: OperatorRun) -> bool:
    """Whether no bound covers one of the losses that may have changed what an operator received.

    Of a replay that differed, operators that it reaches have entries of their own.
    """
    return any(is_boundless(entry) for one in run.senders for entry in _telling(one))


def changes_what_is_sent(entry: LedgerEntry, *, by_state: bool) -> bool:
    """Whether an operator may have sent something else since a loss; ``by_state``: what it sends depends on its states.

    Items and feedback that are gone, and batches that were replayed from something else, are missing downstream as well
    if it does not.
    """
    failure = entry.loss.counted_failure
    if entry.loss.items or is_unfinished(entry) or (entry.recovery is not None and not entry.recovery.covered):
        return True
    return by_state and failure is not None and (not entry.loss.limited or any(failure.labelled().values()))


def is_boundless(entry: LedgerEntry) -> bool:
    """Whether no bound covers a loss, because nothing was backed up or because what was needed could not be read."""
    return not entry.loss.limited or is_unfinished(entry) or bool(entry.recovery and entry.recovery.damaged)


def _telling(sender: OperatorRun) -> Sequence[LedgerEntry]:
    names = {sender.name, *(entrance.name for entrance in sender.entrances)}
    by_state = sender.node.operator.sends_by_state
    entries = [entry for entry in sender.group.ledger.entries() if entry.loss.operator in names]
    return [entry for entry in entries if changes_what_is_sent(entry, by_state=by_state)]
