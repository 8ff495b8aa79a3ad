"""Recovery without replay: what came since the last checkpoint is lost, and told."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from afspark.algorithms import WordCount
from afspark.control import Unreplicated
from afspark.coordinator.recovery.gaps import AppliedBatches, without_replay
from afspark.coordinator.told_bounds import realised, told
from afspark.coordinator.worker_state import DurableState, WorkerState
from afspark.errors import UsageError
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.model.windows import Hopping
from afspark.numbers import FIRST_INCARNATION
from afspark.policies import Adaptive, BarrierSnapshot, MiniBatch
from afspark.policies.replication import SCHEMES, ActiveStandby, ColdStandby, HotStandby, PassiveReplication
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.task_work import TaskWork
from afspark.sources import Pushed, Source
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Hosts, Rig, die
from tests.unit.runtime.test_barrier_snapshot import SCHEMA
from tests.unit.runtime.test_engine_failures import worst
from tests.unit.runtime.test_secondaries import HOSTS, homes, lose_host, secondaries

pytestmark = pytest.mark.some(3)


def tolerance(scheme: Any, batches: int = 50) -> Any:
    return Adaptive(gap=True) if scheme is Adaptive else scheme(batches=batches, gap=True)


def missing(truth: Counter[str], rig: Rig) -> Counter[str]:
    found = rig.counts()
    assert not found - truth, "nothing is counted twice"
    return truth - found


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
@pytest.mark.parametrize("keyed", [False, True])
def test_what_came_since_the_checkpoint_is_lost_and_told(make_rig: MakeRig, scheme: Any, keyed: bool) -> None:
    rig, truth = make_rig(batches=8, slots=HOSTS, tolerance=tolerance(scheme), keyed=keyed, max_replay_seconds=1000.0)
    rig.go(5)
    covered = rig.driver.commits.records.covered.batch
    assert covered < 3
    rig.lose(0)
    rig.go()
    (entry,) = rig.ledger
    assert entry.recovery is not None and entry.recovery.replayed == 0
    if scheme.name.startswith("active"):
        # The secondary has all that its primary had.
        assert (entry.loss.gap_batches, rig.bound()) == (0, 0.0) and not missing(truth, rig)
        return
    assert entry.loss.gap_batches == 4 - covered
    assert entry.loss.gap_items > 0 and missing(truth, rig)
    assert not entry.loss.limited and entry.covered is False
    assert rig.bound() == math.inf and set(told(rig.run_of()).values()) == {math.inf}


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_nothing_is_lost_if_a_checkpoint_has_everything(make_rig: MakeRig, scheme: Any) -> None:
    rig, truth = make_rig(batches=6, slots=HOSTS, tolerance=tolerance(scheme, batches=1), keyed=True)
    rig.go(3)
    rig.driver.commits.settle()
    assert rig.driver.commits.records.covered.batch == 2
    lose_host(rig, "a")
    rig.go()
    assert rig.ledger and {entry.loss.gap_batches for entry in rig.ledger} == {0}
    assert rig.counts() == truth and rig.bound() == 0


def test_it_goes_on_from_there(make_rig: MakeRig) -> None:
    """A promoted secondary that has left batches out is checkpointed, followed and lost like any other worker."""
    rig, truth = make_rig(batches=14, slots=HOSTS, tolerance=ColdStandby(batches=3, gap=True), keyed=True)
    rig.go(5)
    rig.lose(0)
    rig.go(1)
    first = missing(truth, rig)
    rig.go(5)
    assert all(one.is_built for one in secondaries(rig))
    rig.driver.commits.settle()
    covered = rig.driver.commits.records.covered.batch
    lose_host(rig, homes(rig)[0])
    rig.go()
    assert len(rig.ledger) > 1 and all(entry.loss.gap_batches <= 10 - covered for entry in rig.ledger[1:])
    assert first and rig.bound() == math.inf
    missing(truth, rig)


@pytest.mark.parametrize("scheme", [PassiveReplication, ColdStandby, HotStandby], ids=lambda scheme: scheme.name)
def test_a_gap_is_told_of_a_window_that_its_last_batch_has_opened(make_rig: MakeRig, scheme: Any) -> None:
    """The loss is found while the batch is being committed: all have applied it, and no record knows of the window."""
    window = Hopping(10, by="processing")
    rig, _ = make_rig(slots=HOSTS, tolerance=tolerance(scheme), window=window)
    rig.now = 1.0
    rig.go(2)
    rig.now = 12.0
    rig.go(1, lambda _: rig.lose(0))
    (entry,) = rig.ledger
    assert entry.loss.gap_batches > 0 and not any(name.endswith("@1") for name in rig.cells()[0])
    assert realised(rig.run_of(), 1) == {"counts": math.inf}


@pytest.mark.parametrize("keyed", [False, True])
def test_what_a_threshold_allowed_to_be_lost_is_told_where_nothing_came_in_between(
    make_rig: MakeRig, keyed: bool
) -> None:
    """The checkpoint of every batch is complete, and lacks what the controller has let it lack."""
    theta = 400.0
    rig, truth = make_rig(batches=12, slots=HOSTS, tolerance=Adaptive(theta=theta, gap=True, every=3600), keyed=keyed)
    rig.go(2)
    for worker in (0, 1):
        rig.run_of().protect(worker, Unreplicated.APPROXIMATE, None)
    rig.go(4)
    told_before = []
    for _ in range(3):
        rig.driver.commits.settle()
        rig.lose(0)
        rig.go(1)
        told_before.append(rig.bound())
    assert [entry.loss.gap_batches for entry in rig.ledger] == [0] * 3
    assert all(entry.loss.counted for entry in rig.ledger) and missing(truth, rig)
    assert 0 < told_before[0] < told_before[1] < told_before[2] <= theta
    rig.go()
    assert worst(truth, rig.counts()) <= rig.bound() <= theta


class LosingThePromoted(Hosts):
    """The first secondary that is to take its primary's place is gone, too, by when it is asked to."""

    def __init__(self, segments: Path) -> None:
        super().__init__(HOSTS)
        self.segments, self.struck = segments, False

    def run_stage(self, config: Any, work: Any, requests: Any, inputs: Any) -> Any:
        for one in requests:
            if one.promotes and not self.struck:
                self.struck = True
                shutil.rmtree(next(self.segments.glob(f"{one.home}/*/operator-{one.worker}")))
        return super().run_stage(config, work, requests, inputs)


