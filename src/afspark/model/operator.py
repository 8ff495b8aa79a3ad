"""What a user writes: operators with declared states, and stateless transforms in front of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from afspark.model.onbad import OnBad
from afspark.model.states import State, StateSpec
from afspark.model.training import Training
from afspark.model.windows import Punctuation

#: A stateless step: takes an Arrow batch, gives one back, or None where nothing is left of it.
Transform = Callable[[pa.RecordBatch], pa.RecordBatch | None]


class Outbox:
    """Where an operator puts what it sends besides the items it returns."""

    def send(self, items: pa.RecordBatch, *, to: str) -> None:
        """Data items for one of the operators downstream, instead of all of them."""
        raise NotImplementedError

    def feed_back(self, items: pa.RecordBatch, *, to: str) -> None:
        """Feedback items for an operator upstream; they reach its ``on_feedback`` in the next batch."""
        raise NotImplementedError


@dataclass(kw_only=True)
class WorkerContext:
    """What an operator may know of its place: which worker of how many, and which batch.

    ``missing`` is, per state, the most that earlier failures of this worker may have taken from any cell:
    the compensation of sketches. It comes from the durable ledger, never from the state itself. ``lost`` is
    what the last of them alone may have taken (for ``on_recover``), ``lost_items`` how many waiting items
    went with it; ``losable_items`` how many pushed items all failures of this worker together can take at most, where
    that is limited. ``input`` names where the items being processed come from: an operator, or "" for the source.
    """

    worker: int
    workers: int
    batch: int
    missing: Mapping[str, float] = field(default_factory=dict)
    lost: Mapping[str, float] = field(default_factory=dict)
    lost_items: int = 0
    losable_items: float = 0.0
    input: str = ""
    outbox: Outbox = field(default_factory=Outbox)
    #: of a worker that trains a model with others: an `Exchange`; of the operator that has the model: a `MergedModel`
    exchange: Any = None
    #: numbers that the progress of the batch shows beside the worker; JSON, and nothing is concluded from them
    metrics: dict[str, Any] = field(default_factory=dict)


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
        """Takes one more batch of items."""
        raise NotImplementedError

    def finish(self) -> pa.RecordBatch | None:
        """What the items came to; None if nothing did."""
        raise NotImplementedError


class Operator:
    """User code with resident state.

    A subclass declares ``states`` (none: a stateless operator) and implements ``process``. One instance serves
    one worker for one batch, so plain attributes are scratch space and vanish; what must last goes into a state.

    ``key`` names the columns that decide which worker owns an item when the operator runs keyed; an operator
    without a key runs on local shares that are merged when results are asked for.

    What ``process``, ``finish``, ``on_punctuation`` and ``on_feedback`` return goes to all operators downstream.
    """

    #: columns whose hash picks the worker when state is partitioned by key
    key: ClassVar[tuple[str, ...]] = ()
    #: the most items that one item can become downstream (β)
    fan_out: ClassVar[float] = 1.0
    #: the most one item, before any combining, can change the divergence of a state (α); None: not known. It is for a
    #: pushed item as it enters, with all rows that a `map` before the operator makes of it: ten rows, ten times as much
    alpha: float | None = None
    #: True, or the reason why approximate recovery would break the operator
    approximable: bool | str = True
    #: whether what it sends, items or feedback, depends on its states; False: on the items that it got alone, so that
    #: whoever reads from it has lost nothing when a state of it is lost
    sends_by_state: ClassVar[bool] = True
    #: what happens to items that it raises on; None: as their source has it
    on_bad: OnBad | None = None
    #: whether its state can be divided among another number of workers: True, or why not. None: as far as afspark
    #: knows by itself. For local shares True means: they can be added up, and an empty one more changes no result
    rescalable: bool | str | None = None
    #: the model that its workers train together, if they do
    training: Training | None = None
    #: set before any other method is called for a batch
    context: WorkerContext

    def states(self) -> Mapping[str, StateSpec]:
        """The operator's states by name. Called once per start; must always answer the same."""
        return {}

    def check(self, schema: pa.Schema | None) -> None:
        """Raises UsageError if the stream's columns do not fit. ``schema`` is None where it is not known."""

    def combiner(self) -> Combiner | None:
        """A combiner for this operator's items, if they can be shrunk before they meet the state."""
        return None

    def prepare(self) -> None:
        """Builds static data that all tasks of a process share, such as lookup tables behind ``functools.cache``.

        Called where a worker may have to live next (`Deployed` and the schemes above it), now and then and before it is
        needed. Whoever needs the data builds it if nobody has.
        """

    def begin(self, states: Mapping[str, State], context: WorkerContext) -> None:
        """The engine calls it before the first item of a batch (with windows: of each pane that the batch touches)."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        """Updates the states by a batch of items. Must depend on nothing but them and earlier items."""
        raise NotImplementedError

    def finish(self, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        """The engine calls it after the last item of a batch (with windows: of the pane)."""

    def on_punctuation(self, punctuation: Punctuation, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        """A window, of this operator or of one upstream, or the stream has ended.

        For a window of its own ``states`` are the window's, about to be dropped; else those of the operator.
        """

    def on_feedback(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        """Items that an operator downstream has sent back in the batch before."""

    def on_recover(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        """The engine calls it once after a loss, with the restored states; ``context.lost``: what may be missing."""

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

    def keys_of(self, state: str, cells: pa.RecordBatch) -> pa.RecordBatch | None:
        """The columns of ``key`` for cells of a state, one row for each, so that they go with their key when a keyed
        operator is given another number of workers; None if the state belongs to no key, and can be added up.

        Not called for tables with ``operator_key``. Without it an operator with other states keeps its workers.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say which keys the cells of {state!r} belong to")

    def fingerprint(self) -> dict[str, Any]:
        """What a checkpoint says of this operator, as JSON: its class, which may get another name, its states, and what
        else the state depends on; whoever adds to that has a changed value refused.
        """
        return {
            "operator": type(self).__qualname__,
            "states": {name: spec.to_json() for name, spec in self.states().items()},
        }
