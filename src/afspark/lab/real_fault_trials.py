"""Trials with real faults under the tolerances that a pipeline has, and what a report says of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from afspark.lab.protected_runs import ProtectedRuns
from afspark.lab.real_faults import OPERATOR_FAULTS, STORE_FAULTS, OperatorFault, RealFault
from afspark.lab.sections import AffectedKeys
from afspark.lab.study_plan import StudyPlan

FOLDER = "real-faults"


@dataclass(frozen=True)
class RealFaultTrial:
    """What a real fault did to the output."""

    #: what it befell: an operator, or the backup store
    subject: str
    fault: str
    offset: int
    tolerance: str
    #: the score of the whole output by that of the golden one; None where that is 0
    quality: float | None
    #: whether the output is that of the golden run
    unchanged: bool
    #: how many keys of the output have other rows; None without a key
    changed_keys: int | None
    #: by operator and state: how far it can be off, as the query tells
    bounds: Mapping[str, Mapping[str, float]]
    #: how long the batches took in which it happened
    seconds: float

    def sentence(self) -> str:
        """What happened, for the notes of a report."""
        under = f" under {self.tolerance}" if self.tolerance else ""
        what = f"{self.subject}, {self.fault} at item {self.offset:,}{under}: "
        took = f" ({self.seconds:.2g} s)"
        if self.unchanged:
            return f"{what}the output is the same{took}."
        keys = "" if self.changed_keys is None else f", {self.changed_keys:,} keys have other rows"
        quality = "unknown" if self.quality is None else f"{self.quality:.4f}"
        told = ", ".join(
            f"{state} of {name} by at most {bound:g}"
            for name, states in self.bounds.items()
            for state, bound in states.items()
        )
        return f"{what}quality {quality}{keys}{f'; told: {told} off' if told else ''}{took}."


def real_faults(plan: StudyPlan) -> Iterator[RealFault]:
    """All faults of all operators, and those of the store."""
    for node in plan.application(0).graph.nodes:
        for kind in OPERATOR_FAULTS:
            yield kind(node.name)
    for trouble in STORE_FAULTS:
        yield trouble()


def protected_runs(plan: StudyPlan) -> ProtectedRuns:
    """Runs under the tolerances that the pipeline has."""
    return ProtectedRuns(plan, plan.application(0).graph, plan.work / FOLDER)


def run_real_fault(runs: ProtectedRuns, fault: RealFault, offset: int = 0) -> RealFaultTrial:
    """The first repetition with one fault at an offset."""
    plan, golden = runs.plan, runs.golden.output
    runs.prepare()
    trial = runs.trial(offset, fault)
    output = trial.output.whole()
    score = plan.scores[0]
    right = score.of(golden, golden)
    changed = None if plan.key is None else len(AffectedKeys.between(golden, output, plan.key).keys)
    tolerances = {node.name: repr(node.tolerance) for node in runs.graph.nodes}
    subject = fault.operator if isinstance(fault, OperatorFault) else "The backup store"
    return RealFaultTrial(
        subject,
        fault.kind,
        plan.offsets[offset],
        tolerances.get(subject, ""),
        score.of(output, golden) / right if right else None,
        changed == 0 if changed is not None else output.equals(golden),
        changed,
        trial.bounds,
        trial.seconds,
    )
