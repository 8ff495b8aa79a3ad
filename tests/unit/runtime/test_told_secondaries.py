"""A copy of a worker that was told of a loss comes to the same state, whatever its operator does when it hears."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from afspark.algorithms import WordCount
from afspark.model.operator import WorkerContext
from afspark.model.states import Numeric, StateSpec
from afspark.policies.replication import SCHEMES, ActiveReplication, ActiveStandby
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Rig
from tests.unit.runtime.test_secondaries import secondaries

HOSTS = {"a": 4, "b": 4, "c": 4}
ACTIVE = (ActiveReplication, ActiveStandby)
#: What a batch adds to the cell that a loss changes as well.
STEP = 1000


class CountsLosses(WordCount):
    """Counts in its state how often it has heard of a loss, beside its batches."""

    def states(self) -> Mapping[str, StateSpec]:
        return {**super().states(), "heard": Numeric()}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        states["heard"].add(STEP)
        return super().process(items, states)

    def on_recover(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        states["heard"].add(1)


def heard(rig: Rig) -> list[int]:
    """How often each worker has heard of a loss."""
    return [sum(share["heard"].values()) % STEP for share in rig.cells()]


def counted(rig: Rig) -> Counter[str]:
    return sum((Counter(share["counts"]) for share in rig.cells()), Counter())


def lose_copy(rig: Rig, worker: int) -> None:
    """The secondary of a worker goes with its state."""
    one = next(one for one in secondaries(rig) if one.worker == worker)
    shutil.rmtree(next(rig.segments.glob(f"{one.home}/*/operator-{worker}")))


def check_alike(rig: Rig, times: int) -> None:
    assert heard(rig) == [times, 0]
    assert rig.bound() == 0 and {entry.loss.cause for entry in rig.ledger} == {"its segment is missing"}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("scheme", ACTIVE, ids=lambda scheme: scheme.name)
def test_an_operator_hears_of_a_loss_once_whoever_takes_over(make_rig: MakeRig, scheme: Any, restarts: bool) -> None:
    """An active replica has applied the batch by then without a word of it: the next batch tells, whichever driver."""
    rig, truth = make_rig(
        batches=10, slots={"a": 4, "b": 4}, tolerance=scheme(batches=1), operator=CountsLosses(), keyed=True
    )
    rig.go(3)
    rig.lose(0)
    rig.go(1)
    if restarts:
        rig.driver.commits.flush(10.0)
        rig.start()
    rig.go()
    check_alike(rig, 1)
    assert counted(rig) == truth


@pytest.mark.parametrize("batches", [1, 50])
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_copies_that_heard_of_a_loss_are_alike(make_rig: MakeRig, scheme: Any, batches: int) -> None:
    """The next one is built from before its primary was told, and follows it through that batch."""
    rig, _ = make_rig(
        batches=16, slots=HOSTS, tolerance=scheme(batches=batches), operator=CountsLosses(), max_replay_seconds=1000.0
    )
    rig.go(4)
    for times in (1, 2):
        rig.lose(0)
        rig.go(5)
        if scheme in ACTIVE:
            check_alike(rig, times)
    assert rig.bound() == 0


@pytest.mark.parametrize("scheme", ACTIVE, ids=lambda scheme: scheme.name)
def test_a_started_driver_brings_a_copy_through_the_batch_that_told(make_rig: MakeRig, scheme: Any) -> None:
    rig, _ = make_rig(
        batches=16, slots=HOSTS, tolerance=scheme(batches=50), operator=CountsLosses(), max_replay_seconds=1000.0
    )
    rig.go(4)
    rig.lose(0)
    rig.go(3)
    lose_copy(rig, 0)
    rig.start()
    rig.go(2)
    rig.lose(0)
    rig.go()
    check_alike(rig, 2)
