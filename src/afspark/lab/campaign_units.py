"""The parts of a campaign, each of which can run anywhere: a golden run, or all outages at one place of a repetition.

What a part finds is kept in files of the campaign's folder, one for each trial, so that a campaign that was cut short
goes on where it was.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from afspark.errors import UsageError
from afspark.graph.injector import Inlet, StreamFault
from afspark.lab.application import Application
from afspark.lab.fault_trials import TrialOutput, faults_of, run_trial
from afspark.lab.golden_runs import GoldenRun, golden_run
from afspark.lab.observations import Outage
from afspark.lab.outage_spans import outage_end, outage_items, outages_at
from afspark.lab.sections import AffectedKeys, FaultSpan, keys_of
from afspark.lab.study_plan import StudyPlan
from afspark.lab.targets import Target
from afspark.lab.trial_query import trial_query
from afspark.lab.trial_scores import AffectedSection, GoldenScores, LocalScores

TRIALS = "trials"
AFFECTED = "affected"
GOLDEN = "golden"


@dataclass(frozen=True, order=True)
class CampaignUnit:
    """All outages of one target at one offset in one repetition; by number."""

    repetition: int
    target: int
    offset: int

    def file(self, plan: StudyPlan, outage: int | str) -> Path:
        """Where the result of a trial, or of the golden run at the same place, is kept."""
        return plan.work / TRIALS / f"{self.repetition}-{self.target}-{self.offset}-{outage}.json"


@dataclass(frozen=True)
class TrialResult:
    """The scores of a trial by name of the score."""

    scores: Mapping[str, float]
    local: Mapping[str, LocalScores]
    #: how many batches were run for it, and how long that took
    batches: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        local = {name: scores.to_json() for name, scores in self.local.items()}
        return {"scores": dict(self.scores), "local": local, "batches": self.batches, "seconds": self.seconds}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrialResult:
        local = {name: LocalScores.from_json(one) for name, one in data["local"].items()}
        return cls(data["scores"], local, data["batches"], data["seconds"])


def all_inlets(plan: StudyPlan) -> list[Inlet]:
    """Where injectors are: at all inputs of every reader that has one, so that their order stays; and at an output."""
    application = plan.application(0)
    sides = {inlet.side for target in plan.targets for inlet in target.inlets}
    return [inlet for inlet in application.inlets() if inlet.side in sides]


def golden_of(plan: StudyPlan, repetition: int) -> GoldenRun:
    """The golden run of a repetition, made now if nobody has."""
    interleaving = plan.interleaving(repetition)
    made = golden_run(
        plan.application(repetition),
        plan.folder(repetition),
        batches=len(interleaving.ends),
        kept=[interleaving.batch_of(offset) for offset in plan.offsets] if repetition < plan.repetitions else [],
        inlets=all_inlets(plan),
    )
    if not made.rows[-1]:
        raise UsageError(
            "The pipeline gave nothing out.",
            remedy="Let its last operator send items, or return its writeStream with another output mode.",
        )
    return made


def target_outages(plan: StudyPlan, target: Target, golden: GoldenRun, application: Application) -> tuple[Outage, ...]:
    """The outages of a target, in items as well; ``golden`` is that of the first repetition."""
    taken = {node.name for node in application.graph.nodes}
    came = sum(int(golden.passed(inlet, taken)[-1].sum()) for inlet in target.groups[0])
    items = [outage_items(one, came) for one in plan.outage_items]
    return outages_at(came / sum(plan.sizes), items=items, seconds=plan.outage_seconds, rate=plan.rate)


def fault_span(
    plan: StudyPlan, target: Target, offset: int, items: int, golden: GoldenRun, application: Application
) -> FaultSpan:
    """Where the longest outage lies in the golden output of the first repetition."""
    taken = {node.name for node in application.graph.nodes}
    batch = plan.interleaving(0).batch_of(plan.offsets[offset])
    end = outage_end({inlet: golden.passed(inlet, taken) for inlet in target.groups[0]}, batch, items)
    places = positions(golden, None if plan.key is None else keys_of(golden.output, plan.key))
    first_key, last_key = (position_at(golden, places, place) for place in (float(batch), end))
    return FaultSpan(target.name, plan.offsets[offset], items, first_key, last_key)


def positions(golden: GoldenRun, values: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """The key or time of each row of a golden output; without any, its number."""
    return np.arange(golden.rows[-1]) if values is None else values


def position_at(golden: GoldenRun, places: npt.NDArray[Any], place: float) -> float:
    """The key, time or number of the rows that are due at a place of the stream: a batch, and a part of it."""
    batch = min(int(place), golden.batches)
    # From one whole key to the next it is 1; between times and other fractions there may be anything.
    step = 1 if np.issubdtype(places.dtype, np.integer) else 0
    begin, end = golden.rows_before(batch), golden.rows_before(batch + 1)
    if begin == end:
        rest = places[begin:]
        return float(rest.min()) if len(rest) else float(places.max()) + step
    least, most = float(places[begin:end].min()), float(places[begin:end].max()) + step
    return least + (place - batch) * (most - least)


def run_unit(plan: StudyPlan, unit: CampaignUnit) -> None:
    """Makes the trials of a unit that are not there, and the scores of the golden run at their place."""
    application = plan.application(unit.repetition)
    golden = golden_of(plan, unit.repetition)
    first = golden if unit.repetition == 0 else golden_of(plan, 0)
    target = plan.targets[unit.target]
    outages = target_outages(plan, target, first, application)
    longest = max(range(len(outages)), key=lambda number: outages[number].items)
    span = fault_span(plan, target, unit.offset, outages[longest].items, first, application)
    scorer = GoldenScores(golden, plan.sections, _section_count(plan, first))
    section = given_section(plan, unit)
    order = [longest, *(number for number in range(len(outages)) if number != longest)]
    for number in order if unit.repetition < plan.repetitions else ():
        # The longest one decides about the section, so it is run again if that was not kept.
        if unit.file(plan, number).exists() and not (section is None and number == longest):
            continue
        began = time.perf_counter()
        trial = unit_trial(plan, unit, application, golden, outages[number].items)
        if section is None:
            section = _found_section(plan, unit, trial)
        scores = scorer.trial_affected(plan.scores, section, span, trial)
        local = scorer.trial_local(plan.scores, trial)
        result = TrialResult(scores, local, trial.last - trial.first, time.perf_counter() - began)
        write_whole(unit.file(plan, number), result.to_json())
    if not unit.file(plan, GOLDEN).exists():
        assert section is not None
        scores = scorer.affected(plan.scores, section, span)
        write_whole(unit.file(plan, GOLDEN), TrialResult(scores, {}).to_json())


def unit_trial(
    plan: StudyPlan,
    unit: CampaignUnit,
    application: Application,
    golden: GoldenRun,
    items: int,
    *,
    whole: bool = False,
) -> TrialOutput:
    """One trial of a unit."""
    batch = plan.interleaving(unit.repetition).batch_of(plan.offsets[unit.offset])
    faults = unit_faults(plan, unit, application, golden, items)
    return run_trial(application, golden, faults, batch, whole=whole)


def unit_faults(
    plan: StudyPlan, unit: CampaignUnit, application: Application, golden: GoldenRun, items: int
) -> dict[Inlet, Any]:
    """What befalls which input in a trial of a unit."""
    batch = plan.interleaving(unit.repetition).batch_of(plan.offsets[unit.offset])
    seed = plan.seed * 1_000_003 + unit.repetition
    return dict(faults_of(application, golden, plan.targets[unit.target], batch, items, fault=plan.fault, seed=seed))


def warm_up(plan: StudyPlan) -> None:
    """Runs the first batch of the first repetition, for what that loads into this process."""
    application = plan.application(0)
    pipeline = application.instrumented({inlet: StreamFault() for inlet in all_inlets(plan)})
    with trial_query(pipeline, application.sink(pipeline), application.mode) as query:
        query.advance()
        for name in application.stateful if application.comparable else ():
            query.state_digest(name)


def section_count(plan: StudyPlan) -> int:
    """How many local sections the outputs have: as many as the golden one of the first repetition."""
    return _section_count(plan, golden_of(plan, 0)) or 0


def _section_count(plan: StudyPlan, first: GoldenRun) -> int | None:
    return None if plan.sections is None else plan.sections.count(first.output)


def given_section(plan: StudyPlan, unit: CampaignUnit) -> AffectedSection | None:
    """The affected section, if it is known before the trials of a unit."""
    if plan.affected is not None:
        return plan.affected
    if plan.key is None:
        return _Everything()
    place = _section_file(plan, unit)
    if not place.exists():
        return None
    with pa.memory_map(str(place)) as file:
        keys = pa.ipc.open_file(file).read_all()["key"].combine_chunks()
    return AffectedKeys(plan.key, keys)


def _found_section(plan: StudyPlan, unit: CampaignUnit, trial: TrialOutput) -> AffectedSection:
    """The section that the longest outage of the first repetition has changed; it is kept for the others."""
    assert plan.key is not None
    first, last = trial.replaced
    replaced = trial.golden.output.slice(first, last - first)
    found = AffectedKeys.between(replaced, trial.own, plan.key)
    place = _section_file(plan, unit)
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_suffix(f".{os.getpid()}")
    table = pa.table({"key": found.keys})
    with pa.OSFile(str(unfinished), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    unfinished.replace(place)
    return found


def _section_file(plan: StudyPlan, unit: CampaignUnit) -> Path:
    return plan.work / AFFECTED / f"{unit.target}-{unit.offset}.arrow"


@dataclass(frozen=True)
class _Everything:
    """The whole output, where nothing identifies its rows."""

    def select(self, output: pa.Table, span: FaultSpan) -> pa.Table:
        return output


def write_whole(path: Path, data: Mapping[str, Any]) -> None:
    """Writes a result as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(data))
    unfinished.replace(path)


def read_result(plan: StudyPlan, unit: CampaignUnit, outage: int | str) -> TrialResult:
    """A result that was kept."""
    return TrialResult.from_json(json.loads(unit.file(plan, outage).read_text()))
