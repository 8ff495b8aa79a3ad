"""What becomes of items that an operator cannot take: they are left out and kept, or named when the query stops."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from afspark.errors import AfsparkError, BadItems, OperatorFailed
from afspark.model.onbad import STOP
from afspark.model.operator import Operator
from afspark.model.user_trace import user_trace
from afspark.protocol.bad_items import Bad, BadRules
from afspark.store.base import one_line
from afspark.store.quarantine import FACTS, Count, sum_counts
from afspark.task.isolation import NULL_KEY, Culprit, Rows, culprits, fault_of_items

_ERROR_LENGTH = 500
_ROW_LENGTH = 300

T = TypeVar("T")


@dataclass(frozen=True)
class RawItems:
    """A batch of items as it came, with what is known of where it came from."""

    origin: str
    items: pa.RecordBatch
    producer: str | None = None
    #: number of the first row: the producer's, or within ``place``
    first: int = 0
    place: str = ""


class Selectable(Protocol):
    """Items that can be given out again, in part."""

    def hold(self) -> list[RawItems]:
        """All that was given out so far, kept from now on, and always in the same order."""
        ...

    def select(self, rows: Rows, *, more: bool) -> None:
        """Starts anew, with these rows of what `hold` gave alone; ``more``: and with what comes after it."""
        ...


def without_bad(
    feed: Selectable,
    run: Callable[[], T],
    again: Callable[[], None],
    rules: BadRules,
    key: Sequence[str],
    *,
    rehearse: Callable[[], object] | None = None,
) -> tuple[T, Bad]:
    """What ``run`` gives for the items of ``feed``, without those on which it raises; and those.

    ``again`` takes back what an attempt has done; what it cannot, ``rehearse`` leaves undone when it is called to see
    what raises, instead of ``run``. Where bad items are to stop the query, the error names the first one. Raises what
    ``run`` raises if no item is to blame.
    """
    blamed: dict[int, Culprit] = {}
    while True:
        try:
            return run(), _bad(feed.hold() if blamed else [], blamed.values())
        except Exception as error:
            if not fault_of_items(error):
                raise
            raised = error
        # Not while the first error is handled: each attempt's would have it as its context.
        held = feed.hold()
        _find(held, partial(_attempt, feed, rehearse or run, again), rules, key, blamed, raised)
        again()
        feed.select(_others(held, blamed), more=True)


def _attempt(feed: Selectable, run: Callable[[], object], again: Callable[[], None], rows: Rows) -> Exception | None:
    again()
    feed.select(rows, more=False)
    try:
        run()
    except Exception as error:
        if not fault_of_items(error):
            raise
        return error
    return None


def _find(
    held: Sequence[RawItems],
    attempt: Callable[[Rows], Exception | None],
    rules: BadRules,
    key: Sequence[str],
    blamed: dict[int, Culprit],
    error: Exception,
) -> None:
    """Adds to ``blamed`` whoever is to blame for ``error``, or raises."""
    before = len(blamed)
    alone = sum(one.kind != NULL_KEY for one in blamed.values())
    rows = _others(held, blamed)
    ends = np.cumsum([raw.items.num_rows for raw in held])
    for culprit in culprits(rows, attempt, np.intersect1d(rows, _null_keys(held, key), assume_unique=True)):
        number = int(np.searchsorted(ends, culprit.row, side="right"))
        raw, at = held[number], culprit.row - int(ends[number]) + held[number].items.num_rows
        if rules.choice(raw.origin, null_key=_lacks_key(culprit)) == STOP:
            raise _named(culprit.error, raw, at) from culprit.error
        blamed[culprit.row] = culprit
        alone += culprit.kind != NULL_KEY
        if alone > rules.limit:
            raise BadItems(
                f"More than {rules.limit} items of a batch are bad, the last one found is {_place(raw, at)}: "
                f"{_text(culprit.error).rstrip('.:')}.",
                remedy="Mend the operator or its input, or allow more with bad_limit.",
                limit=rules.limit,
                trace=user_trace(culprit.error),
            ) from culprit.error
    if len(blamed) == before:
        raise error


def _lacks_key(culprit: Culprit) -> bool:
    """Whether a row has no key, or a step before the operator has made it one without."""
    facts = getattr(culprit.error, "fields", {})
    return culprit.kind == NULL_KEY or bool("nulls" in facts and facts.get("keys"))


def _others(held: Sequence[RawItems], blamed: Mapping[int, Culprit]) -> Rows:
    kept = np.ones(sum(raw.items.num_rows for raw in held), bool)
    kept[list(blamed)] = False
    return np.flatnonzero(kept)


def _null_keys(held: Sequence[RawItems], key: Sequence[str]) -> Rows:
    """Rows without a value in one of the key's columns, where those have the key's names already."""
    found, first = [np.empty(0, np.int64)], 0
    for raw in held:
        for name in set(key) & set(raw.items.schema.names):
            column = raw.items.column(name)
            if column.null_count:
                found.append(first + np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)))
        first += raw.items.num_rows
    return np.unique(np.concatenate(found))


# --- what is said and kept of them --------------------------------------------------------------------------


def _named(error: Exception, raw: RawItems, at: int) -> AfsparkError:
    """The error that stops the query: what was raised, and for which item."""
    row = one_line(raw.items.slice(at, 1).to_pylist()[0], _ROW_LENGTH)
    which = {"origin": raw.origin, "producer": raw.producer, "number": raw.first + at, "place": raw.place, "row": row}
    where = f"It is {_place(raw, at)}: {row}."
    remedy = "Mend it or the code that raises, or let such items be left out with on_bad='skip'."
    if isinstance(error, AfsparkError):
        facts = {**_traced(error).fields, **which}
        return type(error)(f"{error.message} {where}", remedy=error.remedy or remedy, **facts)
    return OperatorFailed(f"An item is bad: {_text(error)}. {where}", remedy=remedy, trace=_trace(error), **which)


def as_failure(error: Exception, operator: Operator) -> AfsparkError:
    """The error as the driver will raise it; what user code raised keeps its trace as a field."""
    if isinstance(error, AfsparkError):
        return _traced(error)
    return OperatorFailed(
        f"{type(operator).__name__} failed: {_text(error)}.",
        remedy="Mend it and start again: nothing of the batch was applied.",
        trace=_trace(error),
    )


def _traced(error: AfsparkError) -> AfsparkError:
    """The error with the lines of the user's that led to it, if any did."""
    trace = user_trace(error)
    if trace:
        error.fields.setdefault("trace", trace)
    return error


