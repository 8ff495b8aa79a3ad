"""Losses that no bound covers: because nothing was backed up, because a backup or a record could not be read, or
because a replayed batch has done something else than the first time. Whom they concern, and for how long.

They are told from the durable ledger, so a driver that is started again tells the same. Without windows nobody will
ever know again how far the state is off. A window is concerned as long as it has a pane that the lost state may have
held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from afspark.coordinator.operator_run import OperatorRun
from afspark.numbers import NO_INCARNATION, Batch, PaneNumber
from afspark.store import Ledger, LedgerEntry, Loss, Recovery

#: The worker of an entry that is about an operator as a whole.
ALL_WORKERS = -1

Panes = tuple[PaneNumber | None, PaneNumber | None]
"""The first and the last of some panes; None: no limit."""


def uncovered(run: OperatorRun, window: int | None = None) -> list[LedgerEntry]:
    """The ledger's entries that leave an operator without a bound: for one window, or for all that is still there."""
    names = {run.name, *(entrance.name for entrance in run.entrances)}
    first, last = run.first_needed, window
    if window is not None and run.node.window is not None:
        first = window - run.node.window.panes + 1
    return [
        entry
        for entry in run.group.ledger.entries()
        if entry.loss.operator in names
        and any(_meet(panes, first, last) for panes in _uncovered_panes(entry, paned=run.group.budget.paned))
    ]


def declare_unread_records(ledger: Ledger, run: OperatorRun, batch: Batch, damaged: Sequence[str]) -> None:
    """Makes durable that records before ``batch`` could not be read, if more than backups depends on them.

    Which windows are open and how far lanes were taken is known from records alone, whatever became of the state.
    """
    if not damaged or not (run.node.window is not None or run.config.pushed):
        return
    if any(entry.loss.batch == batch and entry.loss.worker == ALL_WORKERS for entry in uncovered(run)):
        return
    _declare(
        ledger,
        run,
        batch,
        damaged,
        "records could not be read, so windows and positions are those of an earlier batch",
    )


def declare_missing_input(ledger: Ledger, run: OperatorRun, batch: Batch, paths: Sequence[str]) -> None:
    """Makes durable that input of a committed ``batch`` is gone, which lost workers would have to apply again."""
    known = {name for entry in uncovered(run) if entry.recovery for name in entry.recovery.damaged}
    if not set(paths) <= known:
        _declare(ledger, run, batch, paths, "input that had to be replayed is gone")


def declare_damaged_log(ledger: Ledger, run: OperatorRun, batch: Batch, damaged: Sequence[str]) -> None:
    """Makes durable that items in a receiver's log cannot be read, once for each of its objects."""
    known = {name for entry in uncovered(run) if entry.recovery for name in entry.recovery.damaged}
    if not set(damaged) <= known:
        _declare(ledger, run, batch, damaged, "items in the log of a receiver could not be read")


def declare_difference(run: OperatorRun, batch: Batch, what: str) -> None:
    """Makes durable that what an operator has applied is not what it would have without failures, once for a batch."""
    ledger = run.group.ledger
    known = [entry for entry in uncovered(run) if entry.recovery is not None and entry.recovery.differed]
    if not any(entry.loss.batch == batch or entry.recovery.panes == (None, None) for entry in known if entry.recovery):
        _declare(ledger, run, batch, (), what, differed=True)


def _declare(
    ledger: Ledger, run: OperatorRun, batch: Batch, damaged: Sequence[str], cause: str, *, differed: bool = False
) -> None:
    loss = ledger.declare(
        Loss(
            batch=batch,
            operator=run.name,
            worker=ALL_WORKERS,
            incarnation=NO_INCARNATION,
            counted=False,
            cause=cause,
            theta={},
            failures=0,
        )
    )
    panes = run.group.batch_time.panes_at_risk(known=False) if run.group.budget.paned else (None, None)
    recovery = Recovery(seconds=0.0, restored_cells=0, damaged=tuple(damaged), panes=panes, differed=differed)
    ledger.complete(loss, recovery)


def is_unfinished(entry: LedgerEntry) -> bool:
    """Whether whoever told of an operator as a whole has died before it came to an end."""
    return entry.recovery is None and entry.loss.worker == ALL_WORKERS


def _uncovered_panes(entry: LedgerEntry, *, paned: bool) -> Iterator[Panes]:
    """The panes from which a loss can have taken what no bound covers."""
    if entry.recovery is not None and not entry.recovery.covered:
        yield entry.recovery.panes
    if is_unfinished(entry):
        yield None, None
    failure = entry.loss.counted_failure
    if failure is not None and not entry.loss.limited:
        if not paned:
            yield None, None
        elif failure.panes is not None:
            yield failure.panes


def _meet(panes: Panes, first: int | None, last: int | None) -> bool:
    """Whether one of the panes is among those from ``first`` to ``last``; None: no limit."""
    lowest, highest = panes
    return not (
        (first is not None and highest is not None and highest < first)
        or (last is not None and lowest is not None and lowest > last)
    )
