"""Exact recovery by barrier snapshots: the state of all workers at the end of one batch, and replay from there.

After Carbone et al., "Lightweight Asynchronous Snapshots for Distributed Dataflows". The end of a batch is a barrier:
every operator has applied it, and nothing is in transit but feedback, which goes into the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from afspark.errors import UsageError
from afspark.policies import parameters
from afspark.policies.barriers import BarrierTolerance


@dataclass(frozen=True)
class BarrierSnapshot(BarrierTolerance):
    """Exact: at every barrier the workers copy what has changed since the last one, and go on.

    The copies reach the store behind the next batches; a snapshot counts once all of it is durable. A worker that is
    lost is restored from the newest such snapshot, and applies the batches since then once more, while all others keep
    their state. A barrier is the end of the first batch that will end ``interval`` seconds after the last one; or of
    every so many ``batches``; or of the first that begins when so many ``items`` have come since. While a snapshot is
    on its way to the store no other one is begun. An orderly end of the query takes a last one.

    A worker's snapshots build on each other: every ``full_every``-th is a full image, so that a recovery reads at most
    so many objects; earlier ones come when the changes outweigh the last image. The newest ``keep`` complete snapshots
    stay in the store, with all objects that they build on; by default 8, and up to 16 before older ones are deleted.

    With ``asynchronous=False`` everybody waits at a barrier until the snapshot is durable. With ``recovery="full"``
    a loss takes everybody back to the last snapshot. Both are for comparison.

    Pushed items stay with their sender until a snapshot covers them, and are acknowledged then; with ``log_items`` they
    are in the item log before a worker gets them, and are acknowledged out of it. ``unacked`` is how many items a
    sender may have under way.

    >>> BarrierSnapshot().interval
    1.0
    >>> BarrierSnapshot(batches=5).is_due(seconds=60.0, batches=4, items=10**6)
    False
    """

    asynchronous: bool = True
    recovery: str = "partial"

    name: ClassVar[str] = "snapshot"
    reason: ClassVar[str] = "every change is backed up at the next barrier, and replayed until then"

    def __post_init__(self) -> None:
        super().__post_init__()
        parameters.choice("asynchronous", self.asynchronous)
        if not parameters.is_one_of(self.recovery, "partial", "full"):
            raise UsageError(
                f"Unknown recovery {parameters.shown(self.recovery)}.",
                remedy='Use "partial" (the lost worker is replayed) or "full" (everybody goes back).',
            )

    @property
    def waits_at_barriers(self) -> bool:
        return not self.asynchronous

    @property
    def takes_all_back(self) -> bool:
        return self.recovery == "full"

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"asynchronous": self.asynchronous, "recovery": self.recovery}
