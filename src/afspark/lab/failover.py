"""What a study finds again if replicas take over: an outage lasts no longer than that takes (section 6.4)."""

from __future__ import annotations

from dataclasses import replace

from afspark.lab.advice import Advice, ProtectionNeed
from afspark.lab.observations import Rate, TargetObservations
from afspark.lab.study_result import NodeKind, StudyResult


def with_failover(result: StudyResult, advice: Advice, seconds: float) -> StudyResult:
    """The result with the trials whose outage is that of a failover, for sources and whoever is to be replicated.

    An outage of so many seconds at the peak rate has to be among those that were tried; a longer one stands for it if
    there is one, and else there are no such trials.
    """
    replicated = {one.target for one in advice.operators if one.need is ProtectionNeed.REPLICATE}
    sources = {node.name for node in result.nodes if node.kind is NodeKind.SOURCE}
    reruns: dict[str, TargetObservations] = {}
    notes: dict[str, str] = {}
    for target, seen in result.observations.items():
        if target not in replicated | sources:
            continue
        fitting = [
            (outage.seconds, number)
            for number, outage in enumerate(seen.outages)
            if outage.rate is Rate.PEAK and outage.seconds is not None and outage.seconds >= seconds
        ]
        if not fitting:
            continue
        length, number = min(fitting)
        reruns[target] = replace(
            seen,
            outages=(seen.outages[number],),
            scores=seen.scores[:, number : number + 1],
            local=seen.local[:, number : number + 1],
        )
        notes[target] = f"a replica takes over within {length:g} s at the peak rate"
    return replace(result, reruns=reruns, rerun_notes=notes)
