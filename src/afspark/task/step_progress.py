"""How far a batch of pushed items has come: what a worker must know to go on where a process has died.

Items of a receiver cannot be read again once they are confirmed, so a batch of them is applied in steps, each final
once it is closed. Its note is kept beside the state, and its positions go into every backup of the batch.

A step is closed while its backup is still being written, and the next one begins. Its items are confirmed only when
that backup is durable: until then they stay with their receiver, which hands them out again if the state is lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from afspark.model.windows import PaneReport
from afspark.push.wire.worker_messages import NO_BACKUP, BackupNumber
from afspark.store import ObjectRef
from afspark.store.itemlosses import Gap
from afspark.store.quarantine import BadBatch

Positions = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class StepProgress:
    """What has gone into the state of one lane's worker in the batch at work."""

    positions: Positions = field(default_factory=dict)
    items: int = 0
    bytes: int = 0
    gaps: tuple[Gap, ...] = ()
    #: the durable ones
    backups: tuple[ObjectRef, ...] = ()
    #: another one was being written: the state takes it for durable, and nobody knows whether it is
    writing: bool = False
    panes: PaneReport | None = None
    #: the newest backup that the state has begun to count on
    newest: BackupNumber = NO_BACKUP
    #: backups of steps, found damaged when the state was restored
    damaged: tuple[str, ...] = ()
    #: damage that no bound covers, met in this batch when the state was restored
    uncovered: tuple[str, ...] = ()
    #: what was left out
    bad: tuple[BadBatch, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "positions": dict(self.positions),
            "items": self.items,
            "bytes": self.bytes,
            "gaps": [vars(gap) for gap in self.gaps],
            "backups": [ref.to_json() for ref in self.backups],
            "writing": self.writing,
            "panes": self.panes.to_json() if self.panes else None,
            "newest": self.newest,
            "damaged": self.damaged,
            "uncovered": self.uncovered,
            "bad": [bad.to_json() for bad in self.bad],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> StepProgress:
        return cls(
            positions=found["positions"],
            items=found["items"],
            bytes=found["bytes"],
            gaps=tuple(Gap(**gap) for gap in found["gaps"]),
            backups=tuple(ObjectRef(*ref) for ref in found["backups"]),
            writing=found["writing"],
            panes=PaneReport.from_json(found["panes"]) if found["panes"] else None,
            newest=BackupNumber(*found["newest"]),
            damaged=tuple(found["damaged"]),
            uncovered=tuple(found["uncovered"]),
            bad=tuple(BadBatch.from_json(bad) for bad in found["bad"]),
        )

    def to_text(self) -> str:
        """The note that is kept beside the state."""
        return json.dumps(self.to_json())

    @classmethod
    def from_text(cls, text: str) -> StepProgress:
        return cls.from_json(json.loads(text))
