"""A study: which operators of a pipeline tolerate loss, measured by injecting faults into recorded input.

::

    study = Study(pipeline, "trades.parquet", score="sum:gain", key="id", seconds=[1, 4, 16], time="time")
    result = study.run()
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from afspark.errors import AfsparkError, UsageError, first_line
from afspark.lab.advice import advise
from afspark.lab.advised_trials import measured_again
from afspark.lab.application import Application, Builder
from afspark.lab.campaign_folder import claim, identity, results_there, sole_study
from afspark.lab.campaign_units import (
    GOLDEN,
    CampaignUnit,
    golden_of,
    run_unit,
    target_outages,
    warm_up,
)
from afspark.lab.fault_trials import FAULTS
from afspark.lab.golden_runs import is_there
from afspark.lab.observing import Observer, assessed_nodes
from afspark.lab.outage_spans import InputRate, measured_rate
from afspark.lab.real_fault_trials import protected_runs, real_faults, run_real_fault
from afspark.lab.real_queries import rerun_as_query, sampled_units
from afspark.lab.scores import OutputScore, ScoreFunction, different_scores
from afspark.lab.sections import (
    AffectedRange,
    AffectedRows,
    LocalSections,
    SectionsByRows,
    grows,
    keys_of,
    parse_sections,
    refuse_too_many,
    refuse_without,
    sections_of_keys,
)
from afspark.lab.spreading import ForkedProcesses, InThisProcess, SparkTasks, Spread
from afspark.lab.study_inputs import StudyInput, event_times, store_inputs
from afspark.lab.study_plan import StudyPlan, read_items
from afspark.lab.study_result import (
    DEFAULT_ALPHA,
    DEFAULT_PERCENTILE,
    DEFAULT_THRESHOLD,
    AssessedNode,
    NodeKind,
    Placement,
    RealFaultTrial,
    SampledTrial,
    StudyResult,
    StudySettings,
)
from afspark.lab.targets import place_injectors, uneven_readers
from afspark.lab.trial_query import sweep
from afspark.policies.parameters import count, finite
from afspark.policies.parameters import seconds as above_zero
from afspark.sources.recorded_items import RecordedItems, record

#: Hears how far a study has come: what it does, how much of it is done, of how much, and the seconds left if known.
Progress = Callable[[str, int, int, float | None], None]

DEFAULT_OFFSETS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where faults strike unless the user says so, as parts of the input: those of section 6.2 of the paper."""

DEFAULT_OUTAGES = (0.001, 0.005, 0.02)
"""How long faults last unless the user says so, as parts of the items at the target."""

_BATCHES = 25
_SECTIONS = 200
_SECTIONS_OF_ROWS = (
    "Sections are of rows, because no key identifies any: what a fault takes moves all later rows, so that R and I are"
    " rough. Name a column of the output that grows along the input as the key."
)


