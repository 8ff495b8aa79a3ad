"""A pipeline as it is given to the runtime: plain values, checked once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from afspark.errors import UsageError
from afspark.model.operator import Operator, Transform
from afspark.policies import MiniBatch, Tolerance
from afspark.runtime.faults import FaultPlan
from afspark.runtime.roster import Terms
from afspark.runtime.sources import Source
from afspark.runtime.stages import Work

DEFAULT_BATCH_BYTES = 40_000_000


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Source, stateless transforms, one stateful operator with its workers and tolerance."""

    source: Source | DataFrame
    operator: Operator
    transforms: tuple[Transform, ...] = ()
    workers: int = 2
    tolerance: Tolerance = field(default_factory=MiniBatch)
    keyed: bool = False
    name: str = "operator"

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise UsageError(f"An operator needs at least one worker, not {self.workers}.", workers=self.workers)
        if self.keyed and not self.operator.key:
            raise UsageError(
                f"{type(self.operator).__name__} has no key, so its state cannot be partitioned by key.",
                remedy="Give the operator a `key`, or let it run on local shares.",
            )

    @property
    def terms(self) -> Terms:
        return Terms(tolerance=self.tolerance, states=self.operator.states(), workers=self.workers, keyed=self.keyed)

    @property
    def work(self) -> Work:
        source = self.source if isinstance(self.source, Source) else None
        return Work(self.operator, self.transforms, source, self.keyed)

    def settings(self) -> dict[str, Any]:
        """What a checkpoint is bound to: other values need another checkpoint."""
        source = self.source.to_json() if isinstance(self.source, Source) else {"kind": "dataframe"}
        source.pop("chunk_bytes", None)  # chunks found so far are in the log with the size they had
        return {
            "source": source,
            "operator": self.operator.fingerprint(),
            "workers": self.workers,
            "keyed": self.keyed,
        }

    def fingerprint(self) -> str:
        text = json.dumps(self.settings(), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a query runs, apart from what it computes."""

    checkpoint: str
    batch_bytes: int = DEFAULT_BATCH_BYTES
    #: emit the rows that a batch changed
    emit: bool = False
    #: folder for resident state on every host; None: shared memory
    segments: str | None = None
    #: how long a home without executor may stay away before its workers count as lost
    host_grace_seconds: float = 20.0
    faults: FaultPlan = field(default_factory=FaultPlan)

    def __post_init__(self) -> None:
        if self.batch_bytes < 1:
            raise UsageError(f"A batch needs a size of at least one byte, not {self.batch_bytes}.")
