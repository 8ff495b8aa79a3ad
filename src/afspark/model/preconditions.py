"""Does an operator meet the precondition of approximate fault tolerance? Tried out, without Spark.

The bounds hold for operators whose state is a function of the items consumed, each of which changes it by at
most ``alpha``, and whose updates do not enlarge a difference between two states. Tests cannot prove that, but
they find most of what breaks it::

    check_operator(MyOperator(), batches).raise_if_broken()
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.distances import Cells, cells_of, distance, same
from afspark.model.operator import Operator, Outbox, WorkerContext
from afspark.model.states import HeapColumns, Own, StateSpec

#: Relative error that sums of floats may show.
_ROUNDING = 1e-9


class Flaw(enum.StrEnum):
    """What a check can find."""

    NOT_DETERMINISTIC = "not deterministic"
    HIDDEN_ATTRIBUTES = "hidden attributes"
    ALPHA_TOO_SMALL = "alpha too small"
    EXPANSIVE = "expansive"

    @property
    def remedy(self) -> str:
        return _REMEDIES[self]


_REMEDIES = {
    Flaw.NOT_DETERMINISTIC: "Compute the state from the items alone.",
    Flaw.HIDDEN_ATTRIBUTES: "Keep what must outlast a batch in a state.",
    Flaw.ALPHA_TOO_SMALL: "Declare a larger alpha, or None if there is no limit.",
    Flaw.EXPANSIVE: "Declare the reason as `approximable`, and use MiniBatch().",
}


@dataclass(frozen=True)
class Finding:
    """One flaw, seen in one state, with the evidence in words."""

    flaw: Flaw
    state: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.flaw} (state {self.state!r}): {self.evidence}. {self.flaw.remedy}"


class PreconditionBroken(AssertionError):
    """An operator does not meet the precondition. Fields: ``findings``."""

    def __init__(self, message: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message, findings)
        self.message, self.findings = message, tuple(findings)

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, kw_only=True)
class Conformance:
    """What the checks found.

    ``observed`` is, per state, the largest change that one item made: a lower limit for ``alpha``.
    ``unchecked`` says what could not be examined, and why.
    """

    operator: str
    findings: tuple[Finding, ...] = ()
    observed: Mapping[str, float] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()

    @property
    def flaws(self) -> set[Flaw]:
        return {finding.flaw for finding in self.findings}

    def raise_if_broken(self) -> None:
        if self.findings:
            raise PreconditionBroken(str(self), self.findings)

    def __str__(self) -> str:
        if not self.findings:
            return f"{self.operator} meets the precondition of approximate recovery as far as it was tried."
        head = f"{self.operator} does not meet the precondition of approximate recovery:"
        return "\n".join([head, *(f"- {finding}" for finding in self.findings)])


def check_operator(
    operator: Operator, batches: Sequence[pa.RecordBatch], *, seeds: Iterable[int] = range(3), steps: int = 100
) -> Conformance:
    """Tries ``operator`` on ``batches``, which should be typical and reach the levels it reacts to, if any.

    - *determinism*: the same items give the same state;
    - *nothing but items*: a fresh instance for every batch, as tasks use, and one for all agree;
    - *bounded*: no item changes a state by more than ``alpha`` (where it is declared);
    - *non-expansive*: a state and one that misses some items do not move apart when both see the same item.

    The last two take, for each of ``seeds``, a random walk of at most ``steps`` items. States declared exact
    are left out of them, because failures take nothing from those.
    """
    stream = [batch for batch in batches if batch.num_rows]
    if not stream:
        raise UsageError("An operator cannot be checked without items.", remedy="Give batches with some rows.")
    operator.check(stream[0].schema)
    trial = _Trial(operator, operator.states(), stream)
    numbers = list(seeds)
    for _ in numbers:
        trial.check_determinism()
    if trial.found:
        return trial.result("everything but determinism, because repeated runs differ")
    trial.check_attributes()
    for seed in numbers:
        trial.check_walk(np.random.default_rng(seed), steps)
    return trial.result(*(["bounded: alpha is not declared"] if operator.alpha is None else []))


class _Nowhere(Outbox):
    """What is sent during a check goes nowhere."""

    def send(self, items: pa.RecordBatch, *, to: str) -> None: ...

    def feed_back(self, items: pa.RecordBatch, *, to: str) -> None: ...


def _apart(spec: StateSpec, left: Cells, right: Cells) -> float:
    """The distance of two states by the measure of their kind; only a state of the user's own knows its own."""
    if not isinstance(spec, Own):
        return distance(spec.distance, left, right)
    images = [next((key[0] for key in cells), b"") for cells in (left, right)]
    return spec.apart(images[0], images[1])


