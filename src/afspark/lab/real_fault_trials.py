"""Trials with real faults under the tolerances that a pipeline has, and what a report says of them."""

from __future__ import annotations

from collections.abc import Iterator

from afspark.lab.protected_runs import ProtectedRuns
from afspark.lab.real_faults import OPERATOR_FAULTS, STORE_FAULTS, OperatorFault, RealFault
from afspark.lab.row_differences import different_rows
from afspark.lab.sections import AffectedKeys
from afspark.lab.study_plan import StudyPlan
from afspark.lab.study_result import RealFaultTrial
from afspark.lab.tolerance_text import tolerance_text

FOLDER = "real-faults"


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
    trial = runs.trial(offset, fault, judged=True)
    output = trial.output.whole()
    score = plan.scores[0]
    right = score.of(golden, golden)
    changed = None if plan.key is None else len(AffectedKeys.between(golden, output, plan.key).keys)
    unchanged = not different_rows(golden, output, golden.column_names).num_rows
    tolerances = {node.name: tolerance_text(node.tolerance) for node in runs.graph.nodes}
    subject = fault.operator if isinstance(fault, OperatorFault) else "The backup store"
    return RealFaultTrial(
        subject,
        fault.kind,
        plan.offsets[offset],
        tolerances.get(subject, ""),
        score.of(output, golden) / right if right else None,
        unchanged,
        changed,
        trial.bounds,
        trial.seconds,
        unchanged and trial.within_bound is not False if trial.exact else trial.within_bound,
    )