class Study:
    """A fault injection study of a pipeline, as `docs/lab.md` describes it. Nothing runs before `run`."""

    def __init__(  # noqa: PLR0913 - each is a choice of the user's, most with a default
        self,
        pipeline: Builder,
        input: StudyInput | Sequence[StudyInput],
        *,
        score: OutputScore | ScoreFunction | str,
        other_scores: Sequence[OutputScore | ScoreFunction | str] = (),
        key: str | None = None,
        sections: LocalSections | str | None = None,
        affected: AffectedRange | AffectedRows | None = None,
        targets: Sequence[str] | None = None,
        add: Iterable[str] = (),
        remove: Iterable[str] = (),
        fault: str = "loss",
        offsets: Sequence[float] = DEFAULT_OFFSETS,
        outages: Sequence[float] = (),
        seconds: Sequence[float] = (),
        time: str | None = None,
        rate: tuple[float, float] | None = None,
        repetitions: int = 5,
        golden_runs: int | None = None,
        seed: int = 1,
        jitter: int = 0,
        batch_items: int | None = None,
        threshold: float = DEFAULT_THRESHOLD,
        percentile: float = DEFAULT_PERCENTILE,
        alpha: float = DEFAULT_ALPHA,
        processes: int | None = None,
        spark: SparkSession | None = None,
        sample: int = 0,
        real_faults: bool = False,
        failover: float | None = 2.0,
        work: str | Path | None = None,
        name: str | None = None,
    ) -> None:
        self._builder = pipeline
        self._given = list(input) if isinstance(input, list | tuple) else [input]
        self._scores = different_scores((score, *other_scores))
        self._key, self._affected, self._time = key, affected, time
        self._sections = parse_sections(sections) if isinstance(sections, str) else sections
        self._only, self._add, self._remove = targets, list(add), list(remove)
        if fault not in FAULTS:
            raise UsageError(f"There is no fault {fault!r}.", remedy=f"Faults are {', '.join(FAULTS)}.", fault=fault)
        self._fault = fault
        self._offsets = tuple(
            finite("offsets", one, "They are items, or below 1 parts of the input.") for one in offsets
        )
        self._seconds = tuple(float(above_zero("seconds", one)) for one in seconds)
        given = tuple(outages) or (() if self._seconds else DEFAULT_OUTAGES)
        self._outages = tuple(_outage(one) for one in given)
        self._rate = None if rate is None else InputRate(*map(float, rate))
        self._repetitions = count("repetitions", repetitions, "Each has an interleaving of its own.")
        self._golden_runs = max(self._repetitions, 0 if golden_runs is None else count("golden_runs", golden_runs))
        self._seed, self._jitter = count("seed", seed, least=0), count("jitter", jitter, least=0)
        self._batch_items = None if batch_items is None else count("batch_items", batch_items)
        self._judged = {
            "threshold": finite("threshold", threshold),
            "percentile": _up_to("percentile", percentile, 100),
            "alpha": _up_to("alpha", alpha, 1),
        }
        self._spread: Spread = _spread(None if processes is None else count("processes", processes), spark)
        self._spark, self._sample, self._real_faults = spark, count("sample", sample, least=0), real_faults
        self._work = work
        self._failover = None if failover is None else above_zero("failover", failover)
        self._name = name or str(getattr(pipeline, "__name__", "pipeline"))

    # --- running --------------------------------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> StudyResult:
        """Runs all trials that have not been run yet, and gathers what they found."""
        if self._work is not None:
            with sole_study(Path(self._work)):
                return self._run(Path(self._work), progress or _silent)
        with tempfile.TemporaryDirectory(prefix="afspark-study-") as folder:
            return self._run(Path(folder), progress or _silent)

    def _run(self, work: Path, progress: Progress) -> StudyResult:
        began = time.perf_counter()
        sweep()
        plan, placements = self._planned(work)
        notes = claim(plan)
        self._run_golden(plan, [0], progress)
        plan = self._checked(plan)
        notes += _key_notes(plan) if self._key or self._sections else [_SECTIONS_OF_ROWS]
        if self._spread.inherits:
            # Compiled kernels take seconds to load: once here, rather than in every process.
            warm_up(plan)
        self._run_golden(plan, range(1, plan.golden_runs), progress)
        self._run_trials(plan, progress)
        result = replace(self._gathered(plan, placements, notes), real_faults=self._struck(plan, progress))
        result = self._measured_again(plan, result, progress)
        samples = self._sampled(plan, self._spark, self._sample, progress)
        return replace(result, samples=samples, seconds=time.perf_counter() - began)

    def sampled(self, spark: SparkSession, count: int, progress: Progress | None = None) -> tuple[SampledTrial, ...]:
        """Some of the trials, which were run before in the same folder, again as streaming queries on Spark."""
        assert self._work is not None
        plan, _ = self._planned(Path(self._work))
        return self._sampled(self._checked(plan), spark, count, progress or _silent)

    def _measured_again(self, plan: StudyPlan, result: StudyResult, progress: Progress) -> StudyResult:
        """The result with trials under its own advice."""
        if self._failover is None:
            return result

        def tick(done: int, total: int) -> None:
            progress("trials under advice", done, total, None)

        try:
            return measured_again(
                plan, result, advise(result), failover=self._failover, spread=self._spread, progress=tick
            )
        except AfsparkError as error:
            # Hours of trials are worth their report, whatever becomes of these.
            why = f"The metrics were not measured again under the advice: {first_line(error)}."
            return replace(result, notes=(*result.notes, why))

    def _struck(self, plan: StudyPlan, progress: Progress) -> tuple[RealFaultTrial, ...]:
        """What real faults of every operator do under the tolerance that it has."""
        if not self._real_faults:
            return ()
        runs, wanted = protected_runs(plan), list(real_faults(plan))
        found = []
        for number, fault in enumerate(wanted):
            progress("real faults", number, len(wanted), None)
            found.append(run_real_fault(runs, fault))
        progress("real faults", len(wanted), len(wanted), 0.0)
        return tuple(found)

    def _run_golden(self, plan: StudyPlan, repetitions: Iterable[int], progress: Progress) -> None:
        def tick() -> None:
            done = sum(is_there(plan.folder(number)) for number in range(plan.golden_runs))
            progress("golden runs", done, plan.golden_runs, None)

        tick()
        self._spread.run(partial(golden_of, plan), list(repetitions), tick)

    def _run_trials(self, plan: StudyPlan, progress: Progress) -> None:
        outages = len(plan.outage_items) + 2 * len(plan.outage_seconds)
        total = plan.repetitions * len(plan.targets) * len(plan.offsets) * outages
        began, before = time.perf_counter(), results_there(plan)

        def tick() -> None:
            done = results_there(plan)
            fresh, seconds = done - before, time.perf_counter() - began
            progress("trials", done, total, seconds / fresh * (total - done) if fresh > 0 else None)

        tick()
        units = [
            CampaignUnit(repetition, target, offset)
            for repetition in range(plan.golden_runs)
            for offset in range(len(plan.offsets))
            for target in range(len(plan.targets))
        ]
        # Those of the first repetition find out which section a fault affects.
        for part in ([one for one in units if not one.repetition], [one for one in units if one.repetition]):
            waiting = [unit for unit in part if not _is_done(plan, unit, outages)]
            self._spread.run(partial(run_unit, plan), waiting, tick)

    # --- planning -------------------------------------------------------------------------------------------

    def _planned(self, work: Path) -> tuple[StudyPlan, list[Placement]]:
        inputs = store_inputs(self._given, work)
        tables = [read_items(path) for path in inputs]
        sizes = tuple(table.num_rows for table in tables)
        total = sum(sizes)
        application = self._trial_build(work, tables)
        targets, placements = place_injectors(application.graph, only=self._only, add=self._add, remove=self._remove)
        entering = [
            node.workers
            for node in application.graph.nodes
            if any(edge.origin in application.graph.sources for edge in node.inputs)
        ]
        rate = self._rate
        if rate is None and self._time is not None and self._seconds:
            rate = measured_rate([event_times(table, self._time) for table in tables])
        plan = StudyPlan(
            builder=self._builder,
            inputs=tuple(inputs),
            sizes=sizes,
            targets=tuple(targets),
            offsets=self._offset_items(total),
            outage_items=self._outages,
            outage_seconds=self._seconds,
            rate=rate,
            time=self._time,
            fault=self._fault,
            repetitions=self._repetitions,
            golden_runs=self._golden_runs,
            seed=self._seed,
            jitter=self._jitter,
            batch_items=self._batch_items or min(max(total // _BATCHES, 200), 200_000),
            pieces=max(entering),
            scores=self._scores,
            key=self._key,
            sections=self._sections,
            affected=self._affected,
            work=work,
            identity=identity(self._builder, application, tables),
        )
        plan.interleaving(0)
        if plan.outage_seconds and plan.rate is None:
            raise UsageError(
                "Seconds of an outage are so many items only at a known rate.",
                remedy="Name the column of event times (time), or give average and peak (rate), or outages in items.",
            )
        return plan, placements

    def _trial_build(self, work: Path, tables: Sequence[pa.Table]) -> Application:
        """The pipeline on sources with the columns of the inputs and no items."""
        sources = []
        for number, table in enumerate(tables):
            path = work / f"columns{number}.arrow"
            record(path, table.schema, [], 1)
            sources.append(RecordedItems(str(path)))
        return Application.built(self._builder, sources)

    def _offset_items(self, total: int) -> tuple[int, ...]:
        """Offsets in items; those below 1 are parts of the input."""
        if not self._offsets:
            raise UsageError("A study needs offsets.", remedy="Give some, in items or as parts of the input.")
        found = sorted({round(one * total) if 0 < one < 1 else int(one) for one in self._offsets})
        return tuple(found)

    def _checked(self, plan: StudyPlan) -> StudyPlan:
        """The plan with what depends on the output, once there is one; UsageError if scores do not go with it."""
        output = golden_of(plan, 0).output
        if plan.key is not None:
            refuse_without(output, (plan.key,), "The study")
            keys = keys_of(output, plan.key)
            if plan.sections is None:
                plan = replace(plan, sections=sections_of_keys(plan.key, keys, _SECTIONS))
        elif plan.sections is None:
            plan = replace(plan, sections=SectionsByRows(math.ceil(output.num_rows / _SECTIONS)))
        for score in plan.scores:
            score.of(output, output)
        if plan.sections is not None:
            sections = plan.sections.beginning_with(output)
            refuse_too_many(sections, output)
            plan = replace(plan, sections=sections)
        return plan

    # --- what was found -------------------------------------------------------------------------------------

    def _gathered(self, plan: StudyPlan, placements: Sequence[Placement], notes: Sequence[str]) -> StudyResult:
        observer = Observer(plan, self._judged["threshold"])
        nodes, edges = assessed_nodes(observer.application.graph)
        known = {node.name for node in nodes}
        # What the user has put together is shown beside the graph.
        extra = [AssessedNode(name=one.name, kind=NodeKind.PLACE) for one in plan.targets if one.name not in known]
        sink = next(node.name for node in nodes if node.kind is NodeKind.SINK)
        placed = (*placements, Placement(sink, None, "it is the sink"))
        main, *others = plan.scores
        observed = {
            score.name: {
                target.name: observer.observations(number, score) for number, target in enumerate(plan.targets)
            }
            for score in plan.scores
        }
        outages = len(plan.outage_items) + 2 * len(plan.outage_seconds)
        told = [
            note
            for target in plan.targets
            for note in (*uneven_readers(observer.application.graph, target), *observer.cut_outages(target))
        ]
        return StudyResult(
            application=self._name,
            nodes=(*nodes, *extra),
            edges=edges,
            placements=placed,
            observations=observed[main.name],
            other_scores={score.name: observed[score.name] for score in others},
            settings=self._settings(plan),
            outage_sections={target.name: observer.outage_sections(target) for target in plan.targets},
            trials=plan.repetitions * len(plan.targets) * len(plan.offsets) * outages,
            notes=(*notes, *told),
        )

    def _settings(self, plan: StudyPlan) -> StudySettings:
        given: dict[str, Any] = dict(self._judged)
        affected = "the rows that the longest outage changes"
        if plan.affected is not None:
            affected = "given by the user" if isinstance(plan.affected, AffectedRows) else "estimated from the outage"
        elif plan.key is None:
            affected = "the whole output, because no key identifies its rows"
        return StudySettings(
            score=plan.scores[0].name,
            sections=plan.sections.name if plan.sections else "",
            section_unit=plan.sections.unit if plan.sections else "",
            affected=affected,
            fault=FAULTS[plan.fault],
            repetitions=plan.repetitions,
            golden_runs=plan.golden_runs,
            seed=plan.seed,
            items=sum(plan.sizes),
            input=", ".join(_shown(one) for one in self._given),
            **given,
        )

    def _sampled(
        self, plan: StudyPlan, spark: SparkSession | None, wanted: int, progress: Progress
    ) -> tuple[SampledTrial, ...]:
        """Some trials again, as streaming queries on Spark."""
        if not wanted or spark is None:
            return ()
        application, first = plan.application(0), golden_of(plan, 0)
        outages = [target_outages(plan, target, first, application) for target in plan.targets]
        chosen = sampled_units(plan, [len(one) for one in outages], wanted)
        found = []
        for number, (unit, outage) in enumerate(chosen):
            progress("real queries", number, len(chosen), None)
            found.append(rerun_as_query(spark, plan, unit, outages[unit.target][outage]))
        progress("real queries", len(chosen), len(chosen), 0.0)
        return tuple(found)


def _spread(processes: int | None, spark: SparkSession | None) -> Spread:
    if processes is None and spark is not None:
        return SparkTasks(spark)
    wanted = processes or len(os.sched_getaffinity(0))
    return ForkedProcesses(wanted) if wanted > 1 else InThisProcess()


def _outage(given: Any) -> float:
    """An outage in items; below 1 a part of those that come to the target."""
    if isinstance(given, float) and 0 < given < 1:
        return given
    return count("outages", given, "An outage is a number of items, or below 1 a part of those at the target.")


def _up_to(name: str, given: Any, most: float) -> float:
    number = above_zero(name, given)
    if number > most:
        raise UsageError(f"{name} must be at most {most}, not {given}.", **{name: given})
    return number


def _silent(what: str, done: int, total: int, left: float | None) -> None:
    """Says nothing."""


def _key_notes(plan: StudyPlan) -> list[str]:
    """What the user should know about the key."""
    if plan.key is None or grows(keys_of(golden_of(plan, 0).output, plan.key)):
        return []
    return [
        f"The key {plan.key!r} does not grow along the output, so sections of it do not follow each other in time:"
        " R and I say little. Take a number that grows along the input, or other sections."
    ]


def _is_done(plan: StudyPlan, unit: CampaignUnit, outages: int) -> bool:
    wanted: list[int | str] = [GOLDEN, *(range(outages) if unit.repetition < plan.repetitions else ())]
    return all(unit.file(plan, one).exists() for one in wanted)


def _shown(given: StudyInput) -> str:
    return f"a table of {given.num_rows:,} rows" if isinstance(given, pa.Table) else str(given)
