"""How far results are from exact ones, by the measure that the thresholds are given in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.model.kernels.hashing import hash_columns
from afspark.model.kernels.plain_arrays import Array
from afspark.model.kernels.sketch import update
from afspark.report.recount import WORD_COUNTS, merge


@dataclass(frozen=True)
class WordErrors:
    """Counts against exact counts: the largest difference, how many words differ, the sum of differences."""

    largest: int
    words_wrong: int
    total: int
    words: int


@dataclass(frozen=True)
class HitterErrors:
    """Heavy hitters against exact totals.

    ``largest`` is the largest difference between a counter of the merged sketch and the same counter of an
    exact one; ``precision`` and ``recall`` are shares of the reported and of the true heavy hitters.
    """

    largest: float
    precision: float
    recall: float
    reported: int
    true: int


def word_errors(counts: pa.Table, exact: pa.Table) -> WordErrors:
    """Compares ``word``, ``count`` tables; a word that one of them lacks counts 0 there."""
    exact = exact.cast(WORD_COUNTS)
    negated = exact.set_column(1, "count", pc.negate(exact.column("count")))
    ours = pa.table([counts.column("word").cast(pa.large_binary()), counts.column("count")], schema=WORD_COUNTS)
    errors = pc.abs(merge([ours, negated], ["word"]).column("count"))
    return WordErrors(
        largest=pc.max(errors).as_py() or 0,
        words_wrong=int(pc.sum(pc.not_equal(errors, 0)).as_py() or 0),
        total=int(pc.sum(errors).as_py() or 0),
        words=len(exact),
    )


def exact_sketch(totals: pa.Table, keys: Sequence[str], shape: tuple[int, int], value: str) -> Array:
    """The Count-Min sketch of a stream whose weights add up to ``totals``: a sketch is linear."""
    sketch = np.zeros(shape, dtype=value)
    for batch in totals.combine_chunks().to_batches():
        update(sketch, hash_columns(batch, keys), batch.column("total").to_numpy(zero_copy_only=False))
    return sketch


def hitter_errors(
    reported: pa.Table, totals: pa.Table, *, keys: Sequence[str], threshold: float, sketch: Array
) -> HitterErrors:
    """Compares the reported keys and the merged ``sketch`` with exact ``totals``."""
    exact = exact_sketch(totals, keys, (sketch.shape[0], sketch.shape[1]), str(sketch.dtype))
    heavy = totals.filter(pc.greater_equal(totals.column("total"), threshold))
    found, true = _rows(reported, keys), _rows(heavy, keys)
    hits = len(found & true)
    return HitterErrors(
        largest=float(np.max(np.abs(sketch - exact), initial=0)),
        precision=hits / len(found) if found else 1.0,
        recall=hits / len(true) if true else 1.0,
        reported=len(found),
        true=len(true),
    )


def join_truth(exact: pa.Table, on: Sequence[str]) -> dict[str, float]:
    """``count``, ``sum`` and ``average`` over all joined pairs, and the sizes of undisturbed samples."""
    parts = {what: exact.filter(pc.equal(exact.column("what"), what)).drop_columns("what") for what in _JOIN_PARTS}
    right = parts["right"].rename_columns([*on, "others"])

    def paired(what: str) -> float:
        both = parts[what].join(right, list(on), join_type="inner")
        return float(pc.sum(pc.multiply(both.column("total"), both.column("others"))).as_py() or 0.0)

    count, total = paired("left"), paired("sum")
    samples = {what: float(pc.sum(parts[what].column("total")).as_py() or 0.0) for what in _JOIN_PARTS[3:]}
    return {"count": count, "sum": total, "average": total / count if count else math.nan, **samples}


_JOIN_PARTS = ("left", "right", "sum", "left_samples", "right_samples")


def _rows(table: pa.Table, keys: Sequence[str]) -> set[tuple[Any, ...]]:
    columns = [table.column(name).to_pylist() for name in keys]
    return set(zip(*columns, strict=True))