def _trace(error: Exception) -> str:
    """The user's part of a traceback, or all of it where no code of a user's has raised."""
    return user_trace(error) or "".join(traceback.format_exception(error))


def _place(raw: RawItems, at: int) -> str:
    number = raw.first + at
    if raw.producer is not None:
        return f"item {number} of producer {raw.producer!r}"
    return f"row {number} of {raw.place or (f'what {raw.origin!r} has sent' if raw.origin else 'the source')}"


def _text(error: Exception) -> str:
    message = error.message if isinstance(error, AfsparkError) else str(error)
    return one_line(f"{type(error).__name__}: {message}", _ERROR_LENGTH)


def _bad(held: Sequence[RawItems], blamed: Iterable[Culprit]) -> Bad:
    """The blamed rows as a quarantine keeps them, batch by batch as they came."""
    waiting = deque(sorted(blamed, key=lambda culprit: culprit.row))
    counts: list[Count] = []
    rows: list[pa.RecordBatch] = []
    first = 0
    now = time.time()
    for raw in held:
        end = first + raw.items.num_rows
        found = []
        while waiting and waiting[0].row < end:
            found.append(waiting.popleft())
        if found:
            counts += [Count(raw.origin, culprit.kind, 1) for culprit in found]
            rows.append(_kept(raw, [culprit.row - first for culprit in found], found, now))
        first = end
    return Bad(sum_counts(counts), tuple(rows))


def _kept(raw: RawItems, at: list[int], found: Sequence[Culprit], now: float) -> pa.RecordBatch:
    items = raw.items.take(pa.array(at, pa.int64()))
    facts = {
        "source": [raw.origin] * len(at),
        "producer": [raw.producer] * len(at),
        "number": [raw.first + row for row in at],
        "place": [raw.place] * len(at),
        "kind": [culprit.kind for culprit in found],
        "error": [_text(culprit.error) for culprit in found],
        "at": [now] * len(at),
    }
    columns = [pa.array(facts[name], kind) for name, kind in zip(FACTS.names, FACTS.types, strict=True)]
    row = pa.StructArray.from_arrays(items.columns, fields=list(items.schema))
    return pa.record_batch([*columns, row], names=[*FACTS.names, "row"])