def test_a_gap_is_told_if_the_one_that_was_promoted_is_lost_in_the_same_batch(make_rig: MakeRig) -> None:
    """It had all that its primary had, and has completed nothing: what goes with it was counted nowhere."""
    rig, truth = make_rig(batches=8, tolerance=tolerance(ActiveStandby), keyed=True, max_replay_seconds=1000.0)
    rig.hosts = LosingThePromoted(rig.segments)
    rig.go(5)
    covered = rig.driver.commits.records.covered.batch
    rig.lose(0)
    rig.go()
    first, second = rig.ledger
    assert (first.loss.gap_batches, first.loss.counted) == (0, False)
    assert second.loss.gap_batches == 4 - covered > 0 and second.loss.gap_items > 0 and missing(truth, rig)
    assert second.loss.counted and not second.loss.limited and second.covered is False
    assert rig.bound() == math.inf and set(told(rig.run_of()).values()) == {math.inf}


@pytest.mark.parametrize("keyed", [False, True])
def test_every_worker_tells_of_its_own_items(make_rig: MakeRig, keyed: bool) -> None:
    """Items that others have read and sent by key are lost with the worker that they came to."""
    rig, _ = make_rig(batches=7, tolerance=tolerance(PassiveReplication), keyed=keyed, max_replay_seconds=1000.0)
    rig.go(5)
    rig.lose(0, 1)
    rig.go()
    told_items = {entry.loss.worker: entry.loss.gap_items for entry in rig.ledger}
    assert set(told_items) == {0, 1} and min(told_items.values()) > 0


@pytest.mark.parametrize("between", [1, 2])
def test_a_batch_that_is_lost_for_good_is_told_once(make_rig: MakeRig, between: int) -> None:
    """A worker that is lost again goes back to the same checkpoint: what came before its first loss was lost then."""
    rig, truth = make_rig(
        batches=9, slots=HOSTS, tolerance=tolerance(PassiveReplication), keyed=True, max_replay_seconds=1000.0
    )
    rig.go(5)
    covered = rig.driver.commits.records.covered.batch
    rig.lose(0)
    rig.go(between)
    before = rig.driver.commits.records.covered.batch
    rig.lose(0)
    rig.go()
    first, second = rig.ledger
    assert covered == before and first.loss.gap_batches == 4 - covered and first.loss.gap_items > 0
    assert second.loss.gap_batches == between and second.loss.gap_items > 0
    assert rig.bound() == math.inf and missing(truth, rig)


