"""How far windows of sentiments are from exact ones, by the measure that the thresholds are given in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.model.kernels.plain_arrays import Array
from afspark.model.windows import Window
from afspark.report.recount import merge
from afspark.report.recount_texts import SCORE, TEXTS

_ROUNDING = 1e-9


@dataclass(frozen=True)
class WindowErrors:
    """The largest difference of a count and of a sum of scores, how many ``rows`` (keywords of windows) were compared,
    and how many of them are farther ``outside`` than their own bounds say.
    """

    texts: float
    score: float
    rows: int
    outside: int


def window_errors(rows: pa.Table, exact: pa.Table, window: Window, by: Sequence[str], *, ended: bool) -> WindowErrors:
    """Compares closed windows with exact counts by pane (`count_sentiments`). Unless the stream has ``ended``, windows
    after the last one that is closed are left out.
    """
    keys = ["window", "keyword", *by]
    ours = rows.append_column("window", pa.array(_numbers(rows, window)))
    truth = _windows(exact, window.panes, keys)
    if not ended:
        last = pc.max(ours.column("window")).as_py()
        truth = truth.filter(pc.less_equal(truth.column("window"), -(2**62) if last is None else last))
    worst = {name: pc.max(ours.column(f"bound_{name}")).as_py() or 0.0 for name in (TEXTS, SCORE)}
    largest, outside, compared = {}, np.zeros(0, bool), 0
    for name in (TEXTS, SCORE):
        sums = truth.filter(pc.equal(truth.column("what"), name)).drop_columns("what")
        both = sums.join(ours.select([*keys, name, f"bound_{name}"]), keys, join_type="full outer").sort_by(
            [(key, "ascending") for key in keys]
        )
        errors = np.abs(_filled(both, name, 0.0) - _filled(both, "total", 0.0))
        beyond = errors > _filled(both, f"bound_{name}", worst[name]) + _ROUNDING
        largest[name], compared = float(errors.max(initial=0.0)), len(both)
        outside = beyond if not len(outside) else outside | beyond
    return WindowErrors(largest[TEXTS], largest[SCORE], compared, int(outside.sum()))


def _numbers(rows: pa.Table, window: Window) -> Array:
    """The number of the last pane of each window."""
    return np.rint(rows.column("window_end").to_numpy() / window.size).astype(np.int64) - 1


def _windows(exact: pa.Table, panes: int, keys: Sequence[str]) -> pa.Table:
    """Counts by window from those by pane: each pane is part of the next so many windows."""
    shifted = [
        exact.set_column(0, "window", pc.add(exact.column("pane"), pa.scalar(later, pa.int64())))
        for later in range(panes)
    ]
    return merge(shifted, [*keys, "what"])


def _filled(table: pa.Table, name: str, filler: float) -> Array:
    values: Array = pc.fill_null(table.column(name).cast(pa.float64()), filler).to_numpy()
    return values
