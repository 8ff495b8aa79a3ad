"""Trials that are run again as streaming queries on Spark, to see that both agree."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from afspark.api.stream import Inflow, StatefulStream, Stream
from afspark.api.writer import StreamWriter
from afspark.graph.injector import Inlet, StreamFault, injecting
from afspark.lab.application import call
from afspark.lab.campaign_units import CampaignUnit, golden_of, unit_faults, unit_trial
from afspark.lab.fault_trials import with_neighbours
from afspark.lab.observations import Outage
from afspark.lab.row_differences import different_rows
from afspark.lab.study_plan import StudyPlan
from afspark.lab.study_result import SampledTrial
from afspark.sources.recorded_items import RecordedItems


def sampled_units(plan: StudyPlan, outages: list[int], wanted: int) -> list[tuple[CampaignUnit, int]]:
    """Trials to be run again, drawn by the seed of the study: different targets as long as there are some."""
    # A query gives its sink what the last operator itself has sent.
    fit = [number for number, one in enumerate(plan.targets) if not any(inlet.behind for inlet in one.inlets)]
    if not fit:
        return []
    random = np.random.default_rng([plan.seed, 2])
    targets = random.permutation(fit)
    chosen = []
    for number in range(wanted):
        target = int(targets[number % len(targets)])
        unit = CampaignUnit(int(random.integers(plan.repetitions)), target, int(random.integers(len(plan.offsets))))
        chosen.append((unit, int(random.integers(outages[target]))))
    return list(dict.fromkeys(chosen))


def rerun_as_query(spark: SparkSession, plan: StudyPlan, unit: CampaignUnit, outage: Outage) -> SampledTrial:
    """Runs a trial as a query with the tolerances of the pipeline, and compares what came out, byte for byte."""
    application, golden = plan.application(unit.repetition), golden_of(plan, unit.repetition)
    faults = unit_faults(plan, unit, application, golden, outage.items)
    expected = unit_trial(plan, unit, application, golden, outage.items).whole()
    found = query_output(spark, plan, unit.repetition, with_neighbours(application, faults))
    agrees, detail = compared(expected, found)
    return SampledTrial(
        plan.targets[unit.target].name, plan.offsets[unit.offset], outage, unit.repetition, agrees, detail
    )


def query_output(
    spark: SparkSession, plan: StudyPlan, repetition: int, faults: Mapping[Inlet, StreamFault]
) -> pa.Table:
    """What a streaming query over the items of a repetition gives to its sink."""
    folder = plan.folder(repetition)
    streams = [
        Stream(spark, (Inflow(RecordedItems(str(folder / f"input{number}.arrow"))),))
        for number in range(len(plan.inputs))
    ]
    made = call(plan.builder, streams)
    writer = made.writeStream.outputMode("append") if isinstance(made, StatefulStream) else made
    assert isinstance(writer, StreamWriter)
    parts: dict[int, pa.Table] = {}

    def take(frame: DataFrame, batch: int) -> None:
        parts[batch] = frame.toArrow()

    with tempfile.TemporaryDirectory(prefix="afspark-lab-query-") as checkpoint:
        query = (
            writer.rewritten((injecting(faults),))
            .foreachBatch(take)
            .option("checkpointLocation", str(Path(checkpoint) / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        if any(node.window is not None for node in plan.application(repetition).graph.nodes):
            query.end()
        query.stop()
        # Its checkpoint goes, and nobody would look for its state in the memory of the hosts.
        query.release()
    if writer.mode == "complete":
        return parts[max(parts)]
    return pa.concat_tables([parts[batch] for batch in sorted(parts)])


def compared(expected: pa.Table, found: pa.Table) -> tuple[bool, str]:
    """Whether two outputs have the same rows, whatever their order, and what was compared."""
    if expected.column_names != found.column_names:
        return False, f"columns {', '.join(found.column_names)} instead of {', '.join(expected.column_names)}"
    if not different_rows(expected, found.cast(expected.schema), expected.column_names).num_rows:
        return True, f"all {expected.num_rows:,} rows are equal, byte for byte"
    if expected.num_rows != found.num_rows:
        return False, f"{found.num_rows:,} rows instead of {expected.num_rows:,}"
    return False, "as many rows, with other values"
