"""Which windows end with a batch, and what every operator meets in which order."""

from __future__ import annotations

from collections.abc import Sequence

from afspark.coordinator.operator_inputs import OperatorInputs
from afspark.coordinator.operator_run import OperatorRun
from afspark.model.windows import Punctuation
from afspark.protocol.punctuation_plan import punctuation_plans


def begin_windows(
    runs: Sequence[OperatorRun], inputs: OperatorInputs, now: float, *, ending: bool = False, last: bool = False
) -> None:
    """Gives every operator its punctuation plan for a batch of the time ``now``. ``ending``: all windows close, one
    level after the other; ``last``: operators that read a source are told that it has ended.
    """
    closings: dict[str, list[Punctuation]] = {}
    waiting = {run.name for run in runs if run.waits}
    for run in runs:
        # What one operator still sends belongs to windows of the next.
        final = ending and not waiting & inputs.pipeline.upstream_of(run.name)
        closings[run.name] = run.begin_batch(now, ending=final)
        if last and inputs.reads_source(run.node):
            closings[run.name].append(Punctuation.of_stream(run.name))
    plans = punctuation_plans({run.name: inputs.origins(run.node) for run in runs}, closings)
    for run in runs:
        run.group.punctuation_plan = plans[run.name]
