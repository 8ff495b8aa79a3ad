"""What a user writes: operators with declared states, and stateless transforms in front of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from afspark.model.states import State, StateSpec

#: A stateless step: takes an Arrow batch, gives one back, or None where nothing is left of it.
Transform = Callable[[pa.RecordBatch], pa.RecordBatch | None]


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """What an operator may know of its place: which worker of how many, and which batch.

    ``missing`` is, per state, the most that earlier failures of this worker may have taken from any cell:
    the compensation of sketches. It comes from the durable ledger, never from the state itself.
    """

    worker: int
    workers: int
    batch: int
    missing: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Share:
    """One worker's exported state, as the results of an operator are computed from it."""

    worker: int
    cells: Mapping[str, pa.RecordBatch]
    missing: Mapping[str, float]


class Combiner:
    """Shrinks a worker's share of a batch before it meets state or an exchange.

    A fresh one serves each share: ``add`` is called for every Arrow batch, ``finish`` once. ``items`` counts
    what the user calls an item, before combining.
    """

    items: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        raise NotImplementedError

    def finish(self) -> pa.RecordBatch | None:
        raise NotImplementedError


class Operator:
    """User code with resident state.

    A subclass declares ``states`` and implements ``process``. One instance serves one worker for one batch,
    so plain attributes are scratch space and vanish; what must last goes into a state.

    ``key`` names the columns that decide which worker owns an item when the operator runs keyed; an operator
    without a key runs on local shares that are merged when results are asked for.
    """

    #: columns whose hash picks the worker when state is partitioned by key
    key: ClassVar[tuple[str, ...]] = ()
    #: the most one item, before any combining, can change the divergence of any state; None: not declared
    alpha: float | None = None
    #: whether the operator stands approximate recovery; a text is the reason why not
    approximable: bool | str = True

    def states(self) -> Mapping[str, StateSpec]:
        """The operator's states by name. Called once per start; must always answer the same."""
        raise NotImplementedError

    def check(self, schema: pa.Schema | None) -> None:
        """Raises UsageError if the stream's columns do not fit. ``schema`` is None where it is not known."""

    def combiner(self) -> Combiner | None:
        """A combiner for this operator's items, if they can be shrunk before they meet the state."""
        return None

    def begin(self, states: Mapping[str, State], context: WorkerContext) -> None:
        """Before the first item of a batch."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        """Updates the states by a batch of items. Must depend on nothing but them and earlier items."""
        raise NotImplementedError

    def finish(self, states: Mapping[str, Any]) -> None:
        """After the last item of a batch."""

    def changed(self, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        """Rows to emit in update mode: by default the cells of the only state that this batch touched."""
        (state,) = states.values()
        return self.rows(state.changed())

    def rows(self, cells: pa.RecordBatch) -> pa.RecordBatch:
        """Gives cells of the only state the shape of result rows; must keep one row per cell."""
        return cells

    def results(self, shares: Sequence[Share]) -> pa.Table:
        """Results from all workers' shares. Not called for operators with one HashTable, which Spark merges."""
        raise NotImplementedError(f"{type(self).__name__} holds several states and must define results()")

    def fingerprint(self) -> dict[str, Any]:
        """What makes a checkpoint of this operator unusable for another one, as JSON."""
        return {
            "operator": type(self).__qualname__,
            "states": {name: spec.to_json() for name, spec in self.states().items()},
        }
