"""Online join: how many pairs of items of two streams agree in some columns, estimated from samples (Ripple Join).

Both streams are sampled at given rates. The state is the sample, as a table of how many sampled items each stream
has for each join value; what counts against Θ is the number of sampled items, as in AF-Stream's experiment 4.
Losing some of them is like having sampled a little less: the interval gets wider, nothing else happens.

Tables of counts add up, so estimates need no exchange: workers keep local shares, and pairs are formed when
results are asked for. Only who wants every match as it is found (``matches``) needs all items of a join value in
one place, hence ``keyed=True``. A running total of pairs is kept nowhere: each lost item would make it miss
pairs for ever after, so the difference between two states would grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from afspark.algorithms.bad_rows import SKIPPED, refuse_bad, skipped_state
from afspark.algorithms.ripple import Sample
from afspark.errors import UsageError
from afspark.model.kernels.hashing import hash_columns
from afspark.model.kernels.plain_arrays import Array
from afspark.model.kernels.sampling import bernoulli, sequence_key
from afspark.model.onbad import check_on_bad
from afspark.model.operator import Combiner, Operator, Share
from afspark.model.states import HashTable, StateSpec

SIDE = "side"
"""Column that tells the streams apart."""
LEFT, RIGHT, BAD = 0, 1, -1
ESTIMATES = pa.schema(
    [
        ("aggregate", pa.string()),
        ("estimate", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("pairs", pa.int64()),
        ("samples", pa.int64()),
        ("lost", pa.float64()),
    ]
)


class OnlineJoin(Operator):
    """Estimates the join of two streams on the columns ``on``, for instance a host and a second.

    ``stream.map(join.left).union(other.map(join.right)).apply(join)``, or one stream with a column ``side`` of 0
    and 1. ``rate`` is the share of items that is sampled, one for both streams or a pair, in (0, 1]. Draws follow
    from ``seed`` and the Arrow batch an item stands in, or from the column ``number`` if items are numbered.

    Results: a row for ``count`` and, with ``value`` (a number of the left stream), for its ``sum`` and ``average``
    over all pairs, with an interval that holds the truth with ``confidence``; ``pairs`` in the sample, ``samples``
    taken, and the most of them that failures can have ``lost``. Join values are told apart by their 64-bit hash.

    With ``matches`` every sampled item that finds partners in the other sample is sent on, with their number.
    """

    key: ClassVar[tuple[str, ...]] = ("hash",)
    alpha = 1.0
    rescalable = True

    def __init__(
        self,
        *,
        on: Sequence[str],
        rate: float | tuple[float, float] = 0.1,
        value: str | None = None,
        number: str | None = None,
        confidence: float = 0.95,
        seed: int = 0,
        matches: bool = False,
        on_bad: str = "skip",
    ) -> None:
        self.on, self.value, self.number, self.seed, self.matches = tuple(on), value, number, seed, matches
        self.rates = _rates(rate)
        self.on_bad = check_on_bad(on_bad)
        self.confidence = confidence
        if not self.on:
            raise UsageError("A join needs at least one column.", remedy="Name them with on.")
        if not 0 < confidence < 1:
            raise UsageError(f"A confidence of {confidence} means nothing.", remedy="Use one in (0, 1), like 0.95.")

    # --- the streams ----------------------------------------------------------------------------------------

    def left(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """A step for ``map``: marks the items of the left stream."""
        return self._marked(items, LEFT)

    def right(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """A step for ``map``: marks the items of the right stream."""
        return self._marked(items, RIGHT)

    def _marked(self, items: pa.RecordBatch, side: int) -> pa.RecordBatch:
        self.check_stream(items.schema, side)
        marks = pa.array(np.full(items.num_rows, side, np.int8))
        return items.select(self._columns(side)).append_column(SIDE, marks)

    def _columns(self, side: int) -> list[str]:
        wanted = (*self.on, self.value if side == LEFT else None, self.number)
        return list(dict.fromkeys(name for name in wanted if name is not None))

    def check(self, schema: pa.Schema | None) -> None:
        if schema is None:
            return
        if SIDE not in schema.names:
            raise UsageError(
                f"There is no column {SIDE!r} that tells two streams apart.",
                remedy="Mark them: stream.map(join.left).union(other.map(join.right)).apply(join).",
                column=SIDE,
            )
        self.check_stream(schema, LEFT)

    def check_stream(self, schema: pa.Schema, side: int) -> None:
        """UsageError unless a stream of these columns can be that side of the join."""
        for name in self._columns(side):
            if name not in schema.names:
                raise UsageError(
                    f"There is no column {name!r}; the stream has {', '.join(schema.names)}.",
                    remedy="Name columns that both streams have.",
                    column=name,
                )
        if self.value is not None and side == LEFT:
            kind = schema.field(self.value).type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                raise UsageError(f"The value {self.value!r} is {kind}, not a number.", column=self.value)
        hash_columns(pa.RecordBatch.from_pylist([], schema=pa.schema([schema.field(n) for n in self.on])), self.on)

    # --- the state ------------------------------------------------------------------------------------------

    def states(self) -> Mapping[str, StateSpec]:
        table = HashTable(key="int64", value="int64", divergence="manhattan")
        values = {"values": HashTable(key="string", value="int64", divergence="manhattan")} if self.value else {}
        return {"left": table, "right": table, **values, SKIPPED: skipped_state()}

    def combiner(self) -> Sampler:
        return Sampler(self)

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        if "hash" not in items.schema.names:
            # Windows by count combine nothing.
            items = self.sample(items)
        side = items.column(SIDE).to_numpy()
        hashes = items.column("hash").to_numpy().view(np.int64)
        ours, theirs = hashes[side == LEFT], hashes[side == RIGHT]
        states["left"].add(ours, 1)
        sent = self._partners(items, side, states["right"].get(ours), states["left"].get(theirs))
        states["right"].add(theirs, 1)
        if self.value is not None:
            states["values"].add(_pack(ours, items.column("value").to_numpy()[side == LEFT]), 1)
        skipped = len(side) - len(ours) - len(theirs)
        if skipped:
            states[SKIPPED].add(skipped)
        return sent

    def _partners(self, items: pa.RecordBatch, side: Array, left: Array, right: Array) -> pa.RecordBatch | None:
        """Every pair once: left items meet the right ones before them, right items all left ones."""
        if not self.matches:
            return None
        partners = np.zeros(len(side), np.int64)
        partners[side == LEFT], partners[side == RIGHT] = left, right
        found = items.select([*self.on, SIDE]).append_column("partners", pa.array(partners))
        return found.filter(pa.array(partners > 0))

    # --- sampling -------------------------------------------------------------------------------------------

    def sample(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """The sampled items, with their hashes; a bad row becomes one of side ``BAD``."""
        bad = self._bad(items)
        refuse_bad(int(bad.sum()), f"have no usable {' or '.join(self._columns(LEFT))}", self.on_bad)
        hashes = hash_columns(items, self.on)
        side = items.column(SIDE).cast(pa.int8()).fill_null(BAD).to_numpy(zero_copy_only=False)
        chosen = bad.copy()
        for one, rate in zip((LEFT, RIGHT), self.rates, strict=True):
            rows = np.flatnonzero((side == one) & ~bad)
            chosen[rows[self._draw(items, hashes, rows, one, rate)]] = True
        picked = np.flatnonzero(chosen)
        columns: dict[str, Any] = {"hash": hashes[picked], SIDE: np.where(bad, np.int8(BAD), side)[picked]}
        if self.value is not None:
            columns["value"] = self._values(items)[picked]
        if self.matches:
            columns |= {name: items.column(name).take(pa.array(picked)) for name in self.on}
        return pa.record_batch({name: pa.array(column) for name, column in columns.items()})

    def _draw(self, items: pa.RecordBatch, hashes: Array, rows: Array, side: int, rate: float) -> Array:
        if self.number is not None:
            numbers = hash_columns(items, [self.number])[rows]
            return bernoulli(sequence_key(self.seed, side), rate, hashes=numbers)
        content = int(hashes[rows].sum(dtype=np.uint64))
        return bernoulli(sequence_key(self.seed, side, content), rate, count=len(rows))

    def _bad(self, items: pa.RecordBatch) -> Array:
        """Rows without a join value, a side, or (on the left) a value."""
        bad = np.zeros(items.num_rows, bool)
        for name in (*self.on, *([self.number] if self.number else [])):
            column = items.column(name)
            if column.null_count:
                bad |= column.is_null().to_numpy(zero_copy_only=False)
        sides = items.column(SIDE).fill_null(BAD).to_numpy(zero_copy_only=False)
        bad |= (sides != LEFT) & (sides != RIGHT)
        if self.value is not None:
            bad |= (sides == LEFT) & ~np.isfinite(self._values(items))
        return bad

    def _values(self, items: pa.RecordBatch) -> Array:
        """The value as float64, NaN where there is none."""
        assert self.value is not None
        if self.value not in items.schema.names:
            return np.full(items.num_rows, np.nan)
        values: Array = items.column(self.value).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return values

    # --- results --------------------------------------------------------------------------------------------

    def results(self, shares: Sequence[Share]) -> pa.Table:
        sample = self._sample(shares, "left")
        rows = [("count", sample.count(self.confidence), sample)]
        if self.value is not None:
            sample = self._sample(shares, "values")
            rows += [("sum", sample.sum(self.confidence), sample), ("average", sample.average(self.confidence), sample)]
        return pa.Table.from_pylist(
            [
                {
                    "aggregate": name,
                    **vars(found),
                    "pairs": round(sample.pairs),
                    "samples": sum(sample.samples),
                    "lost": sum(sample.lost),
                }
                for name, found, sample in rows
            ],
            schema=ESTIMATES,
        )

    def _sample(self, shares: Sequence[Share], left: str) -> Sample:
        """The merged sample; the left side from its counts, or from its values with their counts."""
        keys, counts = _merged(shares, left)
        values = np.ones(len(counts))
        if left == "values":
            keys, values = _unpack(keys)
        ours, place = np.unique(keys, return_inverse=True)
        theirs, right = _merged(shares, "right")
        theirs, at = np.unique(theirs, return_inverse=True)
        _, in_ours, in_theirs = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)

        def left_sums(weights: Array) -> Array:
            return np.bincount(place, weights, len(ours))[in_ours]

        return Sample(
            left=left_sums(counts),
            sums=left_sums(counts * values),
            squares=left_sums(counts * values**2),
            right=np.bincount(at, right, len(theirs))[in_theirs],
            rates=self.rates,
            samples=(int(counts.sum()), int(right.sum())),
            lost=(_lost(shares, left), _lost(shares, "right")),
        )

    def keys_of(self, state: str, cells: pa.RecordBatch) -> pa.RecordBatch | None:
        if state == SKIPPED:
            return None
        keys = cells.column("key")
        return pa.record_batch({"hash": keys if state != "values" else pa.array(_unpack(pa.chunked_array([keys]))[0])})

    def fingerprint(self) -> dict[str, Any]:
        names = ("on", "rates", "value", "number", "seed", "matches")
        settings = {name: getattr(self, name) for name in names}
        return super().fingerprint() | {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}


class Sampler(Combiner):
    """Leaves of a worker's share of a batch what is in the sample."""

    def __init__(self, join: OnlineJoin) -> None:
        self.join, self.items = join, 0
        self.parts: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self.items += batch.num_rows
        self.parts.append(self.join.sample(batch))

    def finish(self) -> pa.RecordBatch | None:
        return pa.concat_batches(self.parts) if self.parts else None


