"""What the trials of a campaign have come to, as the metrics take it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from afspark.graph.graph import Graph
from afspark.lab.advice import names
from afspark.lab.application import Application
from afspark.lab.campaign_units import (
    GOLDEN,
    CampaignUnit,
    golden_of,
    position_at,
    positions,
    read_result,
    section_count,
    target_outages,
)
from afspark.lab.golden_runs import GoldenRun
from afspark.lab.observations import Scores, TargetObservations
from afspark.lab.outage_spans import items_left, outage_end
from afspark.lab.scores import OutputScore
from afspark.lab.sections import Numbers, SectionsByKey, SectionsByTime, first_after, keys_of, seconds_of
from afspark.lab.study_plan import StudyPlan
from afspark.lab.study_result import AssessedEdge, AssessedNode, NodeKind
from afspark.lab.targets import Target, source_names
from afspark.lab.trial_scores import GoldenScores

SINK = "sink"


class Observer:
    """Reads the results of a campaign that is complete; ``threshold``: by which part a section may be off."""

    def __init__(self, plan: StudyPlan, threshold: float) -> None:
        self.plan, self.threshold = plan, threshold
        self.application: Application = plan.application(0)
        self.first: GoldenRun = golden_of(plan, 0)
        self.sections = section_count(plan)
        self._golden_local: dict[str, Scores] = {}

    def golden_local(self, score: OutputScore) -> Scores:
        """q x s."""
        if score.name not in self._golden_local:
            runs = (golden_of(self.plan, number) for number in range(self.plan.golden_runs))
            local = [GoldenScores(run, self.plan.sections, self.sections).local(score) for run in runs]
            self._golden_local[score.name] = np.stack(local) if self.sections else np.zeros((len(local), 0))
        return self._golden_local[score.name]

    def observations(self, number: int, score: OutputScore) -> TargetObservations:
        """The scores of all trials of a target."""
        plan, target = self.plan, self.plan.targets[number]
        outages = target_outages(plan, target, self.first, self.application)
        m, n, p = len(plan.offsets), len(outages), plan.repetitions
        scores, local = np.zeros((m, n, p)), np.zeros((m, n, p, self.sections))
        golden = np.zeros((m, plan.golden_runs))
        golden_local = self.golden_local(score)
        for offset in range(m):
            for repetition in range(plan.golden_runs):
                unit = CampaignUnit(repetition, number, offset)
                golden[offset, repetition] = read_result(plan, unit, GOLDEN).scores[score.name]
                for outage in range(n) if repetition < p else ():
                    result = read_result(plan, unit, outage)
                    scores[offset, outage, repetition] = result.scores[score.name]
                    if self.sections:
                        local[offset, outage, repetition] = result.local[score.name].over(golden_local[repetition])
        begins = tuple(self._begin(offset) for offset in range(m))
        return TargetObservations(target.name, plan.offsets, outages, scores, golden, local, golden_local, begins)

    def outage_sections(self, target: Target) -> float:
        """How many local sections the longest outage itself covers, at most."""
        sections = self.plan.sections
        if sections is None:
            return 0.0
        outages = target_outages(self.plan, target, self.first, self.application)
        longest = max(outage.items for outage in outages)
        passed = {inlet: self.first.passed(inlet, self._taken) for inlet in target.groups[0]}
        covered = []
        for offset in range(len(self.plan.offsets)):
            batch = self._batch(offset)
            end = position_at(self.first, self._places, outage_end(passed, batch, longest))
            covered.append(sections.at(end) - self._begin(offset))
        return float(max(1, *covered))

    def cut_outages(self, target: Target) -> Iterator[str]:
        """A sentence for each offset after which fewer items come than an outage is to take."""
        outages = target_outages(self.plan, target, self.first, self.application)
        passed = {inlet: self.first.passed(inlet, self._taken) for inlet in target.groups[0]}
        for number, offset in enumerate(self.plan.offsets):
            left = items_left(passed, self._batch(number))
            cut = sorted({outage.items for outage in outages if outage.items > left})
            if cut:
                yield (
                    f"{target.name}: only {left:,} items come after offset {offset:,}, so that the end of the input"
                    f" cuts off outages of {names([f'{one:,}' for one in cut])} items there."
                )

    def _begin(self, offset: int) -> int:
        """S_begin: the first local section that a fault can bring outside the threshold by taking rows."""
        if self.plan.sections is None:
            return 0
        return first_after(self._numbers, self.first.rows_before(self._batch(offset)), self.threshold)

    def _batch(self, offset: int) -> int:
        return self.plan.interleaving(0).batch_of(self.plan.offsets[offset])

    @property
    def _taken(self) -> set[str]:
        return {node.name for node in self.application.graph.nodes}

    @cached_property
    def _numbers(self) -> Numbers:
        """The section of each row of the golden output."""
        assert self.plan.sections is not None
        return self.plan.sections.numbers(self.first.output)

    @cached_property
    def _places(self) -> npt.NDArray[Any]:
        """What sections are counted by, for each row of the golden output."""
        match self.plan.sections:
            case SectionsByKey(key=key):
                return positions(self.first, keys_of(self.first.output, key))
            case SectionsByTime(column=column):
                return positions(self.first, seconds_of(self.first.output, column))
        return positions(self.first, None)


def assessed_nodes(graph: Graph) -> tuple[tuple[AssessedNode, ...], tuple[AssessedEdge, ...]]:
    """The pipeline as a report shows it: sources, operators, and the sink behind them."""
    titles = source_names(graph)
    nodes = [AssessedNode(name=title, kind=NodeKind.SOURCE) for title in titles.values()]
    edges = []
    read = set()
    for node in graph.nodes:
        operator = node.operator
        nodes.append(
            AssessedNode(
                name=node.name,
                kind=NodeKind.STATEFUL if operator.states() else NodeKind.STATELESS,
                alpha=operator.alpha,
                approximable=operator.approximable is True,
            )
        )
        for edge in node.inputs:
            read.add(edge.origin)
            edges.append(AssessedEdge(titles.get(edge.origin, edge.origin), node.name))
    sink = SINK
    while any(node.name == sink for node in nodes):
        sink += "-"
    last = [node.name for node in graph.nodes if node.name not in read]
    nodes.append(AssessedNode(name=sink, kind=NodeKind.SINK))
    edges += [AssessedEdge(name, sink) for name in last]
    return tuple(nodes), tuple(dict.fromkeys(edges))
