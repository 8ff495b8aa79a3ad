"""One trial: a repetition with a fault, from the golden state at the offset until the states are golden again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from afspark.errors import UsageError
from afspark.graph.injector import BurstLoss, Duplication, Inlet, Reordering, Span, StreamFault, injector_name
from afspark.lab.application import Application
from afspark.lab.golden_runs import GoldenRun
from afspark.lab.outage_spans import spans_after
from afspark.lab.targets import Target
from afspark.lab.trial_query import TrialQuery, trial_query

FAULTS = {
    "loss": "bursty loss of input",
    "duplication": "duplication of input",
    "reordering": "reordering of input",
}
"""The fault models, and what a report says of each."""


@dataclass(frozen=True)
class TrialOutput:
    """What came out of a trial. Before ``first`` and from ``last`` on, its batches gave out what the golden run did."""

    golden: GoldenRun
    first: int
    last: int
    #: what the batches between them gave out
    own: pa.Table

    @property
    def replaced(self) -> tuple[int, int]:
        """The rows of the golden output that it has others for: the first, and the one after the last."""
        return self.golden.rows_before(self.first), self.golden.rows_before(self.last)

    def whole(self) -> pa.Table:
        """Everything that came out."""
        first, last = self.replaced
        output = self.golden.output
        return pa.concat_tables([output.slice(0, first), self.own, output.slice(last)])


def faults_of(
    application: Application, golden: GoldenRun, target: Target, batch: int, items: int, *, fault: str, seed: int
) -> dict[Inlet, StreamFault]:
    """What befalls each input of a target; each group of them loses ``items`` from the beginning of ``batch`` on."""
    taken = {node.name for node in application.graph.nodes}
    befallen: dict[Inlet, StreamFault] = {}
    for group in target.groups:
        passed = {inlet: golden.passed(inlet, taken) for inlet in group}
        for inlet, spans in spans_after(passed, batch, items).items():
            befallen[inlet] = fault_of(fault, spans, seed)
    return befallen


def fault_of(fault: str, spans: tuple[Span, ...], seed: int) -> StreamFault:
    """A fault by its name."""
    match fault:
        case "loss":
            return BurstLoss(spans)
        case "duplication":
            return Duplication(spans)
        case "reordering":
            return Reordering(spans, seed)
    raise UsageError(f"There is no fault {fault!r}.", remedy=f"Faults are {', '.join(FAULTS)}.", fault=fault)


def with_neighbours(application: Application, faults: Mapping[Inlet, StreamFault]) -> dict[Inlet, StreamFault]:
    """The faults, and none for the other inputs of the same readers: so all of them keep their order."""
    sides = {inlet.side for inlet in faults}
    return {inlet: faults.get(inlet, StreamFault()) for inlet in application.inlets() if inlet.side in sides}


def run_trial(
    application: Application,
    golden: GoldenRun,
    faults: Mapping[Inlet, StreamFault],
    batch: int,
    *,
    whole: bool = False,
) -> TrialOutput:
    """A trial whose faults begin with ``batch``; ``whole``: from the first batch to the last."""
    start = None if whole else golden.kept_at(batch)
    pipeline = application.instrumented(with_neighbours(application, faults))
    taken = {node.name for node in application.graph.nodes}
    ends = span_ends(faults, taken)
    parts: list[pa.Table | None] = []
    with trial_query(pipeline, application.sink(pipeline), application.mode, start=start) as query:
        first = query.batch_number
        struck = False
        while (at := query.batch_number) < golden.batches:
            parts.append(query.advance())
            if whole or not golden.digests or at < batch:
                continue
            struck = struck or has_passed(query.counts(list(ends)), ends)
            if struck and is_golden(query, golden.digests[at]):
                return TrialOutput(golden, first, at + 1, _joined(parts, golden))
        parts.append(query.finish())
    return TrialOutput(golden, first, golden.batches + 1, _joined(parts, golden))


def is_golden(query: TrialQuery, digests: Mapping[str, str]) -> bool:
    """Whether all states are those of the golden run; the operators behind the others are the last to recover."""
    return all(query.state_digest(name) == digest for name, digest in reversed(list(digests.items())))


def span_ends(faults: Mapping[Inlet, StreamFault], taken: set[str]) -> dict[str, list[int]]:
    """By injector and worker: how many items it has seen when a fault is over."""
    return {
        injector_name(inlet, taken): [span.offset + span.items for span in fault.spans]
        for inlet, fault in faults.items()
    }


def has_passed(counts: Mapping[str, list[int]], ends: Mapping[str, list[int]]) -> bool:
    """Whether all injectors have seen what their faults take."""
    return all(seen >= end for name, expected in ends.items() for seen, end in zip(counts[name], expected, strict=True))


def _joined(parts: list[pa.Table | None], golden: GoldenRun) -> pa.Table:
    found = [part for part in parts if part is not None]
    return pa.concat_tables(found) if found else golden.output.slice(0, 0)
