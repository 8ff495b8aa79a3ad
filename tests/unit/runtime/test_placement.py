"""Homes for workers."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.cluster.spark.session import with_retries
from afspark.coordinator.placement import check_slots, spread
from afspark.errors import UsageError

slots = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 8), min_size=1)


@given(slots=slots, share=st.floats(0, 1))
def test_no_host_gets_more_than_its_slots(slots: dict[str, int], share: float) -> None:
    workers = range(round(sum(slots.values()) * share))
    homes = spread(workers, slots)
    assert list(homes) == list(workers)
    assert all(Counter(homes.values())[host] <= slots[host] for host in slots)


@given(slots=slots, staying=st.lists(st.sampled_from("abcde"), max_size=6), workers=st.integers(0, 12))
def test_new_homes_even_out_what_stays(slots: dict[str, int], staying: list[str], workers: int) -> None:
    taken = [host for host in staying if host in slots]
    load = Counter(taken) + Counter(spread(range(workers), slots, taken).values())
    for host in spread(range(workers), slots, taken).values():
        # The last worker to come to a host found no emptier one.
        assert all((load[host] - 1) / slots[host] <= load[other] / slots[other] for other in slots)


@given(slots=slots, workers=st.integers(0, 12))
def test_placement_does_not_depend_on_the_order_of_hosts(slots: dict[str, int], workers: int) -> None:
    assert spread(range(workers), slots) == spread(range(workers), dict(reversed(slots.items())))


def test_too_few_slots_are_refused() -> None:
    check_slots({"a": 2, "b": 2}, 4)
    with pytest.raises(UsageError) as caught:
        check_slots({"a": 2, "b": 1}, 4)
    assert (caught.value.workers, caught.value.slots) == (4, 3)
    assert "workers=3" in caught.value.remedy


@pytest.mark.parametrize(
    ("master", "changed"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,7]", "local[2,7]"),
        ("spark://h:7077", "spark://h:7077"),
        ("yarn", "yarn"),
    ],
)
def test_local_masters_get_retries(master: str, changed: str) -> None:
    assert with_retries(master) == changed
