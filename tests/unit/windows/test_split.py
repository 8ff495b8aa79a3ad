"""Items find their panes."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.model.windows import Hopping, PaneReport, Sliding, Split, Window, split
from afspark.model.windows.times import pane_of, panes_of


def divided(window: Window, times: Any, kind: pa.DataType | None = None, **known: Any) -> Split:
    column = pa.array(times, kind)
    items = pa.record_batch({"at": column, "row": np.arange(len(column))})
    return split(window, items, **{"now": 0.0, "seen": 0, "workers": 1} | known)


def rows(result: Split) -> list[tuple[int, list[int]]]:
    return [(part.pane, part.items["row"].to_pylist()) for part in result.parts]


def test_interleaved_panes_keep_the_order_of_rows() -> None:
    result = divided(Hopping(10, column="at"), [25, 3, 21, -1, 9, 20])
    assert rows(result) == [(-1, [3]), (0, [1, 4]), (2, [0, 2, 5])]
    assert (result.items, result.unplaced, result.latest) == (6, 0, 25)


def test_one_pane_is_the_batch_itself() -> None:
    items = pa.record_batch({"at": np.array([11, 19, 10])})
    result = split(Hopping(10, column="at"), items, now=0, seen=0, workers=1)
    assert len(result.parts) == 1 and result.parts[0].items is items


def test_sorted_panes_are_slices() -> None:
    items = pa.record_batch({"at": np.arange(40)})
    result = split(Hopping(10, column="at"), items, now=0, seen=0, workers=1)
    address = items["at"].buffers()[1].address
    assert [part.items["at"].buffers()[1].address for part in result.parts] == [address] * 4


def test_rows_without_a_usable_time_are_counted() -> None:
    window = Hopping(10, column="at")
    result = divided(window, [None, 5.0, math.nan, math.inf, -math.inf, 1e300, 12.0], pa.float64())
    assert rows(result) == [(0, [1]), (1, [6])]
    assert (result.unplaced, result.latest) == (5, 12.0)
    nothing = divided(window, [None, None], pa.int64())
    assert (nothing.parts, nothing.unplaced, nothing.latest) == ([], 2, None)
    assert divided(window, [math.nan], pa.float64()).unplaced == 1
    assert divided(window, [], pa.float64()) == Split(parts=[], items=0)


def test_whole_times_are_exact_whatever_their_size() -> None:
    start = 2**62
    result = divided(Hopping(10, column="at"), [start - start % 10 - 1, start - start % 10], pa.int64())
    assert [part.pane for part in result.parts] == [start // 10 - 1, start // 10]
    assert result.latest == start - start % 10


def test_the_whole_range_of_int64() -> None:
    least, most = -(2**63), 2**63 - 1
    result = divided(Hopping(1, column="at"), [most, 0, least, 2**16, 0], pa.int64())
    assert rows(result) == [(least, [2]), (0, [1, 4]), (2**16, [3]), (most, [0])]
    assert result.latest == most


@pytest.mark.parametrize("size", [0.1, 0.7, 1 / 3, 3.3, 1e-6])
def test_edges_belong_to_the_pane_they_begin_however_a_quotient_is_rounded(size: float) -> None:
    panes = np.arange(-3000, 3000)
    edges = panes * size
    assert panes_of(edges, size).tolist() == panes.tolist()
    assert panes_of(np.nextafter(edges, -math.inf), size).tolist() == (panes - 1).tolist()
    assert [pane_of(edge, size) for edge in edges[-20:]] == panes[-20:].tolist()


def test_single_times_out_of_reach_stay_finite() -> None:
    for size in (1, 0.1, 1e300, 5e-324):
        assert pane_of(1.7e308, size) >= 0 >= pane_of(-0.0, size) >= pane_of(-1.7e308, size)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_timestamps_count_in_seconds(unit: str, zone: str | None) -> None:
    moments = [datetime(2026, 1, 1, 0, 0, 59, tzinfo=UTC), datetime(2026, 1, 1, 0, 1, tzinfo=UTC)]
    minute = int(moments[1].timestamp()) // 60
    kind = pa.timestamp(unit, zone)
    result = divided(Hopping(60, column="at"), [moment.replace(tzinfo=None) for moment in moments] + [None], kind)
    assert rows(result) == [(minute - 1, [0]), (minute, [1])]
    assert (result.latest, result.unplaced) == (moments[1].timestamp(), 1)


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_dates_count_in_seconds(kind: pa.DataType) -> None:
    result = divided(Hopping(86_400, column="at"), [date(1970, 1, 3), date(1969, 12, 31)], kind)
    assert rows(result) == [(-1, [1]), (2, [0])]


def test_a_rounded_time_does_not_pass_the_end_of_its_pane() -> None:
    just_before = 1_700_000_000 * 10**9 - 1
    result = divided(Hopping(1, column="at"), [just_before], pa.timestamp("ns"))
    assert result.parts[0].pane == 1_699_999_999
    assert result.latest is not None and result.latest < 1_700_000_000


def test_fractions_of_a_second_on_coarse_timestamps() -> None:
    result = divided(Hopping(0.25, column="at"), [1, 2], pa.timestamp("s"))
    assert [part.pane for part in result.parts] == [4, 8]


def test_processing_time_puts_a_batch_into_one_pane() -> None:
    result = divided(Hopping(10, by="processing"), [1, 2, 3], now=25.5)
    assert rows(result) == [(2, [0, 1, 2])] and result.latest == 25.5


def test_counted_items_fill_a_worker_s_part_of_each_pane() -> None:
    window = Sliding(12, 6, by="count")
    assert rows(divided(window, range(7), seen=2, workers=2)) == [(0, [0]), (1, [1, 2, 3]), (2, [4, 5, 6])]
    assert rows(divided(window, range(2), seen=3, workers=2)) == [(1, [0, 1])]
    with pytest.raises(UsageError):
        divided(window, range(2), workers=4)


def test_missing_column() -> None:
    with pytest.raises(UsageError) as refused:
        divided(Hopping(10, column="when"), [1])
    assert refused.value.column == "when"


def test_reports_add_up_over_the_arrow_batches_of_a_share() -> None:
    window = Hopping(10, column="at")
    report = PaneReport(worker=1, seen=100)
    for times in ([25, 3], [None, 7], []):
        result = divided(window, times, pa.int64())
        report = report.noting(result, result.parts, late=1)
    assert report == PaneReport(worker=1, latest=25, panes=frozenset({0, 2}), seen=104, late=3, unplaced=1)
    assert PaneReport.from_json(report.to_json()) == report
