"""The kinds of windows, as users declare them."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, cast

import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.divergence import Divergence
from afspark.model.states.state import StateSpec, one_of
from afspark.model.windows.amounts import amount, exact
from afspark.model.windows.times import check_type, pane_of
from afspark.numbers import PaneNumber

BY = ("event", "processing", "count")


class Window(ABC):
    """A rule that cuts a stream into panes, numbered by integers, and panes into windows.

    Pane p covers [p * size, (p + 1) * size); the window q is the last ``panes`` panes up to and including q.
    ``by`` says what is measured:

    - "event": the time in ``column``: numbers in the unit of the length, or timestamps and dates, with the
      length in seconds. A window stays open until a time of ``delay`` after its end has been seen.
    - "processing": the time of the batch that brings the item, in seconds.
    - "count": items over all workers. Each of n workers fills an n-th of every pane; a pane that cannot be
      divided so is refused.

    Lengths may be given as timedelta.
    """

    kind: ClassVar[str]
    #: whether every pane has states of its own; else one set serves all of them, and fades
    has_panes: ClassVar[bool] = True
    column: str | None
    by: str
    delay: float | timedelta

    @property
    @abstractmethod
    def size(self) -> float:
        """Length of a pane; an int wherever it is whole."""

    @property
    def panes(self) -> int:
        """Number of panes in a window."""
        return 1

    @property
    def kept_per_tick(self) -> float:
        """What a state keeps of its values from one pane to the next; less than 1 where it fades."""
        return 1.0

    @property
    def patience(self) -> float:
        """The delay as a number."""
        return cast(float, self.delay)

    def edge(self, pane: int) -> float:
        """Where a pane begins."""
        return pane * self.size

    def pane(self, time: float) -> PaneNumber:
        """The pane that a time lies in."""
        return pane_of(time, self.size)

    def quota(self, workers: int) -> int:
        """Items that each worker puts into a pane of a window by count."""
        share, rest = divmod(int(self.size), workers)
        if rest:
            fitting = (share + 1) * workers
            raise UsageError(
                f"Panes of {self.size} items cannot be divided evenly among {workers} workers.",
                remedy=f"Use a multiple of {workers}, for example {fitting}.",
                items=self.size,
                workers=workers,
            )
        return share

    def check(self, schema: pa.Schema | None) -> None:
        """Raises UsageError if the stream has no usable time column. A schema of None is not known yet."""
        if schema is None or self.column is None:
            return
        if schema.names.count(self.column) != 1:
            raise UsageError(
                f"The window needs one column {self.column!r}; the stream has {', '.join(schema.names)}.",
                remedy="Name the column that holds the time of an item.",
                column=self.column,
            )
        check_type(self.column, schema.field(self.column).type)

    def check_state(self, name: str, spec: StateSpec) -> None:  # noqa: B027 - most windows take every state
        """Raises UsageError if an operator with such windows cannot have the state."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object that names the kind and all parameters."""
        return {"kind": self.kind} | {name: getattr(self, name) for name in self._parameters()}

    @staticmethod
    def from_json(document: dict[str, Any]) -> Window:
        """Inverse of :meth:`to_json`; ``UsageError`` for unknown kinds and parameters."""
        kinds: dict[str, type[Window]] = {one.kind: one for one in (Hopping, Sliding, Decaying)}
        one_of("kind of window", document.get("kind"), kinds)
        chosen = kinds[document["kind"]]
        given = {name: value for name, value in document.items() if name != "kind"}
        for name in given:
            one_of(f"parameter of a {chosen.kind} window", name, chosen._parameters())
        return chosen(**given)

    @classmethod
    def _parameters(cls) -> list[str]:
        return [entry.name for entry in dataclasses.fields(cast(Any, cls)) if entry.init]

    def _check_fields(self, **amounts: float) -> None:
        """Checks what all kinds have in common; ``amounts`` replace the fields of the same names."""
        one_of("measure of a window", self.by, BY)
        amounts["delay"] = amount("delay", self.delay, positive=False)
        for name, number in amounts.items():
            object.__setattr__(self, name, number)
        if (self.by == "event") != (self.column is not None):
            needs = "needs the column" if self.by == "event" else "takes no column"
            raise UsageError(
                f"A window by {self.by} {needs}: column is {self.column!r}.",
                remedy="Give column= for event time, and only there; without one use by='processing' or by='count'.",
                by=self.by,
                column=self.column,
            )
        if self.column is not None and not isinstance(self.column, str):
            raise UsageError(f"column is the name of a column, got {self.column!r}.", column=self.column)
        if self.by != "event" and self.delay:
            raise UsageError(
                f"A window by {self.by} cannot wait for late items: delay is {self.delay}.",
                remedy="Leave delay away, or use event time.",
                by=self.by,
                delay=self.delay,
            )
        if self.by == "count" and not isinstance(self.size, int):
            raise UsageError(f"A window by count has a whole number of items, got {self.size}.", got=self.size)


