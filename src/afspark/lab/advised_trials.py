"""What a study finds again under its own advice (section 6.4 of the paper): the advised policies run, faults are real.

Operators lose all their workers with their states, and what is left of that is what their policies leave. A source is
another thing: no policy brings items back that a feed has not sent, so it is away for as long as a failover takes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from afspark.lab.advice import Advice, apply_advice
from afspark.lab.campaign_units import (
    CampaignUnit,
    TrialResult,
    fault_span,
    given_section,
    golden_of,
    section_count,
    target_outages,
    write_whole,
)
from afspark.lab.fault_trials import faults_of
from afspark.lab.observations import Outage, Rate, TargetObservations
from afspark.lab.protected_runs import ProtectedRuns, ProtectedTrial
from afspark.lab.real_faults import WorkersLost
from afspark.lab.spreading import Spread
from afspark.lab.study_plan import StudyPlan
from afspark.lab.study_result import NodeKind, StudyResult
from afspark.lab.tolerance_text import tolerance_text
from afspark.lab.trial_scores import GoldenScores
from afspark.policies import Tolerance

#: Hears how many of the trials are done, and of how many.
AdvisedProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class AdvisedUnit:
    """A trial under the advice: a fault of an operator, or of a source, at one offset; ``target`` stands for it."""

    name: str
    target: int
    offset: int
    #: how many items a source loses; None: it is an operator, whose workers are lost
    items: int | None = None


@dataclass(frozen=True)
class AdvisedCampaign:
    """All trials under one advice. They are of the first repetition: one for each operator, source and offset."""

    plan: StudyPlan
    tolerances: Mapping[str, Tolerance]
    #: for how many seconds a source is away
    failover: float

    @property
    def folder(self) -> Path:
        """Where their results are; other tolerances have others."""
        facts = repr((sorted(self.tolerances.items()), self.failover))
        return self.plan.work / f"advised-{hashlib.blake2b(facts.encode(), digest_size=4).hexdigest()}"

    def file(self, unit: AdvisedUnit) -> Path:
        return self.folder / f"{unit.name}-{unit.offset}.json"

    def runs(self) -> ProtectedRuns:
        graph = apply_advice(self.plan.application(0).graph, self.tolerances)
        return ProtectedRuns(self.plan, graph, self.folder / "runs")

    def units(self, advice: Advice) -> Iterator[AdvisedUnit]:
        """Those of all operators that have got a tolerance, and of sources if the rate of their items is known."""
        plan = self.plan
        numbers = {target.name: number for number, target in enumerate(plan.targets)}
        application, golden = plan.application(0), golden_of(plan, 0)
        short = replace(plan, outage_items=(), outage_seconds=(self.failover,))
        for one in advice.operators:
            items = None
            if one.kind is NodeKind.SOURCE and plan.rate is not None:
                items = target_outages(short, plan.targets[numbers[one.target]], golden, application)[-1].items
            elif one.tolerance is None:
                continue
            for offset in range(len(plan.offsets)):
                yield AdvisedUnit(one.operator, numbers[one.target], offset, items)


def measured_again(
    plan: StudyPlan, result: StudyResult, advice: Advice, *, failover: float, spread: Spread, progress: AdvisedProgress
) -> StudyResult:
    """The result with the trials under the advice."""
    campaign = AdvisedCampaign(plan, advice.tolerances(), failover)
    units = list(campaign.units(advice))
    if not units:
        return result

    def tick() -> None:
        progress(sum(campaign.file(unit).exists() for unit in units), len(units))

    tick()
    campaign.runs().prepare()
    spread.run(partial(run_advised, campaign), [unit for unit in units if not campaign.file(unit).exists()], tick)
    reruns, notes = {}, {}
    for name in dict.fromkeys(unit.name for unit in units):
        own = [unit for unit in units if unit.name == name]
        found = [json.loads(campaign.file(unit).read_text()) for unit in own]
        reruns[name] = _observations(campaign, result, own[0], [TrialResult.from_json(one["result"]) for one in found])
        notes[name] = _note(campaign, own[0], found)
    return replace(result, reruns=reruns, rerun_notes=notes)


def run_advised(campaign: AdvisedCampaign, unit: AdvisedUnit) -> None:
    """Makes one trial under the advice, and keeps its scores."""
    plan, runs = campaign.plan, campaign.runs()
    if unit.items is None:
        trial = runs.trial(unit.offset, WorkersLost(unit.name))
    else:
        batch = plan.interleaving(0).batch_of(plan.offsets[unit.offset])
        target = plan.targets[unit.target]
        loss = faults_of(runs.application, runs.golden, target, batch, unit.items, fault="loss", seed=plan.seed)
        trial = runs.trial(unit.offset, loss=loss)
    kept = {
        "result": _scored(plan, unit, runs, trial).to_json(),
        "losses": trial.losses,
        "recovery_seconds": trial.recovery_seconds,
    }
    write_whole(campaign.file(unit), kept)


def _scored(plan: StudyPlan, unit: AdvisedUnit, runs: ProtectedRuns, trial: ProtectedTrial) -> TrialResult:
    """The scores over the section that the longest outage of the target affects, and over local sections."""
    target, golden, application = plan.targets[unit.target], runs.golden, runs.application
    longest = max(outage.items for outage in target_outages(plan, target, golden, application))
    span = fault_span(plan, target, unit.offset, longest, golden, application)
    section = given_section(plan, CampaignUnit(0, unit.target, unit.offset))
    assert section is not None
    scorer = GoldenScores(golden, plan.sections, section_count(plan))
    return TrialResult(
        scorer.trial_affected(plan.scores, section, span, trial.output),
        scorer.trial_local(plan.scores, trial.output),
        trial.output.last - trial.output.first,
        trial.seconds,
    )


def _observations(
    campaign: AdvisedCampaign, result: StudyResult, unit: AdvisedUnit, found: Sequence[TrialResult]
) -> TargetObservations:
    """What came of one trial for each offset, beside the golden run of the same repetition."""
    name = campaign.plan.scores[0].name
    seen = result.observations[campaign.plan.targets[unit.target].name]
    golden_local = seen.golden_local[:1]
    local = [one.local[name].over(golden_local[0]) if golden_local.shape[1] else golden_local[0] for one in found]
    return replace(
        seen,
        outages=(Outage(0) if unit.items is None else Outage(unit.items, campaign.failover, Rate.PEAK),),
        scores=np.array([one.scores[name] for one in found]).reshape(-1, 1, 1),
        golden_scores=seen.golden_scores[:, :1],
        local=np.stack(local)[:, None, None, :],
        golden_local=golden_local,
    )


def _note(campaign: AdvisedCampaign, unit: AdvisedUnit, found: Sequence[Mapping[str, Any]]) -> str:
    if unit.items is not None:
        return (
            f"its feed is away for {campaign.failover:g} s at the peak rate ({unit.items:,} items), which no policy"
            " brings back"
        )
    longest = max(one["result"]["seconds"] for one in found)
    policy = tolerance_text(campaign.tolerances[unit.name])
    return f"all its workers and their states are lost under {policy}; a batch with that took {longest:.2g} s at most"
