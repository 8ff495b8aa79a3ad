"""Runs of a pipeline under tolerances, with real backups and recoveries, that real faults strike.

One run without faults keeps a copy of the query shortly before each offset; every trial goes on from there, so that the
items before the fault are processed once.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from afspark.graph.graph import Graph
from afspark.graph.injector import Inlet, StreamFault, injecting
from afspark.graph.node import Node
from afspark.graph.pipeline import Pipeline
from afspark.graph.rewrites import REWRITES, rewritten
from afspark.lab.application import Application
from afspark.lab.bound_verdicts import StateCells, within_bounds
from afspark.lab.campaign_units import golden_of
from afspark.lab.fault_trials import TrialOutput, has_passed, is_golden, span_ends, with_neighbours
from afspark.lab.golden_runs import GoldenRun
from afspark.lab.real_faults import HOSTS, NoFault, RealFault
from afspark.lab.study_plan import StudyPlan
from afspark.lab.trial_query import TrialQuery, trial_query

_TOLERANCES = "tolerances"
_READY = "ready"


@dataclass(frozen=True)
class ProtectedTrial:
    """What came out of a run with a real fault, and what the query says of it."""

    output: TrialOutput
    #: how many losses of state were declared
    losses: int
    #: the longest of their recoveries
    recovery_seconds: float
    #: how long the batches under the fault took, of which the recovery is a part
    seconds: float
    #: by operator and state: how far it can be off, where that is not 0
    bounds: Mapping[str, Mapping[str, float]]
    #: no loss can have changed anything, so that the output has to be golden
    exact: bool
    #: whether no state is farther from the golden one than that; None: nobody has asked, or it cannot be said
    within_bound: bool | None = None


@dataclass(frozen=True)
class ProtectedRuns:
    """The first repetition under the tolerances of ``graph``; copies are in ``folder``.

    Injectors are in front of the inputs, because what a source itself loses no policy brings back.
    """

    plan: StudyPlan
    graph: Graph
    folder: Path

    @cached_property
    def golden(self) -> GoldenRun:
        return golden_of(self.plan, 0)

    @cached_property
    def application(self) -> Application:
        return self.plan.application(0)

    def prepare(self) -> None:
        """Runs without faults up to the last offset, unless that was done before."""
        told = self.folder / _TOLERANCES
        tolerances = repr({node.name: node.tolerance for node in self.graph.nodes})
        if (self.folder / _READY).exists() and told.read_text() == tolerances:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        told.write_text(tolerances)
        begins = [self._begin(offset) for offset in range(len(self.plan.offsets))]
        with self._query({}) as query:
            while query.batch_number < max(begins):
                query.advance()
                if query.batch_number in begins:
                    query.keep(self._place(query.batch_number))
        (self.folder / _READY).touch()

    def trial(
        self,
        offset: int,
        fault: RealFault | None = None,
        loss: Mapping[Inlet, StreamFault] | None = None,
        *,
        judged: bool = False,
    ) -> ProtectedTrial:
        """A trial that begins shortly before an offset: a real fault strikes there, or injectors do what ``loss`` says.

        It ends when all states are those of the golden run again. ``judged``: if they never are, they are compared with
        those at the end of a run without faults.
        """
        batch, struck = self._batch(offset), fault or NoFault()
        begin = self._begin(offset)
        parts: list[pa.Table | None] = []
        with self._query(loss or {}, start=self._place(begin) if begin else None) as query:
            while query.batch_number < batch:
                parts.append(query.advance())
            known = len(query.ledger())
            began = time.perf_counter()
            with struck.striking(query):
                for _ in range(min(struck.batches, self.golden.batches - batch)):
                    parts.append(query.advance())
            seconds = time.perf_counter() - began
            last = self._until_golden(query, parts, loss or {})
            ledger = query.ledger()[known:]
            told = {node.name: query.bounds(node.name) for node in self.graph.nodes}
            bounds = {name: off for name, each in told.items() if (off := {k: v for k, v in each.items() if v})}
            exact = not bounds and not any(query.upstream_losses(node.name) for node in self.graph.nodes)
            within = self._within_bounds(query, bounds, last) if judged else None
        return ProtectedTrial(
            TrialOutput(self.golden, begin, last, _joined(parts, self.golden)),
            len(ledger),
            max((entry["recovery_seconds"] or 0.0 for entry in ledger), default=0.0),
            seconds,
            bounds,
            exact,
            within,
        )

    def _until_golden(self, query: TrialQuery, parts: list[pa.Table | None], loss: Mapping[Inlet, StreamFault]) -> int:
        """Goes on until all losses are over and the states are golden; the batch from which on the output is."""
        digests, ends = self.golden.digests, span_ends(loss, {node.name for node in self.graph.nodes})
        while not (
            digests and has_passed(query.counts(list(ends)), ends) and is_golden(query, digests[query.batch_number - 1])
        ):
            if query.batch_number == self.golden.batches:
                parts.append(query.finish())
                return self.golden.batches + 1
            parts.append(query.advance())
        return query.batch_number

    def _within_bounds(self, query: TrialQuery, bounds: Mapping[str, Mapping[str, float]], last: int) -> bool | None:
        if last <= self.golden.batches:
            return True
        if not self.application.comparable:
            return None
        # What others have lost is not in the bounds of those who would have got it.
        own = [node for node in self._stateful if not query.upstream_losses(node.name)]
        divergences = {
            node.name: {state: spec.distance for state, spec in node.operator.states().items()} for node in own
        }
        return within_bounds({node.name: query.cells(node.name) for node in own}, self._end, bounds, divergences)

    @property
    def _stateful(self) -> list[Node]:
        return [node for node in self.graph.nodes if node.operator.states()]

    @cached_property
    def _end(self) -> StateCells:
        """The states at the end of the input, without faults."""
        begin = max(self._begin(offset) for offset in range(len(self.plan.offsets)))
        with self._query({}, start=self._place(begin) if begin else None) as query:
            while query.batch_number < self.golden.batches:
                query.advance()
            return {node.name: query.cells(node.name) for node in self._stateful}

    def _query(
        self, loss: Mapping[Inlet, StreamFault], start: Path | None = None
    ) -> AbstractContextManager[TrialQuery]:
        application = self.application
        return trial_query(self._pipeline(loss), application.output, application.mode, start=start, hosts=HOSTS)

    def _pipeline(self, loss: Mapping[Inlet, StreamFault]) -> Pipeline:
        entrances = {
            Inlet(node.name, number): StreamFault()
            for node in self.graph.nodes
            for number, edge in enumerate(node.inputs)
            if edge.origin in self.graph.sources
        }
        return rewritten(self.graph, (*REWRITES, injecting(with_neighbours(self.application, {**entrances, **loss}))))

    def _batch(self, offset: int) -> int:
        return self.plan.interleaving(0).batch_of(self.plan.offsets[offset])

    def _begin(self, offset: int) -> int:
        """The batch with which a trial begins: one before the fault, so that a new driver has found its workers."""
        return max(0, self._batch(offset) - 1)

    def _place(self, batch: int) -> Path:
        return self.folder / f"batch-{batch}"


def _joined(parts: list[pa.Table | None], golden: GoldenRun) -> pa.Table:
    found = [part for part in parts if part is not None]
    return pa.concat_tables(found) if found else golden.output.slice(0, 0)
