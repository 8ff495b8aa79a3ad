"""What a cluster knows of failures: how soon the driver hears of them, and when they happened."""

from __future__ import annotations

from collections.abc import Mapping

from afspark.cluster.cluster import Cluster
from afspark.cluster.liveness import Absence
from afspark.control import FailureKind
from afspark.coordinator.recovery.recovery_timings import SeenFailure

_KINDS = {Absence.SILENT: FailureKind.FROZEN, Absence.GONE: FailureKind.HOST_LOST}
"""What has happened to a host that does not answer, or whose executor Spark has removed. One that is cut off is silent
as well: nobody but its neighbours could tell.
"""


class Detection:
    """What ``cluster`` knows."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def deadlines(self) -> Mapping[FailureKind, float]:
        """By kind of failure, after how many seconds the driver knows at most; nothing of a kind without a limit."""
        limit = self._cluster.detection_seconds()
        return {} if limit is None else dict.fromkeys(FailureKind, limit)

    def seen(self, host: str) -> SeenFailure | None:
        """The newest failure of a host; None if the cluster has seen none."""
        clock = self._cluster.clock
        for one in reversed(self._cluster.failures()):
            if one.host == host:
                offset = clock.time() - clock.monotonic()
                return SeenFailure(_KINDS[one.kind], offset + one.heard, offset + one.noticed, one.limit)
        return None
