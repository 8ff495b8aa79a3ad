"""What a pipeline would make of a checkpoint, found out without running anything."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from afspark.coordinator.offsets import newest_of
from afspark.coordinator.rescaling.rescaling import fitted, numbers_found
from afspark.coordinator.unrecorded_batches import END_IN_ORDER, left_to_replay, left_to_replay_text
from afspark.graph.pipeline import Pipeline
from afspark.store import Store, open_store
from afspark.store.divided_store import whole_checkpoint
from afspark.store.identity import changes_between, require_identity
from afspark.store.pipeline_changes import WORKERS, ChangeFinding, ChangeVerdict, refusals


@dataclass(frozen=True)
class PipelinePlan:
    """What a start would find. ``batch``: the last one that is committed, None before the first."""

    checkpoint: str
    query_id: str
    batch: int | None
    findings: tuple[ChangeFinding, ...]

    @property
    def starts(self) -> bool:
        """Whether the pipeline would start on the checkpoint."""
        return not refusals(self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "checkpoint": self.checkpoint,
            "query_id": self.query_id,
            "batch": self.batch,
            "starts": self.starts,
            "findings": [one.to_json() for one in self.findings],
        }


def plan_change(checkpoint: str | Path, pipeline: Pipeline, discard: Collection[str] = ()) -> PipelinePlan:
    """What a start of ``pipeline`` on a checkpoint, or from a savepoint, would keep, begin anew, and refuse.

    Reads only. `UsageError` if there is no checkpoint.
    """
    folder = whole_checkpoint(open_store(checkpoint))
    identity = require_identity(folder)
    findings = _with_numbers(folder, pipeline, changes_between(identity.settings, pipeline.settings(), discard))
    return PipelinePlan(
        checkpoint=folder.path,
        query_id=identity.query_id,
        batch=newest_of(folder, "commits"),
        findings=(*findings, *_of_the_past(folder, findings)),
    )


def _with_numbers(folder: Store, pipeline: Pipeline, findings: Sequence[ChangeFinding]) -> list[ChangeFinding]:
    """The findings; numbers of workers that an operator cannot have are refused."""
    _, numbers = fitted(pipeline, numbers_found(folder))
    refused = {one.operator: one for one in numbers if one.refused}
    return [
        replace(one, verdict=ChangeVerdict.REFUSED, text=f"{number.text}.", remedy=number.remedy)
        if one.field == WORKERS and (number := refused.get(one.operator or "")) is not None
        else one
        for one in findings
    ]


def _of_the_past(folder: Store, findings: Collection[ChangeFinding]) -> list[ChangeFinding]:
    """A refusal if batches would be replayed in another way than they took."""
    behind = left_to_replay(folder) if any(one.is_structural for one in findings) else range(0)
    if not behind:
        return []
    text = f"{left_to_replay_text(behind)} and operators are not what they were then."
    return [ChangeFinding(verdict=ChangeVerdict.REFUSED, field="batches", text=text, remedy=END_IN_ORDER)]