def _rates(rate: float | tuple[float, float]) -> tuple[float, float]:
    left, right = rate if isinstance(rate, tuple | list) else (rate, rate)
    for one in (left, right):
        if not 0 < one <= 1:
            raise UsageError(f"The sampling rate {one} is outside (0, 1].", remedy="Use one like 0.1.", rate=one)
    return float(left), float(right)


def _lost(shares: Sequence[Share], state: str) -> float:
    return float(sum(share.missing.get(state, 0.0) for share in shares))


def _merged(shares: Sequence[Share], state: str) -> tuple[Any, Array]:
    """Keys (which may repeat) and counts of all shares."""
    cells = pa.Table.from_batches([share.cells[state] for share in shares]).combine_chunks()
    keys, counts = cells.column("key"), cells.column("value").to_numpy().astype(np.float64)
    return keys.to_numpy() if pa.types.is_integer(keys.type) else keys, counts


def _pack(hashes: Array, values: Array) -> pa.Array:
    """Sixteen bytes for each item: the hash of its join value and its own value."""
    both = np.stack([hashes, (values + 0.0).view(np.int64)], axis=1)
    offsets = np.arange(len(hashes) + 1, dtype=np.int32) * 16
    return pa.Array.from_buffers(pa.binary(), len(hashes), [None, pa.py_buffer(offsets), pa.py_buffer(both)])


def _unpack(keys: pa.ChunkedArray) -> tuple[Array, Array]:
    flat = keys.cast(pa.binary(16)).combine_chunks()
    if isinstance(flat, pa.ChunkedArray):
        flat = pa.concat_arrays(flat.chunks) if flat.num_chunks else pa.array([], pa.binary(16))
    both = np.frombuffer(flat.buffers()[1] or b"", np.int64)[2 * flat.offset : 2 * (flat.offset + len(flat))]
    both = both.reshape(-1, 2)
    return both[:, 0], np.ascontiguousarray(both[:, 1]).view(np.float64)
