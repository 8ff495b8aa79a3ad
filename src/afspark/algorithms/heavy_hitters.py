"""Heavy hitters: keys whose weights sum up to a threshold, by Count-Min Sketch, none ever missed.

Each worker keeps a sketch of its share. A key at or above the threshold in total has at least a P-th of it in
one of P shares, so keys whose local estimate reaches that are *candidates*; they are backed up exactly, in the
batch that finds them. Failures take at most the threshold in force from any counter (AF-Stream, experiment 3):
what may be missing is added to every estimate, which can only report too much, never too little.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.algorithms.bad_rows import SKIPPED, refuse_bad, skipped_state
from afspark.errors import UsageError
from afspark.model.kernels.hashing import hash_columns
from afspark.model.kernels.sketch import SeenKeys, estimate, update_and_find
from afspark.model.onbad import check_on_bad
from afspark.model.operator import Operator, Share, WorkerContext
from afspark.model.states import HashTable, Matrix, StateSpec


class HeavyHitters(Operator):
    """Finds all keys whose total weight is at least ``threshold``.

    ``keys`` are any columns of numbers, texts, truth values, dates or times; ``weight`` is a numeric column
    without negative values, summed as ``value`` (``int64`` or ``float64``). Divergence: the largest difference
    of any counter, in units of the weight. Results: the key columns, ``estimate`` (never below the truth) and
    ``bound`` (how much of it is compensation for failures; 0 before any). Rows whose weight is missing, negative or
    undefined are bad items, or are skipped and counted by the operator itself (``on_bad="skip"``).

    ``largest``: no item weighs more than this, rows that do are bad ones. With it, pushed items may be lost
    (``Approximate(items=…)``): what they can have weighed is compensated as well.
    """

    rescalable = "a heavy key has to reach its part of the threshold at one worker, and the part is by their number"

    def __init__(
        self,
        *,
        keys: Sequence[str],
        weight: str,
        threshold: float,
        rows: int = 4,
        columns: int = 8000,
        value: str = "int64",
        on_bad: str | None = None,
        largest: float | None = None,
    ) -> None:
        if not keys:
            raise UsageError("Heavy hitters need at least one key column.", remedy="Name them with keys.")
        if not (threshold > 0 and np.isfinite(threshold)):
            raise UsageError(f"The threshold must be a number above 0, not {threshold}.", threshold=threshold)
        if largest is not None and not (largest > 0 and np.isfinite(largest)):
            raise UsageError(f"The largest weight must be a number above 0, not {largest}.", largest=largest)
        self.keys = tuple(keys)
        self.weight = weight
        self.threshold = threshold
        self.shape = (rows, columns)
        self.value = value
        self.on_bad = None if on_bad is None else check_on_bad(on_bad)
        self.alpha = largest
        self.key_types: tuple[pa.DataType, ...] | None = None

    def states(self) -> Mapping[str, StateSpec]:
        rows, columns = self.shape
        return {
            "sketch": Matrix(rows=rows, cols=columns, value=self.value, divergence="max"),
            "candidates": HashTable(key="string", value="int64", divergence="max", exact=True),
            **({SKIPPED: skipped_state()} if self.on_bad == "skip" else {}),
        }

    def check(self, schema: pa.Schema | None) -> None:
        if schema is None:
            return
        for name in (*self.keys, self.weight):
            if name not in schema.names:
                raise UsageError(
                    f"There is no column {name!r}; the stream has {', '.join(schema.names)}.",
                    remedy="Name existing columns as keys and weight.",
                    column=name,
                )
        kind = schema.field(self.weight).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise UsageError(f"The weight {self.weight!r} is {kind}, not a number.", column=self.weight)
        if pa.types.is_floating(kind) and self.value == "int64":
            raise UsageError(
                f"The weight {self.weight!r} is {kind}.", remedy="Use value='float64'.", column=self.weight
            )
        for name in self.keys:
            if not _is_key(schema.field(name).type):
                raise UsageError(f"Column {name!r} is {schema.field(name).type}, which cannot be a key.", column=name)
        self.key_types = tuple(schema.field(name).type for name in self.keys)

    def begin(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        self.seen = SeenKeys()
        self.found: list[pa.RecordBatch] = []
        self.skipped = 0
        self.sums = states["sketch"].values.copy()
        # A key may fall short of its share by what failures took from the state, and by items that never came.
        unseen = (self.alpha or 0.0) * context.losable_items
        self.hint = self.threshold / context.workers - context.missing.get("sketch", 0.0) - unseen

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        weights = items.column(self.weight)
        least, most = pc.min_max(weights).values()
        too_much = self.alpha is not None and most.is_valid and not most.as_py() <= self.alpha
        if weights.null_count or (least.is_valid and not least.as_py() >= 0) or too_much:
            sound = pc.fill_null(self._sound(weights), False)
            bad = items.num_rows - int(pc.sum(sound).as_py())
            limit = "" if self.alpha is None else f" or above {self.alpha:g}"
            what = f"have a {self.weight!r} that is missing, negative or undefined{limit}"
            refuse_bad(bad, what, self.on_bad, column=self.weight)
            self.skipped += bad
            items = items.filter(sound)
            weights = items.column(self.weight)
        hashes = hash_columns(items, self.keys)
        rows = update_and_find(self.sums, hashes, weights.to_numpy(zero_copy_only=False), self.hint, self.seen)
        if len(rows):
            self.found.append(items.select(self.keys).take(pa.array(rows)))

    def _sound(self, weights: pa.Array) -> pa.Array:
        sound = pc.greater_equal(weights, 0)
        return sound if self.alpha is None else pc.and_(sound, pc.less_equal(weights, self.alpha))

    def finish(self, states: Mapping[str, Any]) -> None:
        states["sketch"].add_dense(self.sums - states["sketch"].values)
        if self.found:
            texts = encode_keys(pa.Table.from_batches(self.found))
            states["candidates"].put(texts, np.ones(len(texts), np.int64))
        if self.skipped:
            states[SKIPPED].add(self.skipped)

    def results(self, shares: Sequence[Share]) -> pa.Table:
        sketch = np.zeros(self.shape, dtype=self.value)
        texts: set[bytes] = set()
        for share in shares:
            cells = share.cells["sketch"]
            sketch.reshape(-1)[cells.column("index").to_numpy()] += cells.column("value").to_numpy()
            texts.update(share.cells["candidates"].column("key").to_pylist())
        missing = float(sum(share.missing.get("sketch", 0.0) for share in shares))
        keys = decode_keys(sorted(texts), self.keys, self.key_types)
        hashes = hash_columns(keys.combine_chunks().to_batches()[0], self.keys) if len(keys) else np.zeros(0, np.uint64)
        estimates = estimate(sketch, hashes) + np.asarray(missing).astype(self.value)
        table = keys.append_column("estimate", pa.array(estimates))
        table = table.append_column("bound", pa.array(np.full(len(keys), missing)))
        heavy = table.filter(pa.array(estimates >= self.threshold))
        return heavy.sort_by([("estimate", "descending")])

    def fingerprint(self) -> dict[str, Any]:
        return super().fingerprint() | {
            "keys": list(self.keys),
            "weight": self.weight,
            "threshold": self.threshold,
            **({} if self.alpha is None else {"largest": self.alpha}),
        }


def encode_keys(keys: pa.Table) -> list[str]:
    """One JSON array per row; dates and times as numbers."""
    columns = [_as_json(column.combine_chunks()).to_pylist() for column in keys.columns]
    return [json.dumps(row, separators=(",", ":")) for row in zip(*columns, strict=True)]


def decode_keys(texts: Sequence[bytes], names: Sequence[str], types: Sequence[pa.DataType] | None) -> pa.Table:
    """Inverse of :func:`encode_keys`; without types they are guessed from the values."""
    rows = [json.loads(text) for text in texts]
    columns = []
    for position in range(len(names)):
        values = [row[position] for row in rows]
        if types is None:
            columns.append(pa.array(values))
        else:
            columns.append(_from_json(values, types[position]))
    return pa.table(dict(zip(names, columns, strict=True)))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def _is_key(kind: pa.DataType) -> bool:
    plain = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
    )
    return any(is_kind(kind) for is_kind in plain) or _is_time(kind)


def _as_json(column: pa.Array) -> pa.Array:
    return column.view(_number(column.type)) if _is_time(column.type) else column


def _from_json(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, _number(kind)).view(kind) if _is_time(kind) else pa.array(values, kind)


def _number(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if kind.bit_width == 32 else pa.int64()
