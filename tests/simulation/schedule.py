"""What a seed stands for: an operator, its window and tolerance, its input, and how much goes wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa

from afspark.model.states import HashTable, Matrix, Numeric, Set, StateSpec, Vector
from afspark.model.windows import Decaying, Hopping, Sliding, Window
from afspark.policies import Adaptive, Approximate, BarrierSnapshot, MiniBatch, Nothing, Tolerance

PRIMITIVES: dict[str, tuple[str, ...]] = {
    "numeric": ("max",),
    "vector": ("max", "manhattan", "euclidean"),
    "matrix": ("max", "manhattan", "euclidean"),
    "hashtable": ("max", "manhattan", "euclidean", "keys"),
    "set": ("keys",),
}
WINDOWS = ("none", "hopping", "sliding", "decaying")
KEYS = 12
OTHERS = 3
LARGEST_VALUE = 9
#: by which Θ is changed when a query is started again
FACTORS = (1.0, 1.0, 1.0, 0.02, 0.5, 4.0)

Item = tuple[int, int, float | None]
"""Key, value, time."""


@dataclass(frozen=True)
class Combination:
    primitive: str
    divergence: str
    window: str

    def __str__(self) -> str:
        return f"{self.primitive}-{self.divergence}-{self.window}"


def combinations() -> list[Combination]:
    """Every primitive with each of its divergences and windows; a count of keys cannot decay."""
    return [
        Combination(primitive, divergence, window)
        for primitive, divergences in PRIMITIVES.items()
        for divergence in divergences
        for window in WINDOWS
        if (divergence, window) != ("keys", "decaying")
    ]


@dataclass(frozen=True)
class Schedule:
    """Everything that is fixed before the first step. Seeds go round the combinations."""

    seed: int
    combination: Combination
    workers: int
    keyed: bool
    window: Window | None
    tolerance: Tolerance
    theta: float
    #: chunks of items by batch
    batches: tuple[tuple[tuple[Item, ...], ...], ...]
    times: tuple[float, ...]
    ends: bool
    hosts: int
    failures: int
    rate: float
    corrupts: bool
    #: the newest record rots, and a driver that is started has to go back to the one before it
    rots: bool
    #: loses all state before almost every batch
    relentless: bool
    #: what Θ is multiplied with at each restart
    factors: tuple[float, ...]
    #: cells of a table are by something else than the key that divides items among workers
    other_cells: bool
    #: how far records may be behind batches: how often the driver looks for one in vain, at most
    lag: int
    #: how far apart records are at least, where they may be behind batches
    record_seconds: float
    #: how likely the sink fails in a batch, and the query is stopped in an orderly way after it
    stops: float
    #: its user stops it now and then, and starts it with any policy
    switches: bool = False
    #: records rot as well, many at once, mostly when state is lost
    unread: bool = False
    #: of how many batches Spark remembers what belonged to them
    offsets_kept: int = 100

    @cached_property
    def spec(self) -> StateSpec:
        number = "float64" if self.combination.window == "decaying" else "int64"
        divergence = self.combination.divergence
        match self.combination.primitive:
            case "numeric":
                return Numeric(value=number, divergence=divergence)
            case "vector":
                return Vector(size=3, value=number, divergence=divergence)
            case "matrix":
                return Matrix(rows=3, cols=4, value=number, divergence=divergence)
            case "hashtable":
                return HashTable(value=number, divergence=divergence)
            case _:
                return Set(divergence=divergence)

    def tolerance_of(self, start: int) -> Tolerance:
        """The policy that the query has when it is started for the ``start``-th time."""
        had = changed_theta(self.tolerance, self.factors, start)
        if start == 0 or not self.switches:
            return had
        rng = random.Random(f"policy-{self.seed}-{start}")
        return rng.choice((had, Nothing(), Nothing(), MiniBatch(), Approximate(self.theta), _snapshots(rng)))

    @cached_property
    def chunks(self) -> list[tuple[Item, ...]]:
        return [chunk for batch in self.batches for chunk in batch]

    def describe(self) -> str:
        return (
            f"{self.combination}, {self.workers} workers{' keyed' if self.keyed else ''}, {self.window}, "
            f"{self.tolerance}, {len(self.batches)} batches, up to {self.failures} failures"
            f"{', relentless' if self.relentless else ''}{', corrupt objects' if self.corrupts else ''}"
            f"{', ends' if self.ends else ''}{', records lag' if self.lag else ''}"
            f"{f', records {self.record_seconds} s apart' if self.lag and self.record_seconds else ''}"
            f"{', stops' if self.stops else ''}"
            f"{', other policies' if self.switches else ''}{', corrupt records' if self.unread else ''}"
            f"{f', {self.offsets_kept} offsets' if self.offsets_kept < 100 else ''}"
            f"{', rotten records' if self.rots else ''}"
        )


def changed_theta(tolerance: Tolerance, factors: tuple[float, ...], start: int) -> Tolerance:
    """A user may choose another Θ whenever a query is started again."""
    if start == 0 or not isinstance(tolerance, Approximate | Adaptive) or tolerance.theta is None:
        return tolerance
    return replace(tolerance, theta=tolerance.theta * factors[start % len(factors)])


def draw(seed: int) -> Schedule:
    found = combinations()
    combination = found[seed % len(found)]
    rng = random.Random(f"schedule-{seed}")
    workers = rng.choice((1, 1, 2, 3))
    window = _window(rng, combination.window, workers)
    theta = float(rng.choice((1, 4, 16, 40)))
    number = rng.choice((3, 3, 4, 4, 5, 8))
    times, batches = draw_input(rng, combination, window, number)
    drawn = Schedule(
        seed=seed,
        combination=combination,
        workers=workers,
        # Shares by key are uneven, so that windows by count are refused for them.
        keyed=rng.random() < 0.4 and (window is None or window.by != "count" or workers == 1),
        window=window,
        tolerance=rng.choices((Approximate(theta), MiniBatch(), Nothing()), (8, 2, 1))[0],
        theta=theta,
        batches=batches,
        times=times,
        ends=window is not None and rng.random() < 0.5,
        hosts=rng.randint(1, 3),
        failures=rng.choice((0, 1, 2, 4, 6, 8)),
        rate=rng.choice((0.5, 1.0, 2.0)),
        corrupts=rng.random() < 0.12,
        rots=random.Random(f"rot-{seed}").random() < 0.15,
        relentless=rng.random() < 0.12,
        factors=tuple(rng.choice(FACTORS) for _ in range(7)),
        other_cells=combination.primitive in ("hashtable", "set") and rng.random() < 0.3,
        lag=rng.choice((0, 0, 1, 3, 8)),
        record_seconds=random.Random(f"pace-{seed}").choice((0.0, 0.0, 1.0, 6.0, 100.0)),
        stops=0.0,
    )
    if rng.random() < 0.25:
        drawn = replace(drawn, tolerance=_snapshots(rng))
    drawn = replace(drawn, stops=rng.choice((0.0, 0.4 if drawn.tolerance.replays else 0.0, 0.3)))
    return _restarted(drawn)


def _restarted(drawn: Schedule) -> Schedule:
    """Some schedules are about what one driver leaves to the next: they are longer, so that Spark forgets offsets."""
    rng = random.Random(f"restarted-{drawn.seed}")
    if rng.random() >= 0.25:
        return drawn
    switches, unread = rng.choice(((True, False), (False, True), (True, True)))
    if unread and rng.random() < 0.5:
        # Windows depend on records, so that nothing else is seen where they have some.
        drawn = replace(drawn, window=None, ends=False)
    times, batches = draw_input(rng, drawn.combination, drawn.window, rng.choice((5, 6, 8)))
    return replace(
        drawn,
        switches=switches,
        unread=unread,
        offsets_kept=rng.choice((2, 2, 3, 100)),
        times=times,
        batches=batches,
    )


def _snapshots(rng: random.Random) -> BarrierSnapshot:
    return BarrierSnapshot(
        batches=rng.choice((1, 2, 2, 3)),
        asynchronous=rng.random() < 0.8,
        recovery=rng.choice(("partial", "partial", "full")),
    )


def _window(rng: random.Random, kind: str, workers: int) -> Window | None:
    if kind == "none":
        return None
    by = rng.choice(("event", "event", "processing", "count"))
    size = rng.choice((1, 2, 4)) * workers if by == "count" else rng.choice((5, 10))
    given: dict[str, Any] = {"by": by, "column": "at" if by == "event" else None}
    if kind == "decaying":
        return Decaying(0.5, size, **given)
    given["delay"] = rng.choice((0, 3, 8)) if by == "event" else 0
    if kind == "hopping":
        return Hopping(size, **given)
    return Sliding(size * rng.randint(2, 3), size, **given)


def draw_input(rng: random.Random, combination: Combination, window: Window | None, number: int) -> tuple[Any, Any]:
    """The times and the chunks of items of so many batches."""
    # Where presence is what counts, values must not cancel out: that would let a difference grow.
    signed = combination.divergence != "keys"
    now, times, batches = 0.0, [], []
    for _ in range(number):
        now += rng.choice((0.0, 2.0, 5.0, 12.0))
        if combination.window == "decaying" and rng.random() < 0.3:
            # From a gap that leaves something of the state to one that is beyond any exponent.
            now += rng.choice((200.0, 4_000.0, 12_000.0, 1.7e9))
        times.append(now)
        chunks = []
        for _ in range(rng.randint(1, 4)):
            items = []
            for _ in range(rng.randint(1, 6)):
                value = rng.randint(1, LARGEST_VALUE) * (-1 if signed and rng.random() < 0.3 else 1)
                at = None if rng.random() < 0.04 else max(0.0, now + rng.randint(-9, 4))
                if combination.window == "decaying" and rng.random() < 0.05:
                    at = rng.choice((0.0, -1e9, now + 6_000.0, math.nan, math.inf))
                items.append((rng.randrange(KEYS), value, at))
            chunks.append(tuple(items))
        batches.append(tuple(chunks))
    return tuple(times), tuple(batches)


def cell_of(schedule: Schedule, item: Item) -> int:
    """The number of the cell that an item goes to, where cells have keys."""
    return item[1] % OTHERS if schedule.other_cells else item[0]


@lru_cache(64)
def as_arrow(items: tuple[Item, ...]) -> pa.RecordBatch:
    keys, values, times = zip(*items, strict=True)
    return pa.record_batch(
        {"key": pa.array(keys, pa.int64()), "value": pa.array(values, pa.int64()), "at": pa.array(times, pa.float64())}
    )


def seeds(combination: Combination, count: int, start: int = 0) -> Iterator[int]:
    """The first ``count`` seeds of a combination, from the ``start``-th on."""
    every = combinations()
    first = every.index(combination)
    return iter(range(first + start * len(every), first + (start + count) * len(every), len(every)))