class _Share:
    """The states of one worker, in memory."""

    def __init__(self, specs: Mapping[str, StateSpec]) -> None:
        columns = HeapColumns()
        self.specs, self.batch = specs, 0
        self.states: dict[str, Any] = {name: spec.open(columns, name) for name, spec in specs.items()}

    def apply(self, operator: Operator, items: Sequence[pa.RecordBatch]) -> int:
        """One batch; the number of items in it as the user counts them."""
        for state in self.states.values():
            state.begin()
        operator.context = WorkerContext(worker=0, workers=1, batch=self.batch, outbox=_Nowhere())
        operator.begin(self.states, operator.context)
        count = sum(batch.num_rows for batch in items)
        combiner = operator.combiner()
        if combiner is not None:
            for batch in items:
                combiner.add(batch)
            combined = combiner.finish()
            items = [combined] if combined is not None and combined.num_rows else []
            count = combiner.items
        for batch in items:
            operator.process(batch, self.states)
        operator.finish(self.states)
        for state in self.states.values():
            state.update_drift()
        self.batch += 1
        return count

    def recovered(self, lossy: _Share) -> _Share:
        """The states after a failure: exact ones are those of this share, the others those of ``lossy``."""
        twin = _Share(self.specs)
        twin.batch = self.batch
        for name, state in twin.states.items():
            source = self if self.specs[name].exact else lossy
            state.restore([source.states[name].export()])
        return twin

    def cells(self) -> dict[str, Cells]:
        return {name: cells_of(state.export()) for name, state in self.states.items()}


class _Trial:
    def __init__(self, operator: Operator, specs: Mapping[str, StateSpec], stream: Sequence[pa.RecordBatch]) -> None:
        self.operator, self.specs, self.stream = operator, specs, stream
        self.items = pa.Table.from_batches(stream)
        self.found: dict[tuple[Flaw, str], Finding] = {}
        self.observed: dict[str, float] = {}
        self.expected = self._run(fresh=True)

    def result(self, *unchecked: str) -> Conformance:
        return Conformance(
            operator=type(self.operator).__name__,
            findings=tuple(self.found.values()),
            observed=self.observed,
            unchecked=unchecked,
        )

    def check_determinism(self) -> None:
        self._compare(
            self._run(fresh=True), Flaw.NOT_DETERMINISTIC, "the same batches, applied twice, gave two different states"
        )

    def check_attributes(self) -> None:
        self._compare(
            self._run(fresh=False),
            Flaw.HIDDEN_ATTRIBUTES,
            "one instance for all batches and a fresh one for each gave different states, so attributes carry "
            "something from batch to batch, which a recovery loses",
        )

    def check_walk(self, random: np.random.Generator, steps: int) -> None:
        """Two shares, one of which has lost items, go on side by side, item by item."""
        consumed = random.random(len(self.items)) < random.random()
        kept = consumed & (random.random(len(self.items)) < random.random())
        ideal, lossy = self._after(consumed), self._after(kept)
        actual = ideal.recovered(lossy)
        before, behind = ideal.cells(), actual.cells()
        walk = np.sort(random.choice(len(self.items), min(steps, len(self.items)), replace=False))
        for position in walk:
            item = self._rows(np.array([position]))
            count = ideal.apply(self._instance(), item)
            actual.apply(self._instance(), item)
            after, follows = ideal.cells(), actual.cells()
            text = _shown(item[0])
            for name, spec in self.specs.items():
                if not spec.exact:
                    self._judge_change(name, _apart(spec, before[name], after[name]), count, text)
                    self._judge_gap(name, (before[name], behind[name]), (after[name], follows[name]), text)
            before, behind = after, follows

    def _judge_change(self, name: str, change: float, count: int, item: str) -> None:
        alpha = self.operator.alpha
        self.observed[name] = max(self.observed.get(name, 0.0), change / max(count, 1))
        if alpha is not None and not change <= alpha * count * (1 + _ROUNDING):
            allowed = f"alpha allows {alpha * count:g}" + (f" for {count} items" if count != 1 else "")
            self._find(Flaw.ALPHA_TOO_SMALL, name, f"{item} changed the state by {change:g}, {allowed}")

    def _judge_gap(self, name: str, before: tuple[Cells, Cells], after: tuple[Cells, Cells], item: str) -> None:
        spec = self.specs[name]
        gap, grown = _apart(spec, *before), _apart(spec, *after)
        largest = max((abs(value) for cells in (*before, *after) for value in cells.values()), default=0.0)
        if not grown <= gap + _ROUNDING * (gap + largest):
            self._find(
                Flaw.EXPANSIVE, name, f"two states {gap:g} apart were {grown:g} apart after both had seen {item}"
            )

    def _compare(self, got: Mapping[str, Cells], flaw: Flaw, evidence: str) -> None:
        for name, cells in self.expected.items():
            if not same(cells, got[name]):
                self._find(flaw, name, evidence)

    def _find(self, flaw: Flaw, state: str, evidence: str) -> None:
        self.found.setdefault((flaw, state), Finding(flaw, state, evidence))

    def _run(self, *, fresh: bool) -> dict[str, Cells]:
        share, instance = _Share(self.specs), self._instance()
        for batch in self.stream:
            share.apply(self._instance() if fresh else instance, [batch])
        return share.cells()

    def _after(self, chosen: np.ndarray[Any, Any]) -> _Share:
        share = _Share(self.specs)
        rows = np.flatnonzero(chosen)
        if len(rows):
            share.apply(self._instance(), self._rows(rows))
        return share

    def _rows(self, positions: np.ndarray[Any, Any]) -> list[pa.RecordBatch]:
        return list(self.items.take(pa.array(positions)).combine_chunks().to_batches())

    def _instance(self) -> Operator:
        return copy.deepcopy(self.operator)


def _shown(item: pa.RecordBatch) -> str:
    text = repr(item.to_pylist()[0])
    return text if len(text) <= 80 else f"{text[:77]}..."
