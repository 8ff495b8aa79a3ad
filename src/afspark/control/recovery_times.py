"""The time from a failure to the next batch applied, by its steps: estimated, or as it was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RecoveryTimes:
    """Seconds by `RecoveryStep`: 0 for a step that is not needed, None for one that nobody can tell."""

    detection: float | None = 0.0
    wait: float | None = 0.0
    promotion: float | None = 0.0
    deploy: float | None = 0.0
    read: float | None = 0.0
    wire_send: float | None = 0.0
    wire_receive: float | None = 0.0
    replay: float | None = 0.0

    @property
    def unknown(self) -> tuple[str, ...]:
        """The steps that nobody can tell."""
        return tuple(one.name for one in fields(self) if getattr(self, one.name) is None)

    @cached_property
    def seconds(self) -> float:
        """All steps together, where wiring both ways happens at once; infinite if one of them is unknown.

        >>> RecoveryTimes(detection=1.0, wire_send=0.3, wire_receive=0.5).seconds
        1.5
        >>> RecoveryTimes(detection=1.0, deploy=None).seconds
        inf
        """
        wiring = (self.wire_send, self.wire_receive)
        steps = (self.detection, self.wait, self.promotion, self.deploy, self.read, self.replay)
        return math.fsum(map(_known, (*steps, max(wiring, key=_known))))

    def to_json(self) -> dict[str, Any]:
        """The steps; and their sum, which is None if it is not known."""
        steps = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**steps, "seconds": None if self.unknown else self.seconds}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> RecoveryTimes:
        return cls(**{name: value for name, value in found.items() if name != "seconds"})


def _known(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds
