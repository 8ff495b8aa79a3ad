"""What a cluster knows of failures: how soon the driver hears of them, and when they happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from afspark.clock import Clock
from afspark.control import FailureKind
from afspark.coordinator.recovery.recovery_timings import SeenFailure

_KINDS = {"silent": FailureKind.FROZEN, "gone": FailureKind.HOST_LOST}
"""What has happened to a host that does not answer, or whose executor Spark has removed. One that is cut off is silent
as well: nobody but its neighbours could tell.
"""


class MissedHost(Protocol):
    """A host that the driver has missed. Times are those of a clock that never goes back."""

    @property
    def host(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def heard(self) -> float:
        """Its last sign of life."""


@runtime_checkable
class WatchesHosts(Protocol):
    """A cluster that misses hosts by itself."""

    def failures(self) -> Sequence[MissedHost]:
        """The last hosts that were missed, oldest first."""


@runtime_checkable
class MissesInTime(Protocol):
    """A cluster that says how soon it misses a host, whatever has happened to it."""

    def detection_seconds(self) -> float:
        """Seconds from a failure until the driver knows, at most."""


class Detection:
    """What ``cluster`` knows, if it watches its hosts; else nothing is known of a kind before it was measured."""

    def __init__(self, cluster: object, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock

    def deadlines(self) -> Mapping[FailureKind, float]:
        """By kind of failure, after how many seconds the driver knows at most; nothing of a kind without a limit."""
        if not isinstance(self._cluster, MissesInTime):
            return {}
        return dict.fromkeys(FailureKind, self._cluster.detection_seconds())

    def seen(self, host: str) -> SeenFailure | None:
        """The newest failure of a host; None if the cluster has seen none."""
        missed = list(self._cluster.failures()) if isinstance(self._cluster, WatchesHosts) else []
        for one in reversed(missed):
            if one.host == host and one.kind in _KINDS:
                ago = self._clock.monotonic() - one.heard
                return SeenFailure(_KINDS[one.kind], self._clock.time() - ago)
        return None
