"""What a lost worker lacks for good where nothing is replayed: all since the state that it goes on from. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from afspark.coordinator.worker_state import DurableState, WorkerState
from afspark.numbers import Batch
from afspark.protocol.reports import TaskReport


@dataclass
class AppliedBatches:
    """How many items workers have got, and have fed back, in the batches that no durable record covers; and which of
    these batches they lack for good, which was told.
    """

    _items: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    _left_out: dict[int, set[int]] = field(default_factory=dict)

    def note(self, batch: int, report: TaskReport) -> None:
        """A worker has applied ``batch``."""
        self._items.setdefault(report.worker, {})[batch] = report.work.items, sum(report.fed_back.values())

    def forget(self, covered: Batch) -> None:
        """A durable record covers all up to ``covered``."""
        self._items = {
            worker: {batch: known for batch, known in found.items() if batch > covered}
            for worker, found in self._items.items()
        }
        self._left_out = {worker: {one for one in found if one > covered} for worker, found in self._left_out.items()}

    def leave_out(self, worker: int, batches: Iterable[int]) -> None:
        """A worker lacks these batches for good, and that is told."""
        self._left_out.setdefault(worker, set()).update(batches)

    def had(self, worker: int, since: int, until: int) -> list[int]:
        """The batches after ``since`` up to ``until``, but for those that the worker has lost before."""
        before = self._left_out.get(worker, set())
        return [batch for batch in range(since + 1, until + 1) if batch not in before]

    def items_in(self, worker: int, batches: Iterable[int]) -> int:
        known = self._items.get(worker, {})
        return sum(known.get(batch, (0, 0))[0] for batch in batches)

    def items_of(self, worker: int, since: int, until: int) -> int:
        """The items that a worker has got after batch ``since``, up to ``until``."""
        known = self._items.get(worker, {})
        return sum(items for batch, (items, _) in known.items() if since < batch <= until)

    def fed_back(self, worker: int, batch: int) -> int:
        return self._items.get(worker, {}).get(batch, (0, 0))[1]


def without_replay(
    member: WorkerState, state: DurableState, applied: AppliedBatches, states: Iterable[str]
) -> DurableState:
    """``state``, which ``member`` goes on from as if it were that of its last batch.

    The batches in between are a gap, which no bound covers; those that a loss before has taken were told with that one.
    Where there are none, nothing is lost but what thresholds have kept out of its backups.
    """
    lacking = applied.had(member.worker, state.version, member.version)
    if not lacking:
        incarnation = state.incarnation if any((state.older_theta or {}).values()) else None
        return replace(state, version=max(state.version, member.version), incarnation=incarnation)
    unlimited: Mapping[str, float] = dict.fromkeys(states, math.inf)
    return replace(
        state,
        version=member.version,
        incarnation=member.incarnation,
        waiting=applied.fed_back(member.worker, member.version),
        older_theta=unlimited,
        gap_batches=len(lacking),
        gap_items=applied.items_in(member.worker, lacking),
    )
