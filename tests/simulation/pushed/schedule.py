"""What a seed stands for: a pipeline over a pushed source, its policy and windows, and what may go wrong."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from afspark.model.states import HashTable, StateSpec
from afspark.model.windows import Decaying, Hopping, Sliding, Window
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Nothing, Tolerance, UpstreamBackup
from tests.simulation.schedule import FACTORS, changed_theta

#: What can happen to whoever is at work. Each schedule has some of them only: rare ones are not drowned by the others.
TROUBLES = (
    "process",  # of a worker
    "folder",  # a worker's process and its segment
    "host",  # a worker's process and all segments of its host
    "everything",  # all segments of all hosts
    "vanish",  # a segment, while its process goes on
    "away",  # a host has no executor for a while
    "stall",  # a task is taken for dead, and goes on later
    "driver",
    "system",  # the driver and all segments
    "receiver",
    "producer",
    "clock",  # of a host, set forward or back
    "store",  # a write fails, or is cut short by a death
)

#: Names of moments at which some schedules fail again and again.
HUNTED = ("answer get", "after close_step", "phase backing up", "after put objects", "call settle", "after restored")

#: Policies that a restart may bring.
OTHERS: tuple[Tolerance, ...] = (
    MiniBatch(),
    MiniBatch(unacked=20.0),
    MiniBatch(log_items=True, unacked=20.0),
    UpstreamBackup(),
    UpstreamBackup(log_items=True),
    Approximate(8.0, items=16.0, unacked=20.0),
    Approximate(8.0, items_seconds=0.05, unacked=20.0),
)

#: The largest amount that an item adds to a cell.
LARGEST = 3


@dataclass(frozen=True)
class PushedSchedule:
    """Everything that is fixed before the first step."""

    seed: int
    lanes: int
    #: workers of the operator behind a relay; None: it takes items off the lanes itself
    behind: int | None
    emits: bool
    window: Window | None
    #: what its table is keyed by: the item's number, the operator's key, or something else
    table: str
    #: says so, if that is the operator's key
    declares: bool
    divergence: str
    tolerance: Tolerance
    #: what Θ is multiplied with at each restart
    factors: tuple[float, ...]
    batches: int
    times: tuple[float, ...]
    producers: int
    pieces: int
    epoch: float
    leap: float
    hosts: int
    failures: int
    rate: float
    #: moments that pass before anything goes wrong
    spared: int
    #: of a tick
    seconds: float
    troubles: tuple[str, ...]
    hunted: str | None
    corrupts: bool
    #: loses all state before almost every batch
    relentless: bool
    ends: bool
    #: whether everything that was acknowledged is awaited at the end
    drains: bool

    @cached_property
    def spec(self) -> StateSpec:
        return HashTable(
            key="int64",
            value="float64" if isinstance(self.window, Decaying) else "int64",
            divergence=self.divergence,
            operator_key=self.table == "key" and self.declares,
        )

    @property
    def alpha(self) -> float:
        return 1.0 if self.divergence == "keys" else float(LARGEST)

    def tolerance_of(self, start: int) -> Tolerance:
        """The policy that the query has when it is started for the ``start``-th time: with another Θ, often with other
        L and Γ, and now and then another one altogether.
        """
        if isinstance(self.tolerance, BarrierSnapshot):
            # A query may come to snapshots from another policy.
            rng = random.Random(f"snapshots-{self.seed}")
            counts = self.window is not None and self.window.by == "count"
            others = [one for one in OTHERS if one.exact or not counts]
            return rng.choice(others) if start == 0 and rng.random() < 0.35 else self.tolerance
        had = changed_theta(self.tolerance, self.factors, start)
        # Windows by count need a policy under which no item is lost.
        if start == 0 or (self.window is not None and self.window.by == "count"):
            return had
        # Some are without backups for a while, or from then on.
        some = not had.needs_records or random.Random(f"no-backups-{self.seed}").random() < 0.12
        if some and random.Random(f"no-backups-{self.seed}-{start}").random() < 0.5:
            return Nothing()
        rng = random.Random(f"restart-{self.seed}-{start}")
        if rng.random() < 0.15 or not had.needs_records:
            had = rng.choice(OTHERS)
        if isinstance(had, Approximate) and had.items_seconds is None and rng.random() < 0.5:
            had = replace(had, items=float(rng.choice((0, 4, 16, 100))), unacked=float(rng.choice((0, 4, 20, 10**6))))
        return had

    def describe(self) -> str:
        reader = f"{self.lanes} lanes{', a relay, and as many workers by key' if self.behind else ''}"
        return (
            f"{reader}{' in update mode' if self.emits else ''}, table by {self.table}, {self.divergence}, "
            f"{self.window}, {self.tolerance}, {self.batches} batches, {self.producers} producers, "
            f"up to {self.failures} of {', '.join(self.troubles)}"
            f"{f', mostly at {self.hunted}' if self.hunted else ''}{', corrupt objects' if self.corrupts else ''}"
            f"{', relentless' if self.relentless else ''}"
        )


def draw(seed: int) -> PushedSchedule:
    rng = random.Random(f"pushed-{seed}")
    behind = rng.choice((1, 2, 2, 3)) if rng.random() < 0.2 else None
    # A relay has as many workers as the operator behind it, and each of them a lane.
    lanes = behind or rng.choice((1, 1, 1, 2))
    window = _window(rng, rng.choice(("none", "none", "hopping", "sliding", "decaying")), behind is None and lanes == 1)
    divergence = rng.choice(("manhattan", "max", "max" if behind else "manhattan", "euclidean", "keys"))
    if isinstance(window, Decaying) and divergence == "keys":
        divergence = "manhattan"
    batches = rng.choice((1, 2) if behind else (1, 1, 1, 2))
    drawn = PushedSchedule(
        seed=seed,
        lanes=lanes,
        behind=behind,
        emits=behind is not None and window is None and rng.random() < 0.6,
        window=window,
        table=rng.choice(("item", "key", "other", "other" if behind else "item")),
        declares=rng.random() < 0.7,
        divergence=divergence,
        tolerance=_tolerance(rng),
        factors=tuple(rng.choice(FACTORS) for _ in range(7)),
        batches=batches,
        times=_times(rng, batches),
        producers=rng.choice((1, 1, 2)),
        pieces=rng.choice((4, 8, 16)) * batches,
        epoch=rng.choice((0.0, 0.0, 1.7e9)),
        leap=rng.choice((0.0, 0.0, 0.0, 300.0, 40_000.0)),
        hosts=rng.choice((1, 2)),
        failures=rng.choice((1, 2, 3, 4, 6)),
        rate=rng.choice((0.02, 0.05, 0.1)),
        spared=rng.choice((0, 0, 30, 60, 100)),
        seconds=rng.choice((0.06, 0.06, 0.1, 0.2)),
        troubles=_troubles(rng),
        hunted=rng.choice(HUNTED) if rng.random() < 0.4 else None,
        corrupts=rng.random() < 0.05,
        relentless=rng.random() < 0.08,
        ends=window is not None and rng.random() < 0.4,
        drains=rng.random() < 0.3,
    )
    if drawn.relentless:
        drawn = replace(drawn, batches=3, times=_times(rng, 3), rate=drawn.rate / 2)
    if drawn.window is not None and drawn.window.by == "count":
        # Which pane an item belongs to depends on those that came before it, so that there is one order and no loss.
        exact = drawn.tolerance if isinstance(drawn.tolerance, MiniBatch) else MiniBatch()
        drawn = replace(drawn, producers=1, tolerance=exact)
    return _with_snapshots(drawn)


def _with_snapshots(drawn: PushedSchedule) -> PushedSchedule:
    """Some schedules have barrier snapshots: these are longer, because a loss is replayed over several batches."""
    rng = random.Random(f"barriers-{drawn.seed}")
    if rng.random() >= 0.2:
        return drawn
    batches = rng.choice((3, 4, 6))
    return replace(
        drawn,
        tolerance=BarrierSnapshot(
            batches=rng.choice((1, 2, 3, 10)),
            asynchronous=rng.random() < 0.8,
            recovery=rng.choice(("partial", "partial", "full")),
            log_items=rng.random() < 0.3,
            unacked=rng.choice((4.0, 20.0, math.inf)),
        ),
        batches=batches,
        times=_times(rng, batches),
        pieces=rng.choice((4, 8)) * batches,
        rate=drawn.rate / 2,
    )


def _troubles(rng: random.Random) -> tuple[str, ...]:
    chosen = tuple(trouble for trouble in TROUBLES if rng.random() < 0.3)
    return chosen or (rng.choice(TROUBLES),)


def _times(rng: random.Random, batches: int) -> tuple[float, ...]:
    """When batches are planned, by the driver's clock, which may be set back."""
    times, now = [], 1000.0
    for _ in range(batches):
        now += rng.choice((0.0, 2.0, 5.0, 12.0, -7.0))
        times.append(now)
    return tuple(times)


