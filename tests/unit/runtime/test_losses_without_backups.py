"""Losses of what was never backed up: they are told for good, whatever the tolerance is afterwards."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from afspark.cluster.local.processes import in_process
from afspark.coordinator.told_bounds import in_force, told
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.model.windows import Decaying, Hopping, Sliding, Window
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Nothing, Tolerance
from afspark.sources import Source
from tests.unit.runtime.conftest import MakeRig as MakeForkedRig
from tests.unit.runtime.sparkless import Hosts, Rig
from tests.unit.runtime.test_replay_of_pipelines import windowed
from tests.unit.runtime.test_savepoints import begun, saved
from tests.unit.runtime.test_sparkless import Gate, Tally, words

pytestmark = pytest.mark.some(3)

later_policies = pytest.mark.parametrize(
    "later",
    [Approximate(400.0), MiniBatch(), BarrierSnapshot(batches=2)],
    ids=lambda one: one.name,
)


MakeRig = Callable[..., tuple[Rig, Counter[str]]]


@pytest.fixture
def make_rig(make_rig: MakeForkedRig) -> MakeRig:
    """Nobody is killed here, so that no process of its own is needed."""

    def make(**settings: Any) -> tuple[Rig, Counter[str]]:
        rig, truth = make_rig(**settings)
        rig.hosts = Hosts(processes=in_process)
        return rig, truth

    return make


def forget_offsets(rig: Rig, kept: int = 2) -> None:
    """Spark has pruned what belonged to all batches but the last few."""
    for path in sorted((rig.checkpoint / "offsets").iterdir(), key=lambda path: int(path.name))[:-kept]:
        path.unlink()


def forget_input(rig: Rig, *, files: int, first: int = 0) -> None:
    """Somebody has removed files that were processed."""
    for number in range(first, first + files):
        (rig.root / "input" / f"{number:04d}.txt").unlink()


def lose_a_host(rig: Rig) -> Callable[[int], None]:
    """A sink whose first call finds a host gone, so that the batch is applied again by a worker that begins anew."""

    def deliver(batch: int) -> None:
        if "b" in rig.hosts.slots:
            rig.hosts.slots = {"a": 2}
            raise OSError("what the host kept cannot be read")

    return deliver


@later_policies
@pytest.mark.parametrize("before", [None, MiniBatch(), Approximate(400.0)], ids=["first", "minibatch", "approximate"])
def test_a_loss_without_backups_is_told_under_every_later_policy(
    make_rig: MakeRig, before: Tolerance | None, later: Tolerance
) -> None:
    rig, truth = make_rig(batches=9, tolerance=before or Nothing())
    if before is not None:
        rig.go(2)
        rig.start(tolerance=Nothing())
    rig.go(3)
    assert rig.bound() == 0.0
    rig.lose(0)
    rig.go(1)
    assert rig.bound() == math.inf
    forget_offsets(rig)
    rig.start(tolerance=later)
    rows: list[float] = []
    rig.go(1, deliver=lambda batch: rows.append(rig.bound()))
    rig.go(1)
    assert rows == [math.inf] and rig.bound() == math.inf
    assert not any(entry["covered"] for entry in in_force(rig.run_of()))
    for tolerance in (Nothing(), later):
        rig.start(tolerance=tolerance)
        rig.driver.ready()
        assert rig.bound() == math.inf, "every later driver tells the same"
    rig.go()
    got = rig.counts()
    assert max(truth[word] - got[word] for word in truth) > 0


@pytest.mark.some(3)
@later_policies
@pytest.mark.parametrize("lost_before", [False, True], ids=["never lost", "lost in its first batch"])
@pytest.mark.parametrize("before", [None, MiniBatch()], ids=["first", "minibatch"])
def test_state_that_was_never_backed_up_is_gone_when_a_driver_of_another_policy_starts(
    make_rig: MakeRig, before: Tolerance | None, lost_before: bool, later: Tolerance
) -> None:
    rig, truth = make_rig(batches=8, tolerance=before or Nothing())
    rig.start()
    rig.go(1, deliver=lose_a_host(rig) if lost_before else None)
    rig.start(tolerance=Nothing())
    rig.go(3)
    assert rig.bound() == 0.0
    forget_offsets(rig)
    rig.lose()
    rig.start(tolerance=later)
    rig.go(2)
    assert rig.bound() == math.inf
    rig.start()
    rig.go()
    assert rig.bound() == math.inf
    got = rig.counts()
    assert max(truth[word] - got[word] for word in truth) > 0


@later_policies
@pytest.mark.parametrize("before", [None, MiniBatch()], ids=["first", "minibatch"])
def test_a_state_that_is_there_is_not_given_up_for_a_replay_that_lacks_input(
    make_rig: MakeRig, before: Tolerance | None, later: Tolerance
) -> None:
    rig, truth = make_rig(batches=8, tolerance=before or Nothing())
    if before is not None:
        rig.go(2)
        rig.start(tolerance=Nothing())
    rig.go(3)
    forget_input(rig, files=4 * (rig.committed + 1))
    rig.start(tolerance=later)
    rig.driver.ready()
    assert rig.ledger == []
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0.0 and rig.ledger == []
    rig.lose()
    rig.start(tolerance=MiniBatch())
    rig.driver.ready()
    # It was backed up as a whole.
    assert rig.bound() < math.inf


def test_a_state_that_goes_on_without_its_input_is_lost_without_a_bound_until_it_is_backed_up(
    make_rig: MakeRig,
) -> None:
    rig, truth = make_rig(batches=8, tolerance=Nothing())
    rig.go(3)
    forget_input(rig, files=12)
    rig.start(tolerance=MiniBatch())
    rig.driver.ready()
    rig.lose(0)
    rig.go()
    assert rig.counts() != truth and rig.bound() == math.inf


def test_a_state_that_has_lost_something_is_replayed_as_far_as_there_is_input(make_rig: MakeRig) -> None:
    rig, truth = make_rig(batches=8, tolerance=MiniBatch())
    rig.go(2)
    rig.start(tolerance=Nothing())
    rig.go(1)
    rig.lose(0)
    rig.go(2)
    forget_input(rig, first=8, files=1)
    rig.start(tolerance=MiniBatch())
    rig.go()
    got = rig.counts()
    assert rig.bound() == math.inf and sum((truth - got).values()) == 35, "all but the file that is gone"


@pytest.mark.parametrize("before", [None, MiniBatch()], ids=["first", "minibatch"])
def test_a_worker_lost_in_its_first_batch_and_with_its_driver_later(
    make_rig: MakeRig, before: Tolerance | None
) -> None:
    """The ledger knows of it already, by a loss that took nothing."""
    rig, truth = make_rig(tolerance=before or Nothing())
    rig.start()
    rig.go(1, deliver=lose_a_host(rig))
    assert [entry.loss.counted for entry in rig.ledger] == [False] and rig.bound() == 0.0
    rig.start(tolerance=Nothing())
    rig.go(2)
    rig.lose(1)
    rig.start()
    rig.go()
    assert rig.counts() != truth and rig.bound() == math.inf


def test_a_savepoint_goes_on_without_backups(make_rig: MakeRig) -> None:
    """Its start is a loss that took nothing; the state that is lost afterwards is another one."""
    rig, truth = make_rig(tolerance=MiniBatch())
    rig.go(2)
    second = begun(rig, saved(rig), "second")
    second.start(tolerance=Nothing())
    second.go(2)
    assert second.bound() == 0.0
    second.start()
    second.go(1)
    second.lose(0)
    second.start()
    second.go()
    assert second.counts() != truth and second.bound() == math.inf


@pytest.mark.parametrize("later", [MiniBatch(), Approximate(400.0)], ids=["minibatch", "approximate"])
@pytest.mark.parametrize("declared", [False, True], ids=["found gone", "lost at work"])
@pytest.mark.parametrize(
    "window", [Hopping(10, by="processing"), Sliding(20, 10, by="processing")], ids=["hop", "slide"]
)
def test_only_windows_are_concerned_that_the_lost_state_may_have_touched(
    make_rig: MakeRig, window: Window, declared: bool, later: Tolerance
) -> None:
    rig, _ = make_rig(batches=10, tolerance=Nothing(), window=window)

    def bound(pane: int | None = None) -> float:
        return told(rig.run_of(), pane)["counts"]

    def go(pane: int) -> None:
        rig.now = 10.0 * pane + 5
        rig.go(1)

    for pane in (0, 0, 1):
        go(pane)
    assert bound() == 0.0
    rig.lose(0)
    if declared:
        go(1)
        assert bound() == math.inf
    rig.start(tolerance=later)
    go(1)
    last = 1 + window.panes - 1
    assert [bound(pane) for pane in range(1, last + 2)] == [math.inf] * window.panes + [0.0]
    assert bound() == math.inf
    go(last + 1)
    go(last + 1)
    assert bound() == 0.0, "all of them are closed"
    rig.start(tolerance=Nothing())
    rig.driver.ready()
    assert (bound(), bound(last)) == (0.0, math.inf)


def test_a_decaying_state_is_told_for_good(make_rig: MakeRig) -> None:
    window = Decaying(0.5, 10, by="processing")
    rig, _ = make_rig(pipeline=windowed(Nothing(), window))
    source = next(iter(rig.settings["pipeline"].sources.values()))
    rig.go(3)
    rig.lose(0)
    rig.go(1)
    rig.now = 1e9
    rig.start(pipeline=windowed(MiniBatch(), window)(source))
    rig.go(2)
    assert told(rig.run_of())["counts"] == math.inf


def test_savepoints_have_what_was_lost_before_them(make_rig: MakeRig) -> None:
    rig, _ = make_rig(tolerance=Nothing(), window=Hopping(10, by="processing"))
    rig.go(2)
    rig.lose(0)
    rig.go(1)
    second = begun(rig, saved(rig), "second")
    second.start(tolerance=MiniBatch())
    second.go(1)
    assert told(second.run_of())["counts"] == math.inf


def two(first: Tolerance, second: Tolerance) -> Callable[[Source], Pipeline]:
    """An operator that hands words on to one that counts them, each with a policy of its own."""

    def pipeline(source: Source) -> Pipeline:
        return Pipeline(
            sources={SOURCE: source},
            nodes=(
                Node(name="gate", operator=Gate(), inputs=(Edge(SOURCE, (words,)),), tolerance=first),
                Node(name="tally", operator=Tally(), inputs=(Edge("gate"),), keyed=True, tolerance=second),
            ),
        )

    return pipeline


@pytest.mark.parametrize("declared", [False, True], ids=["found gone", "lost at work"])
@pytest.mark.parametrize("later", [MiniBatch(), Approximate(400.0)], ids=["minibatch", "approximate"])
@pytest.mark.parametrize("lost", ["gate", "tally"])
def test_of_several_operators_that_one_is_concerned_which_has_lost(
    make_rig: MakeRig, lost: str, later: Tolerance, declared: bool
) -> None:
    policies = [Nothing(), MiniBatch()] if lost == "gate" else [MiniBatch(), Nothing()]
    rig, _ = make_rig(pipeline=two(*policies))
    rig.go(3)
    rig.lose(0, operator=lost)
    if declared:
        rig.go(1)
    forget_offsets(rig)
    source = next(iter(rig.settings["pipeline"].sources.values()))
    rig.start(pipeline=two(later, later)(source))
    rig.go()
    assert {run.name: rig.bound(run.name) for run in rig.driver.runs} == {
        name: math.inf if name == lost else 0.0 for name in ("gate", "tally")
    }


def beside(first: Tolerance, second: Tolerance) -> Callable[[Source], Pipeline]:
    """Two operators that read the same source."""
    return lambda source: Pipeline(
        sources={SOURCE: source},
        nodes=(
            Node(name="tally", operator=Tally(), inputs=(Edge(SOURCE, (words,)),), keyed=True, tolerance=first),
            Node(name="gate", operator=Gate(), inputs=(Edge(SOURCE, (words,)),), tolerance=second),
        ),
    )


@pytest.mark.parametrize("at_once", [True, False])
def test_a_batch_that_was_applied_for_snapshots_and_that_nobody_replays(make_rig: MakeRig, at_once: bool) -> None:
    """Its sink has failed, and whoever starts the query next has an operator without backups. Until the next batch has
    backed it up, it is lost with its worker, and told so.
    """

    def fail(batch: int) -> None:
        raise OSError("the sink is full")

    snapshots = BarrierSnapshot(batches=50)
    rig, truth = make_rig(batches=6, pipeline=beside(snapshots, snapshots))
    (source,) = rig.pipeline.sources.values()
    rig.go(1)
    with pytest.raises(OSError, match="full"):
        rig.go(1, deliver=fail)
    rig.start(pipeline=beside(MiniBatch(), Nothing())(source))
    rig.go(1 if at_once else 2)
    assert rig.bound("tally") == 0.0
    rig.lose(operator="tally")
    rig.go()
    assert rig.counts("tally")["all"] == (truth["all"] * 5 // 6 if at_once else truth["all"])
    assert rig.bound("tally") == (math.inf if at_once else 0.0)
