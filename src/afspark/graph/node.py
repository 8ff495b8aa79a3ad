"""One operator of a pipeline, with everything that is decided for it, and where its items come from."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException

from afspark.errors import UsageError
from afspark.model.onbad import BAD_LIMIT, OnBad, check_on_bad
from afspark.model.operator import Operator, Transform
from afspark.model.user_trace import place_of_code
from afspark.model.windows import Window, WindowProgress
from afspark.policies import MiniBatch, Tolerance, parameters, refuse_if_unfit

#: What a source is called where a pipeline has only one.
SOURCE = ""


@dataclass(frozen=True)
class Edge:
    """Where items come from (a source or an operator), and the stateless steps on their way."""

    origin: str
    transforms: tuple[Transform, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Node:
    """One operator of a pipeline, with everything that is decided per operator."""

    #: what it is known by, here and in its checkpoint: of an operator of the user's, its id
    name: str
    operator: Operator
    inputs: tuple[Edge, ...] = (Edge(SOURCE),)
    workers: int = 2
    tolerance: Tolerance = field(default_factory=MiniBatch)
    keyed: bool = False
    window: Window | None = None
    #: share of the pipeline's budget; None: an equal one
    weight: float | None = None
    #: operators upstream that it may send feedback to
    feeds_back: tuple[str, ...] = ()
    #: keeps the rows that a batch changed, for a sink in update mode
    emits: bool = False
    #: keeps what it sends, for a sink in append mode
    appends: bool = False
    #: added by a rewrite: no operator of the user's, so without a part of the budget
    internal: bool = False
    #: of an internal node that passes items on to one operator alone: that operator
    stands_for: str | None = None
    #: what happens to bad items; None: as the operator or the source has it
    on_bad: OnBad | None = None
    #: how many items of one batch a worker may find bad one by one
    bad_limit: int = BAD_LIMIT
    #: what the user calls it, if that is not its id
    alias: str = ""

    def __post_init__(self) -> None:
        self._make_plain()
        if self.on_bad is not None:
            check_on_bad(self.on_bad)
        if self.keyed and not self.operator.key:
            raise UsageError(
                f"{type(self.operator).__name__} has no key, so its state cannot be partitioned by key.",
                remedy="Give the operator a `key`, or let it run on local shares.",
            )
        specs = self.operator.states()
        for state in specs:
            if "@" in state or "." in state or not state:
                raise UsageError(f"{state!r} cannot be the name of a state.", remedy="Use letters, digits and _.")
        if self.window is not None:
            WindowProgress.start(self.window, workers=self.workers)
            for state, spec in specs.items():
                self.window.check_state(state, spec)
        refuse_if_unfit(self.operator, self.tolerance)
        if not self.internal:
            _check_picklable(self.title, self.operator)

    def _make_plain(self) -> None:
        """Numbers of any kind become plain ones, which JSON knows."""
        if not isinstance(self.tolerance, Tolerance):
            raise UsageError(
                f"The tolerance of {self.title!r} is no policy: {parameters.shown(self.tolerance)}.",
                remedy="Make one, such as MiniBatch() or BarrierSnapshot(interval=1).",
            )
        plain: dict[str, Any] = {
            "workers": parameters.count("workers", self.workers, f"It is how many workers {self.title!r} has."),
            "bad_limit": parameters.count("bad_limit", self.bad_limit, least=0),
        }
        if self.weight is not None:
            plain["weight"] = parameters.limit("weight", self.weight, "It is a part of the error budget, such as 0.5.")
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    @property
    def title(self) -> str:
        """What the user calls it."""
        return self.alias or self.name

    @property
    def addressee(self) -> str:
        """The operator to which items are sent that this node takes."""
        return self.stands_for or self.name

    def settings(self) -> dict[str, Any]:
        """What a checkpoint says of it, besides where the items come from."""
        return {
            "operator": self.operator.fingerprint(),
            "workers": self.workers,
            "keyed": self.keyed,
            **({"key": list(self.operator.key)} if self.keyed else {}),
            "window": self.window.to_json() if self.window else None,
            "feeds_back": list(self.feeds_back),
            "name": self.title,
            "tolerance": self.tolerance.to_json(),
        }


#: What is raised for code that cannot leave this process; the last one for a Spark session in it.
_NOT_SENT = (TypeError, AttributeError, pickle.PicklingError, PySparkException)


def check_transform(transform: Transform) -> None:
    """UsageError if workers cannot be sent this code."""
    try:
        cloudpickle.dumps(transform)  # type: ignore[no-untyped-call]
    except _NOT_SENT as error:
        name = getattr(transform, "__name__", type(transform).__name__)
        why = str(error).rstrip(".")
        raise UsageError(
            f"The transform {name!r}{place_of_code(transform)} cannot be sent to the workers: {why}.",
            remedy="Let it use plain values, and no Spark session, DataFrame, open file or lock.",
        ) from error


def _check_picklable(name: str, operator: Operator) -> None:
    try:
        cloudpickle.dumps(operator)  # type: ignore[no-untyped-call]
    except _NOT_SENT as error:
        raise UsageError(
            f"Operator {name!r} cannot be sent to the workers: {error}.",
            remedy="Open files, connections and locks in begin(), and keep only plain values as attributes.",
        ) from error
