"""What a commit record says of one operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from afspark.numbers import Incarnation
from afspark.store.quarantine import Count
from afspark.store.worker_record import WorkerRecord

if TYPE_CHECKING:
    from afspark.model.windows import WindowProgress


@dataclass(frozen=True, kw_only=True)
class OperatorCounters:
    """What an operator has left out since its checkpoint was made."""

    late: int = 0
    unplaced: int = 0
    #: items that the operator could not take, and how many bytes of them were kept
    bad: tuple[Count, ...] = ()
    quarantined: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> OperatorCounters:
        return cls(**{**found, "bad": tuple(Count(**one) for one in found["bad"])})


@dataclass(frozen=True)
class Rescaled:
    """An operator had so many ``workers`` once, and has others since an incarnation: whatever the ledger says of those
    before it is about the earlier ones.
    """

    workers: int
    since: Incarnation


@dataclass(frozen=True, kw_only=True)
class OperatorRecord:
    """One operator at the end of a batch."""

    workers: tuple[WorkerRecord, ...] = ()
    #: None without windows
    window_progress: WindowProgress | None = None
    counters: OperatorCounters = field(default_factory=OperatorCounters)
    #: by lane, what failures of its receivers can have taken
    lost_by_receivers: Mapping[int, float] = field(default_factory=dict)
    #: by lane, how many pushed items never came
    missing_items: Mapping[int, int] = field(default_factory=dict)
    #: what users were told: how far failures can have moved each state at most, and how many pushed items they took
    bounds: Mapping[str, float] = field(default_factory=dict)
    lost_items: int = 0
    #: the operators whose losses may have changed what it received
    upstream: tuple[str, ...] = ()
    #: the schemes of workers that are not those of the program
    schemes: Mapping[str, Any] = field(default_factory=dict)
    #: how many workers there were before those of this record; None: always as many
    rescaled: Rescaled | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "workers": [worker.to_json() for worker in self.workers],
            "window_progress": self.window_progress.to_json() if self.window_progress else None,
            "counters": self.counters.to_json(),
            "lost_by_receivers": [[lane, most] for lane, most in sorted(self.lost_by_receivers.items())],
            "missing_items": sorted(self.missing_items.items()),
            "bounds": dict(self.bounds),
            "lost_items": self.lost_items,
            "upstream": list(self.upstream),
            **({"schemes": dict(self.schemes)} if self.schemes else {}),
            **({"rescaled": vars(self.rescaled)} if self.rescaled else {}),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> OperatorRecord:
        # Not before: receivers use the store as well, and need none of the kernels that come with windows.
        from afspark.model.windows import WindowProgress

        progress = found["window_progress"]
        return cls(
            workers=tuple(WorkerRecord.from_json(worker) for worker in found["workers"]),
            window_progress=WindowProgress.from_json(progress) if progress else None,
            counters=OperatorCounters.from_json(found["counters"]),
            lost_by_receivers=dict(found["lost_by_receivers"]),
            missing_items=dict(found["missing_items"]),
            bounds=found["bounds"],
            lost_items=found["lost_items"],
            upstream=tuple(found.get("upstream", ())),
            schemes=found.get("schemes", {}),
            rescaled=Rescaled(**found["rescaled"]) if "rescaled" in found else None,
        )
