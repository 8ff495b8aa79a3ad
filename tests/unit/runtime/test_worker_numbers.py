"""Which operators may have another number of workers, and what stays as it was."""

from __future__ import annotations

import pytest

from afspark.algorithms import HeavyHitters, OnlineJoin, WordCount
from afspark.coordinator.rescaling.rescaling import fitted
from afspark.errors import CheckpointError
from afspark.graph.pipeline import Pipeline
from afspark.graph.worker_numbers import new_numbers, refuse_numbers, with_workers
from afspark.model.operator import Operator
from afspark.sources import Packets
from tests.unit.runtime.test_relay import node, relayed


def single(operator: Operator, *, keyed: bool = False) -> Pipeline:
    return Pipeline.single(source=Packets(10), operator=operator, name="one", workers=3, keyed=keyed)


@pytest.mark.parametrize(
    ("operator", "keyed", "refused"),
    [
        (WordCount(), True, False),
        (WordCount(), False, False),
        (OnlineJoin(on=["src"]), True, False),
        (OnlineJoin(on=["src"]), False, False),
        (HeavyHitters(keys=["src"], weight="bytes", threshold=1), False, True),
    ],
)
def test_algorithms_say_whether_they_can(operator: Operator, keyed: bool, refused: bool) -> None:
    (found,) = new_numbers(single(operator, keyed=keyed), {"one": 2})
    assert bool(found.refused) == refused and found.text.startswith("'one'")
    if refused:
        with pytest.raises(CheckpointError):
            refuse_numbers([found])
    else:
        assert found.text == "'one' is rescaled from 2 workers to 3"


def test_as_many_as_before_and_new_operators_are_no_change() -> None:
    assert new_numbers(single(WordCount()), {"one": 3}) == new_numbers(single(WordCount()), {}) == []


def test_lanes_stay_and_operators_behind_a_relay_change() -> None:
    pipeline, changes = fitted(relayed(node("count", workers=3)), {"relay": 2, "count": 2})
    assert [one.workers for one in pipeline.nodes] == [2, 3] and pipeline.pushed[""].lanes == 2
    assert [one.text for one in changes] == ["'count' is rescaled from 2 workers to 3"]
    before = with_workers(pipeline, {"count": 2})
    assert [one.workers for one in before.nodes] == [2, 2]


def test_who_takes_items_off_a_lane_keeps_it() -> None:
    _, (found,) = fitted(relayed(node("count", workers=3, keyed=False)), {"count": 2})
    assert "a lane of its own" in found.text and found.remedy
