"""What the controller has decided for a unit, with the reasons; and what is in force since then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from afspark.control.candidates import Candidate
from afspark.control.schemes import Protection, protection
from afspark.control.situation import Unit


@dataclass(frozen=True, kw_only=True)
class InForce:
    """The protection that a unit has, its interval, and since when, in seconds since 1970."""

    protection: Protection
    interval: float | None
    since: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"protection": str(self.protection)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> InForce:
        return cls(protection=protection(found["protection"]), interval=found["interval"], since=found["since"])


@dataclass(frozen=True, kw_only=True)
class Decision:
    """``chosen`` for ``unit`` ``at`` a moment, instead of what was in force ``before`` (None: nothing was yet)."""

    at: float
    unit: Unit
    before: InForce | None
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    limit: float
    reason: str

    @property
    def changes(self) -> bool:
        """Whether anything is to be done."""
        kept = self.before
        return kept is None or (kept.protection, kept.interval) != (self.chosen.protection, self.chosen.interval)

    @property
    def in_time(self) -> bool:
        """Whether anything recovers within the limit."""
        return any(one.seconds <= self.limit for one in self.candidates)

    @property
    def in_force(self) -> InForce:
        """What is in force once it is carried out."""
        if self.before is not None and not self.changes:
            return self.before
        return InForce(protection=self.chosen.protection, interval=self.chosen.interval, since=self.at)

    def to_json(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "operator": self.unit.operator,
            "worker": self.unit.worker,
            "before": None if self.before is None else self.before.to_json(),
            "from": None if self.before is None else str(self.before.protection),
            "to": str(self.chosen.protection),
            "interval": self.chosen.interval,
            "changes": self.changes,
            "limit": self.limit,
            "reason": self.reason,
            "candidates": [one.to_json() | {"verdict": one.verdict(self.limit)} for one in self.candidates],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Decision:
        """The decision `to_json` described; KeyError, TypeError or ValueError for anything else."""
        candidates = tuple(map(Candidate.from_json, found["candidates"]))
        chosen = (protection(found["to"]), found["interval"])
        return cls(
            at=float(found["at"]),
            unit=Unit(found["operator"], found["worker"]),
            before=None if found["before"] is None else InForce.from_json(found["before"]),
            chosen=next(one for one in candidates if (one.protection, one.interval) == chosen),
            candidates=candidates,
            limit=float(found["limit"]),
            reason=str(found["reason"]),
        )
