"""What belonged to batches that an earlier driver has run, for workers that have to apply them again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from afspark.cluster.remade_frame import PastFrames, RemadeFrame
from afspark.coordinator.batch_input import BatchFrame, BatchInput
from afspark.coordinator.operator_inputs import OperatorInputs
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.recovery.coverage import declare_missing_input
from afspark.numbers import Batch
from afspark.store import Ledger


class PastInput:
    """Finds the input of committed batches. What of it is gone is declared before anybody goes on without it."""

    def __init__(self, inputs: OperatorInputs, ledger: Ledger, frames: PastFrames | None) -> None:
        self._inputs, self._ledger, self._frames = inputs, ledger, frames

    def of(self, batch: Batch, runs: Sequence[OperatorRun]) -> BatchInput:
        """The input of a batch; a DataFrame is made again only if somebody asks for it."""
        slices = self._inputs.slices(batch, first=True)
        gone = sorted({chunk.part_of for one in slices.values() for chunk in one.gone})
        frame = BatchFrame(partial(self._remade, batch, runs)) if self._inputs.pipeline.frames else None
        return BatchInput(slices, frame, partial(self._tell, batch, runs, gone))

    def _remade(self, batch: Batch, runs: Sequence[OperatorRun]) -> Any:
        unknown = RemadeFrame(None, [f"batch {batch} of the DataFrame"])
        remade = self._frames.remake(batch) if self._frames else unknown
        self._tell(batch, runs, remade.gone)
        return remade.frame

    def _tell(self, batch: Batch, runs: Sequence[OperatorRun], gone: Sequence[str]) -> None:
        for run in runs:
            if gone:
                declare_missing_input(self._ledger, run, batch, gone)