@dataclass(frozen=True)
class Hopping(Window):
    """Windows one after the other, without overlap.

    >>> minutes = Hopping(60, column="time", delay=5)
    >>> minutes.pane(119.5), minutes.edge(1)
    (1, 60)
    """

    kind: ClassVar[str] = "hopping"
    length: float | timedelta
    _: KW_ONLY
    column: str | None = None
    by: str = "event"
    delay: float | timedelta = 0

    def __post_init__(self) -> None:
        self._check_fields(length=amount("length", self.length))

    @property
    def size(self) -> float:
        return cast(float, self.length)


@dataclass(frozen=True)
class Sliding(Window):
    """Windows of ``length`` that end every ``slide``; the length is a whole multiple of the slide.

    >>> Sliding(0.3, 0.1, by="processing").panes
    3
    """

    kind: ClassVar[str] = "sliding"
    length: float | timedelta
    slide: float | timedelta
    _: KW_ONLY
    column: str | None = None
    by: str = "event"
    delay: float | timedelta = 0

    def __post_init__(self) -> None:
        self._check_fields(length=amount("length", self.length), slide=amount("slide", self.slide))
        if (exact(cast(float, self.length)) / exact(self.size)).denominator != 1:
            raise UsageError(
                f"The length {self.length} is no whole multiple of the slide {self.slide}.",
                remedy="Choose a slide that divides the length.",
                length=self.length,
                slide=self.slide,
            )

    @property
    def size(self) -> float:
        return cast(float, self.slide)

    @cached_property
    def panes(self) -> int:
        return int(exact(cast(float, self.length)) / exact(self.size))

    def check_state(self, name: str, spec: StateSpec) -> None:
        if not spec.mergeable:
            raise UsageError(
                f"The panes of a sliding window cannot be added up for the state {name!r}.",
                remedy="Use one of the primitives, or a hopping window.",
            )


@dataclass(frozen=True)
class Decaying(Window):
    """All items, the older the lighter: one of tick p weighs ``decay`` ** (now - p); a tick lasts ``every``.

    Every tick that brought items ends with a punctuation. No item is late: an old one is light.
    """

    kind: ClassVar[str] = "decaying"
    has_panes: ClassVar[bool] = False
    decay: float
    every: float | timedelta
    _: KW_ONLY
    column: str | None = None
    by: str = "event"
    delay: float | timedelta = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.decay, bool) or not isinstance(self.decay, Real) or not 0 < self.decay < 1:
            raise UsageError(
                f"decay lies between 0 and 1, got {self.decay!r}.",
                remedy="Use a number such as 0.9: the weight an item keeps from one tick to the next.",
                got=self.decay,
            )
        self._check_fields(decay=float(self.decay), every=amount("every", self.every))

    @property
    def size(self) -> float:
        return cast(float, self.every)

    @property
    def kept_per_tick(self) -> float:
        return self.decay

    def check_state(self, name: str, spec: StateSpec) -> None:
        check_decayable(spec)


def check_decayable(spec: StateSpec) -> None:
    """``UsageError`` unless a state of this kind can fade: its values must be real numbers."""
    value = getattr(spec, "value", None)
    if value != "float64":
        held = f"holds {value} values" if value else "does not hold numbers"
        raise UsageError(
            f"A {spec.kind} that {held} cannot decay.",
            remedy="Declare the state with value='float64'.",
            kind=spec.kind,
            value=value,
        )
    if spec.distance is Divergence.KEYS:
        raise UsageError(
            f"A {spec.kind} whose divergence counts keys cannot decay: a missing key stays missing.",
            remedy="Use the divergence 'max', 'manhattan' or 'euclidean'.",
            kind=spec.kind,
            divergence=spec.distance.value,
        )
