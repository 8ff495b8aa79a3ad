"""What a commit record says: the state of the whole query after a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from afspark.numbers import Batch
from afspark.store.operator_record import OperatorRecord
from afspark.store.snapshot_history import SnapshotEntry

Positions = Mapping[str, int]
"""How far a lane has been taken: the number after the last item, by producer."""

LanePositions = Mapping[int, Positions]
"""The positions of a pushed source, by lane."""


class StreamEnd(StrEnum):
    """How far the end of the stream has come."""

    OPEN = "open"
    CLOSING = "closing"  # the batch was one of those that close the last windows
    TOLD = "told"  # every operator was told that the stream has ended


@dataclass(frozen=True)
class CommitRecord:
    """The state of the whole query after ``batch``, written once by the driver of ``epoch``."""

    batch: Batch
    epoch: str
    operators: Mapping[str, OperatorRecord]
    #: taken from all sources since the checkpoint was made
    items: int = 0
    bytes: int = 0
    end: StreamEnd = StreamEnd.OPEN
    #: how far the lanes of pushed sources have been taken, by source
    lanes: Mapping[str, LanePositions] = field(default_factory=dict)
    #: the newest objects of the loss ledger
    ledger_heads: tuple[str, ...] = ()
    #: what became of the newest snapshots, this one the last, if snapshots are not taken with every batch
    snapshots: tuple[SnapshotEntry, ...] = ()
    #: later batches may have no record yet, because lost workers replay them
    replays: bool = False

    def references(self) -> frozenset[str]:
        """Names of all objects some worker may need."""
        return frozenset(
            name for operator in self.operators.values() for worker in operator.workers for name in worker.references()
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "epoch": self.epoch,
            "operators": {name: operator.to_json() for name, operator in self.operators.items()},
            "items": self.items,
            "bytes": self.bytes,
            "end": self.end,
            "lanes": {
                source: [[lane, dict(positions)] for lane, positions in lanes.items()]
                for source, lanes in self.lanes.items()
            },
            "ledger_heads": self.ledger_heads,
            **({"snapshots": [entry.to_json() for entry in self.snapshots]} if self.snapshots else {}),
            **({"replays": True} if self.replays else {}),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> CommitRecord:
        """The record `to_json` described; KeyError, TypeError or ValueError for anything else."""
        return cls(
            batch=found["batch"],
            epoch=found["epoch"],
            operators={name: OperatorRecord.from_json(one) for name, one in found["operators"].items()},
            items=found["items"],
            bytes=found["bytes"],
            end=StreamEnd(found["end"]),
            lanes={source: dict(lanes) for source, lanes in found["lanes"].items()},
            ledger_heads=tuple(found["ledger_heads"]),
            snapshots=tuple(map(SnapshotEntry.from_json, found.get("snapshots", ()))),
            replays=bool(found.get("replays", False)),
        )
