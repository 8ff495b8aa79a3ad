"""Real faults under the tolerances of a pipeline: a worker's process is killed, or its host is lost with all state.

They happen in the one-process cluster, with real backups, records and recoveries, and are not emulated by an injector:
what is seen is what the pipeline's own policies let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from afspark.graph.rewrites import REWRITES, rewritten
from afspark.lab.application import Application
from afspark.lab.campaign_units import golden_of
from afspark.lab.sections import AffectedKeys
from afspark.lab.study_plan import StudyPlan
from afspark.lab.trial_query import trial_query
from afspark.protocol.fault_plan import FaultPhase

PROCESS_KILLED, HOST_LOST = "process killed", "host lost"
REAL_FAULTS = (PROCESS_KILLED, HOST_LOST)

_HOSTS = 2


@dataclass(frozen=True)
class RealFaultTrial:
    """What a real fault of an operator's first worker did to the output."""

    operator: str
    fault: str
    offset: int
    tolerance: str
    #: the score of the whole output by that of the golden one; None where that is 0
    quality: float | None
    #: whether the output is that of the golden run
    unchanged: bool
    #: how many keys of the output have other rows; None without a key
    changed_keys: int | None
    #: how far the states of the operator can be off, as the query tells
    bounds: Mapping[str, float]

    def sentence(self) -> str:
        """What happened, for the notes of a report."""
        what = f"{self.operator}, {self.fault} at item {self.offset:,} under {self.tolerance}: "
        if self.unchanged:
            return f"{what}the output is the same."
        keys = "" if self.changed_keys is None else f", {self.changed_keys:,} keys have other rows"
        quality = "unknown" if self.quality is None else f"{self.quality:.4f}"
        told = ", ".join(f"{state} by at most {bound:g}" for state, bound in self.bounds.items())
        return f"{what}quality {quality}{keys}{f'; told: {told} off' if told else ''}."


def run_real_fault(plan: StudyPlan, operator: str, fault: str, offset: int = 0) -> RealFaultTrial:
    """A whole run of the first repetition, with one fault of the operator's first worker at an offset."""
    application, golden = plan.application(0), golden_of(plan, 0)
    batch = plan.interleaving(0).batch_of(plan.offsets[offset])
    output, bounds = _faulty_output(application, golden.batches, operator, fault, batch)
    score = plan.scores[0]
    right = score.of(golden.output, golden.output)
    changed = None
    if plan.key is not None:
        changed = len(AffectedKeys.between(golden.output, output, plan.key).keys)
    (node,) = (one for one in application.graph.nodes if one.name == operator)
    return RealFaultTrial(
        operator,
        fault,
        plan.offsets[offset],
        repr(node.tolerance),
        score.of(output, golden.output) / right if right else None,
        changed == 0 if changed is not None else output.equals(golden.output),
        changed,
        bounds,
    )


def _faulty_output(
    application: Application, batches: int, operator: str, fault: str, batch: int
) -> tuple[pa.Table, dict[str, float]]:
    pipeline = rewritten(application.graph, REWRITES)
    parts: list[pa.Table | None] = []
    with trial_query(pipeline, application.output, application.mode, hosts=_HOSTS) as query:
        for number in range(batches):
            if number == batch and fault == PROCESS_KILLED:
                query.kill_worker(operator, 0, FaultPhase.APPLYING)
            elif number == batch:
                query.lose_host(query.homes(operator)[0])
            parts.append(query.advance())
        bounds = query.bounds(operator)
        parts.append(query.finish())
    found = [part for part in parts if part is not None]
    return pa.concat_tables(found), bounds