def _tolerance(rng: random.Random) -> Tolerance:
    theta = rng.choice((0.0, 0.5, 4.0, 8.0, 16.0, 30.0, 60.0, 1e6))
    items, unacked = float(rng.choice((0, 0, 4, 16, 100, 10**6))), float(rng.choice((0, 4, 20, 10**6)))
    chance = rng.random()
    if chance < 0.6:
        return Approximate(theta, items=items, unacked=unacked)
    if chance < 0.65:
        return Approximate(theta, items_seconds=0.05, unacked=unacked)
    if chance < 0.78:
        return MiniBatch(unacked=unacked, log_items=rng.random() < 0.4)
    if chance < 0.95:
        return UpstreamBackup(log_items=rng.random() < 0.4)
    return Nothing()


def _window(rng: random.Random, kind: str, alone: bool) -> Window | None:
    if kind == "none":
        return None
    by = rng.choice(("event", "event", "processing", "count") if alone else ("event", "event", "processing"))
    size = rng.choice((2, 4)) if by == "count" else rng.choice((5, 10))
    given: dict[str, Any] = {"by": by, "column": "at" if by == "event" else None}
    if kind == "decaying":
        return Decaying(0.5, size, **given)
    given["delay"] = rng.choice((0, 3, 8)) if by == "event" else 0
    if kind == "hopping":
        return Hopping(size, **given)
    return Sliding(size * rng.randint(2, 3), size, **given)
