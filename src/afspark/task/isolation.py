"""Which items an operator cannot take: found by trying parts of what it was given, each on the state as it was.

Pure search, over row numbers; whoever asks carries out the attempts. Nothing here costs anything while no operator
raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from afspark.errors import AfsparkError, OperatorMisuse, UsageError
from afspark.model.states import StateFull, StateLimit

Rows = npt.NDArray[np.int64]

#: Applies these rows, ascending, to the state as it was before any; what the operator raised, None if nothing.
Attempt = Callable[[Rows], Exception | None]

NULL_KEY = "null key"


class Culprit(NamedTuple):
    """A row without which the others can be taken."""

    row: int
    error: Exception
    kind: str


def fault_of_items(error: Exception) -> bool:
    """Whether an item may be to blame for what an operator, a step before it or its combiner has raised.

    Files, memory and the engine's own errors never are an item's fault. A wrong use of a state is (null keys, values
    of a wrong type), and so is a value that a state cannot hold, unless it is the state that is full.
    """
    if isinstance(error, UsageError | StateLimit):
        return not isinstance(error, OperatorMisuse | StateFull)
    return not isinstance(error, AfsparkError | OSError | MemoryError)


def culprits(rows: Rows, attempt: Attempt, suspects: Rows | None = None) -> Iterator[Culprit]:
    """The rows to blame, each with what was raised for it; nothing if it is raised without any row.

    First those that raise alone, by bisection; then, should the rest still raise together, the last row of the
    shortest beginning that does. ``suspects`` have null keys: if the first of them raises alone, all are to blame.
    """
    if attempt(rows[:0]) is not None:
        return
    blamed: set[int] = set()
    if suspects is not None and len(suspects):
        error = attempt(suspects[:1])
        if error is not None:
            blamed.update(suspects.tolist())
            yield from (Culprit(row, error, NULL_KEY) for row in suspects.tolist())
            rows = np.setdiff1d(rows, suspects, assume_unique=True)
    for culprit in _alone(rows, attempt):
        blamed.add(culprit.row)
        yield culprit
    rest = rows[~np.isin(rows, np.fromiter(blamed, np.int64, len(blamed)))]
    while len(rest) and (error := attempt(rest)) is not None:
        at, error = _last_of_shortest(rest, attempt, error)
        yield Culprit(int(rest[at]), error, type(error).__name__)
        rest = np.delete(rest, at)


def _alone(rows: Rows, attempt: Attempt) -> Iterator[Culprit]:
    """Rows that raise by themselves, in order."""
    # Parts still to be looked at, the next one last; of some it is known already that they raise.
    parts = [(rows, False)]
    while parts:
        part, raises = parts.pop()
        if len(part) == 0:
            continue
        if not raises or len(part) == 1:
            error = attempt(part)
            if error is None:
                continue
            if len(part) == 1:
                yield Culprit(int(part[0]), error, type(error).__name__)
                continue
        left, right = part[: len(part) // 2], part[len(part) // 2 :]
        if attempt(left) is None:
            parts.append((right, True))
        else:
            parts += [(right, False), (left, True)]


def _last_of_shortest(rows: Rows, attempt: Attempt, error: Exception) -> tuple[int, Exception]:
    """Where the shortest beginning of ``rows`` that raises ends, and what it raises; all of them do."""
    passes, raises = 0, len(rows)
    while raises - passes > 1:
        middle = (passes + raises) // 2
        found = attempt(rows[:middle])
        if found is None:
            passes = middle
        else:
            raises, error = middle, found
    return raises - 1, error


class Chooser:
    """Walks over batches of numbered rows, and gives out what of each was chosen."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._at = 0

    def of(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """The chosen rows of the next batch, as a batch; it may be empty."""
        first, self._at = self._at, self._at + items.num_rows
        low, high = np.searchsorted(self._rows, (first, self._at))
        if high - low == items.num_rows:
            return items
        chosen = self._rows[low:high] - first
        if len(chosen) == 0 or chosen[-1] - chosen[0] + 1 == len(chosen):
            return items.slice(int(chosen[0]) if len(chosen) else 0, len(chosen))
        return items.take(pa.array(chosen))
