"""A recovery that has happened, beside what was estimated for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from afspark.control.history import UnitHistory
from afspark.control.quantities import FailureKind, Quantity
from afspark.control.recovery_times import RecoveryTimes
from afspark.control.schemes import Protection, Scheme, protection
from afspark.control.situation import Unit


@dataclass(frozen=True, kw_only=True)
class MeasuredRecovery:
    """How a unit recovered under ``protection`` from a failure ``at`` a moment; ``bytes_read`` is what it restored,
    ``items_replayed`` what it was given once more. ``pause``: seconds in which nobody needed the unit, as between two
    batches, although the driver knew; they are no step, and tell nothing of the next recovery. ``limit``: after how
    many seconds the driver was to know at most; 0: nobody can tell.
    """

    at: float
    unit: Unit
    kind: FailureKind
    protection: Protection
    estimated: RecoveryTimes
    measured: RecoveryTimes
    bytes_read: float = 0.0
    items_replayed: float = 0.0
    pause: float = 0.0
    limit: float = 0.0

    @property
    def off_by(self) -> float | None:
        """By which part of itself the measured time was above its estimate; below 0: it was shorter. None if either is
        unknown, or nothing was measured.
        """
        if self.estimated.unknown or self.measured.unknown or not self.measured.seconds:
            return None
        return 1 - self.estimated.seconds / self.measured.seconds

    def learned_by(self, history: UnitHistory) -> UnitHistory:
        """The history with what this recovery tells of the next one."""
        at, found = self.at + self.pause + (0.0 if self.measured.unknown else self.measured.seconds), self.measured
        if self.protection is Scheme.ACTIVE_REPLICATION:
            if found.detection:
                history = history.add(self.kind, at=at, seconds=found.detection, amount=self.limit)
            return history if found.unknown else history.add(Quantity.TAKEOVER, at=at, seconds=found.seconds)
        if found.detection is not None:
            history = history.add(self.kind, at=at, seconds=found.detection, amount=self.limit)
        if found.read and self.bytes_read:
            history = history.add(Quantity.READ, at=at, seconds=found.read, amount=self.bytes_read)
        if found.replay and self.items_replayed:
            history = history.add(Quantity.REPLAYED, at=at, seconds=found.replay, amount=self.items_replayed)
        taken = {
            Quantity.WAIT: found.wait,
            Quantity.PROMOTION: found.promotion,
            Quantity.DEPLOY: found.deploy,
            Quantity.WIRE_SEND: found.wire_send,
            Quantity.WIRE_RECEIVE: found.wire_receive,
        }
        for step, seconds in taken.items():
            # 0: the step was not taken.
            if seconds:
                history = history.add(step, at=at, seconds=seconds)
        return history

    def to_json(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "operator": self.unit.operator,
            "worker": self.unit.worker,
            "kind": str(self.kind),
            "protection": str(self.protection),
            "estimated": self.estimated.to_json(),
            "measured": self.measured.to_json(),
            "bytes_read": self.bytes_read,
            "items_replayed": self.items_replayed,
            "pause": self.pause,
            "limit": self.limit,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> MeasuredRecovery:
        """The recovery `to_json` described; KeyError, TypeError or ValueError for anything else."""
        return cls(
            at=found["at"],
            unit=Unit(found["operator"], found["worker"]),
            kind=FailureKind(found["kind"]),
            protection=protection(found["protection"]),
            estimated=RecoveryTimes.from_json(found["estimated"]),
            measured=RecoveryTimes.from_json(found["measured"]),
            bytes_read=found["bytes_read"],
            items_replayed=found.get("items_replayed", 0.0),
            pause=found.get("pause", 0.0),
            limit=found.get("limit", 0.0),
        )
