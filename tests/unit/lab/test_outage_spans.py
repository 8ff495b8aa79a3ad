"""How many items of which worker an outage takes."""

from __future__ import annotations

import numpy as np
import pytest

from afspark.errors import UsageError
from afspark.graph.injector import Inlet, Span
from afspark.lab.observations import Rate
from afspark.lab.outage_spans import InputRate, measured_rate, outage_end, outages_at, spans_after

ONE, TWO = Inlet("index", 0), Inlet("index", 1)


def test_one_worker_loses_what_follows_the_offset() -> None:
    passed = {ONE: np.array([[100], [200], [300]])}
    assert spans_after(passed, 1, 70) == {ONE: (Span(100, 70),)}
    assert outage_end(passed, 1, 70) == pytest.approx(1.7)


def test_inputs_and_workers_lose_by_what_they_get() -> None:
    passed = {ONE: np.array([[50, 50], [60, 60], [70, 70]]), TWO: np.array([[400], [480], [560]])}
    spans = spans_after(passed, 1, 150)
    assert spans[ONE] == (Span(50, 15), Span(50, 15))
    assert spans[TWO] == (Span(400, 120),)


@pytest.mark.parametrize("items", [1, 7, 33, 99, 101, 199])
def test_an_outage_takes_exactly_so_many(items: int) -> None:
    passed = {ONE: np.array([[10, 3], [20, 9], [31, 12]]), TWO: np.array([[40], [101], [170]])}
    lost = [span.items for spans in spans_after(passed, 0, items).values() for span in spans]
    assert sum(lost) == items


def test_no_more_is_lost_than_there_is() -> None:
    assert spans_after({ONE: np.array([[100], [200]])}, 1, 10**6) == {ONE: (Span(100, 100),)}


def test_seconds_become_items_by_the_share_of_a_target() -> None:
    found = outages_at(0.2, items=(), seconds=(0.5, 16), rate=InputRate(500, 2200))
    assert [(outage.items, outage.seconds, outage.rate) for outage in found] == [
        (50, 0.5, Rate.AVERAGE),
        (1600, 16.0, Rate.AVERAGE),
        (220, 0.5, Rate.PEAK),
        (7040, 16.0, Rate.PEAK),
    ]


def test_the_rate_is_measured_from_times() -> None:
    times = np.concatenate([np.linspace(0, 10, 100, endpoint=False), np.linspace(3, 4, 50, endpoint=False)])
    found = measured_rate([times, np.array([10.0])])
    assert found.peak == 60
    assert found.average == pytest.approx(15.1)


def test_seconds_without_a_rate_are_refused() -> None:
    with pytest.raises(UsageError, match="known rate"):
        outages_at(1.0, items=(), seconds=(1.0,), rate=None)
    with pytest.raises(UsageError, match="same time"):
        measured_rate([np.zeros(5)])
    with pytest.raises(UsageError, match="cannot be"):
        InputRate(10, 5)
