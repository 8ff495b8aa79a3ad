"""What a cluster may know of failures: how soon the driver hears of them, and when they happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from afspark.control import FailureKind
from afspark.coordinator.recovery.recovery_timings import SeenFailure


@runtime_checkable
class Detection(Protocol):
    """A cluster that finds failures by itself."""

    def detection_deadlines(self) -> Mapping[FailureKind, float]:
        """By kind of failure, after how many seconds at most the driver knows; nothing of a kind without a limit."""

    def seen_failure(self, host: str) -> SeenFailure | None:
        """The newest failure of a host; None if the cluster has seen none."""


class Undetected:
    """A cluster of which nothing is known before it was measured."""

    def detection_deadlines(self) -> Mapping[FailureKind, float]:
        return {}

    def seen_failure(self, host: str) -> SeenFailure | None:
        return None
