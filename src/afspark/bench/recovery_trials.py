"""Real failures of a primary's host, one after the other in a running query, and how long recoveries took."""

from __future__ import annotations

import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import afspark as af
from afspark.bench.bench_hosts import BenchHosts
from afspark.bench.real_failures import RealFailure, fail, mend
from afspark.bench.replica_case import wait_for_scheme, wait_until
from afspark.policies.replication import Replicated

#: A host that is frozen or cut off is so for no longer than this, whatever has become of its workers.
LATE_SECONDS = 60.0
_PATIENCE_SECONDS = 120.0
#: So many batches after a failure tell how long it has held up one.
_AFTER = 4
_BEFORE = 4
_STEPS = ("detection", "wait", "promotion", "deploy", "read", "wire_send", "wire_receive", "replay")


@dataclass
class BatchEnds:
    """When batches ended, by how many had; times are those of the clock that never goes back."""

    query: af.Query
    ends: dict[int, float] = field(default_factory=dict)

    def look(self) -> None:
        """Notes the batches that have ended since the last look."""
        self.ends.setdefault(self.query.totals.batches, time.monotonic())

    def after(self, moment: float) -> dict[int, float]:
        """The ends since a moment."""
        return {number: end for number, end in self.ends.items() if end > moment}

    def usual(self, before: float) -> float:
        """The median time from one end to the next, until a moment."""
        ends = sorted(end for end in self.ends.values() if end <= before)
        return statistics.median(b - a for a, b in itertools.pairwise(ends))


@dataclass(frozen=True)
class Trials:
    """Failures of the host of worker 0 of a query under a fixed tolerance, or under the controller. ``late``: after so
    many seconds without a batch the host is back.
    """

    hosts: BenchHosts
    query: af.Query
    tolerance: af.Tolerance
    late: float = LATE_SECONDS

    def run(self, failure: RealFailure, seed: int) -> dict[str, float]:
        """One failure at a moment that the seed decides; the figures of `figures_of`. The host is back afterwards."""
        self._recover()
        draw, query = random.Random(f"{seed} {failure}"), self.query
        ends = BatchEnds(query)
        wait_until(query, _looking(ends, lambda: len(ends.ends) > _BEFORE), _PATIENCE_SECONDS)
        # Anywhere between two checkpoints that are a second apart, and between two batches.
        moment = time.monotonic() + draw.uniform(0.0, 1.0 + ends.usual(math.inf))
        wait_until(query, _looking(ends, lambda: time.monotonic() >= moment), _PATIENCE_SECONDS)
        before = _foreseen(query)
        host = query.tolerance()[0]["host"]
        losses, at, wall = len(query.ledger()), time.monotonic(), time.time()
        try:
            fail(self.hosts, host, failure)
            struck = time.monotonic() - at
            wait_until(
                query,
                _looking(ends, lambda: len(ends.after(at)) >= _AFTER or time.monotonic() - at > self.late),
                2 * self.late,
            )
        finally:
            mend(self.hosts, host, failure)
        late = len(ends.after(at)) < _AFTER
        wait_until(query, _looking(ends, lambda: len(ends.after(at)) >= _AFTER), _PATIENCE_SECONDS)
        lost = [entry for entry in query.ledger()[losses:] if entry["at"] >= wall]
        noticed = [one.noticed - at for one in query._cluster.failures() if one.host == host and one.noticed > at]
        found = figures_of(ends.after(at), at, ends.usual(at), lost, before)
        return found | {"late": float(late), "struck": struck, **({"noticed": min(noticed)} if noticed else {})}

    def _recover(self) -> None:
        """Waits until all hosts are there and the worker is protected as it should be."""
        self.hosts.complete()
        if isinstance(self.tolerance, Replicated):
            wait_for_scheme(self.query, self.tolerance)


def figures_of(
    ends: Mapping[int, float],
    at: float,
    usual: float,
    lost: Sequence[Mapping[str, Any]],
    before: Mapping[str, float],
) -> dict[str, float]:
    """What a failure ``at`` a moment has cost. ``ends``: when so many batches had ended, for all that ended since then.

    ``recovery``: from the failure to the end of the batch that has found the loss, the first one that was applied without
    the host; ``held_up``: to that of the batch after the longest pause, which may come later; ``usual``: how far apart
    batches are otherwise. If nothing was lost, both are the same. What the ledger says of the loss is beside it: the
    ``step_`` of the recovery and what was ``estimated`` for it. Without a loss that is what the query told ``before``.

    >>> figures_of({5: 10.4, 6: 13.0, 7: 13.5}, 10.0, 0.5, [], {})["recovery"]
    3.0
    """
    times = [ends[number] for number in sorted(ends)]
    pauses = [end - start for start, end in itertools.pairwise([at, *times])]
    held_up = times[max(range(len(times)), key=lambda place: pauses[place])]
    # Batches are numbered from 0.
    found_in = min((entry["batch"] + 1 for entry in lost), default=None)
    back = min((end for number, end in ends.items() if found_in is not None and number >= found_in), default=held_up)
    found = {"recovery": back - at, "held_up": held_up - at, "usual": usual, "losses": float(len(lost)), **before}
    steps = next((entry["steps"] for entry in lost if entry["steps"]), None)
    if steps is not None:
        found |= {f"step_{name}": steps[name] for name in _STEPS if steps.get(name) is not None}
    estimated = next((entry["estimated"] for entry in lost if entry["estimated"]), None)
    if estimated is not None and estimated.get("seconds") is not None:
        found["estimated"] = estimated["seconds"]
    found["promoted"] = float(any(entry["restore_seconds"] == 0.0 and entry["host"] for entry in lost))
    return found


def _foreseen(query: af.Query) -> dict[str, float]:
    """What the query tells of a recovery now, of whatever kind of failure; nothing if a step is unknown."""
    for answer in query.estimates()[:1]:
        for one in answer["candidates"]:
            if one["in_force"] and one["seconds"] is not None:
                return {"foreseen": one["seconds"]}
    return {}


def _looking(ends: BatchEnds, done: Callable[[], bool]) -> Callable[[], bool]:
    def look() -> bool:
        ends.look()
        return done()

    return look