def test_a_started_driver_goes_on_with_it_and_tells_the_same(make_rig: MakeRig) -> None:
    rig, truth = make_rig(
        batches=10, slots=HOSTS, tolerance=HotStandby(batches=50, gap=True), keyed=True, max_replay_seconds=1000.0
    )

    def script() -> None:
        rig.go(4)
        rig.lose(0)
        rig.go(3, lambda batch: die() if batch == 6 else None)

    rig.drive_and_die(script)
    rig.start()
    rig.go()
    assert rig.bound() == math.inf
    missing(truth, rig)


@pytest.mark.parametrize("lost", [(0,), (0, 1)])
def test_a_started_driver_may_replay(make_rig: MakeRig, lost: tuple[int, ...]) -> None:
    """It has to come to the last batch anyway: what is told is what there is."""
    rig, truth = make_rig(batches=8, slots=HOSTS, tolerance=PassiveReplication(batches=50, gap=True), keyed=True)
    rig.go(1)
    rig.drive_and_die(lambda: rig.go(4, lambda batch: die() if batch == 4 else None))
    rig.lose(*lost)
    rig.start()
    rig.go()
    assert rig.bound() == math.inf or rig.counts() == truth
    missing(truth, rig)


def chain(source: Source, first: Any, second: Any) -> Pipeline:
    nodes = (
        Node(name="words", operator=WordCount(), inputs=(Edge(SOURCE),), tolerance=first, workers=2),
        Node(name="again", operator=WordCount(), inputs=(Edge("words"),), tolerance=second, workers=2),
    )
    return Pipeline(sources={SOURCE: source}, nodes=nodes)


@pytest.mark.parametrize("second", [MiniBatch(), BarrierSnapshot(), HotStandby()])
def test_nobody_may_have_to_replay_what_is_left_out_upstream(make_rig: MakeRig, second: Any) -> None:
    with pytest.raises(UsageError, match="asks for a gap") as refused:
        make_rig(slots=HOSTS, pipeline=lambda source: chain(source, ActiveStandby(gap=True), second))
    assert refused.value.fields["operator"] == "words"


def test_pushed_items_leave_no_gap() -> None:
    with pytest.raises(UsageError, match="asks for a gap, and pushed items"):
        Pipeline.single(
            source=Pushed.of(SCHEMA, lanes=2), operator=WordCount(), tolerance=PassiveReplication(gap=True), workers=2
        )


def test_precise_operators_may_be_upstream_of_a_gap(make_rig: MakeRig) -> None:
    make_rig(slots=HOSTS, pipeline=lambda source: chain(source, MiniBatch(), ActiveStandby(gap=True)))


def test_a_running_operator_cannot_change_between_both_kinds(make_rig: MakeRig) -> None:
    rig, _ = make_rig(slots=HOSTS, tolerance=HotStandby(batches=2, gap=True))
    rig.go(1)
    for other in (HotStandby(), BarrierSnapshot()):
        with pytest.raises(UsageError, match="gap recovery"):
            rig.run_of().want(other)
    rig.run_of().want(ColdStandby(gap=True))


def test_the_gap_is_from_the_state_to_the_last_batch() -> None:
    applied = AppliedBatches()
    for batch in range(6):
        fed_back = {"gate": batch}
        work = TaskWork(items=10 + batch)
        applied.note(batch, TaskReport(worker=1, status=Status.APPLIED, host="a", work=work, fed_back=fed_back))
    member = WorkerState.at("a", worker=1, version=5, completed=6)
    found = without_replay(member, DurableState(2), applied, ["counts"])
    assert (found.gap_batches, found.gap_items, found.waiting) == (3, 13 + 14 + 15, 5)
    assert found.version == 5 and found.older_theta == {"counts": math.inf}
    whole = without_replay(member, DurableState(5), applied, ["counts"])
    assert (whole.gap_batches, whole.gap_items, whole.incarnation) == (0, 0, None)
    below = without_replay(member, DurableState(5, FIRST_INCARNATION, older_theta={"counts": 3.0}), applied, ["counts"])
    assert (below.gap_batches, below.incarnation) == (0, FIRST_INCARNATION), "what is below a threshold is lost"
    applied.leave_out(1, range(3, 5))
    again = without_replay(member, DurableState(2), applied, ["counts"])
    assert (again.gap_batches, again.gap_items, again.version) == (1, 15, 5)
    applied.leave_out(1, [5])
    again = without_replay(member, DurableState(2), applied, ["counts"])
    assert (again.gap_batches, again.gap_items, again.version, again.incarnation) == (0, 0, 5, None)
    applied.forget(4)
    assert applied.items_of(1, 2, 5) == 15
