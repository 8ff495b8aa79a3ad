"""Which failures count for a window: when thresholds that were halved may grow again.

The stream is cut into panes, numbered in order; a worker holds the state of the *open* ones. A failure hits
every pane that was open at its moment, and no other. AF-Stream, section 3.5.2:

- hopping: a window is one pane. It counts the failures that hit it, so a new window starts with the full
  threshold.
- sliding: a window is the last ``panes`` panes and its error the sum of theirs, so each pane gets 1/``panes``
  of a window's threshold (`Place.panes`). A failure counts while the window reaches back to a pane it hit.
- decaying: old errors fade, nothing is halved. The promise is then Σ decay^age · θ over the failures.
- none: one window that never closes; every failure counts.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass

from afspark.bounds.general import times
from afspark.errors import UsageError


class Windowing(enum.StrEnum):
    """How results forget. The text forms ("hopping" ...) are accepted wherever one is expected."""

    NONE = "none"
    HOPPING = "hopping"
    SLIDING = "sliding"
    DECAYING = "decaying"

    @classmethod
    def parse(cls, name: Windowing | str) -> Windowing:
        """The windowing of that name; ``UsageError`` lists what is allowed."""
        try:
            return cls(name)
        except ValueError:
            allowed = [member.value for member in cls]
            raise UsageError(
                f"Unknown kind of window {name!r}.", remedy=f"Use one of {', '.join(allowed)}.", got=name
            ) from None


@dataclass(frozen=True)
class Failure:
    """A counted failure of one worker, with the range of panes that were open at its moment, both included."""

    first_open: int
    newest: int

    def __post_init__(self) -> None:
        if self.first_open > self.newest:
            raise ValueError(f"panes {self.first_open} to {self.newest} are no range")

    def hits(self, first: int, last: int) -> bool:
        """Whether any of the panes ``first`` to ``last`` was open."""
        return self.first_open <= last and first <= self.newest


def failures_in_force(kind: Windowing | str, failures: Iterable[Failure], pane: int, panes: int = 1) -> int:
    """k: how many of a worker's failures so far halve the threshold of ``pane``.

    ``panes`` is the length of a sliding window; other kinds ignore it.

    >>> failures_in_force("hopping", [Failure(3, 4)], pane=4), failures_in_force("hopping", [Failure(3, 4)], pane=5)
    (1, 0)
    >>> [failures_in_force("sliding", [Failure(3, 4)], pane=pane, panes=3) for pane in (2, 3, 6, 7)]
    [0, 1, 1, 0]
    """
    match Windowing.parse(kind):
        case Windowing.NONE:
            return sum(1 for _ in failures)
        case Windowing.HOPPING:
            return sum(failure.hits(pane, pane) for failure in failures)
        case Windowing.SLIDING:
            oldest = pane - _length(panes) + 1
            return sum(failure.hits(oldest, pane) for failure in failures)
        case Windowing.DECAYING:
            return 0


def decayed(losses: Iterable[tuple[float, float]], decay: float) -> float:
    """What is left of losses under a decaying window: Σ decay^age · θ over pairs of (age, θ in force).

    A loss of a later tick (of negative age) weighs more in the units of this one. Of an infinite loss that has faded
    to nothing, nothing is left.

    >>> decayed([(0, 100.0), (2, 100.0)], decay=0.5)
    125.0
    """
    _check_decay(decay)
    return math.fsum(times(theta, _faded(decay, age)) for age, theta in losses)


def _faded(decay: float, age: float) -> float:
    try:
        return float(decay**age)
    except (OverflowError, ZeroDivisionError):
        return math.inf


def _check_decay(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise UsageError(f"A decay is a factor from 0 to 1, not {decay!r}.", got=decay)


def _length(panes: int) -> int:
    if panes < 1:
        raise UsageError(f"A sliding window has at least one pane, not {panes!r}.", got=panes)
    return panes
