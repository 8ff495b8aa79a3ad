"""Replay where operators are connected, feed back, or have windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from afspark.coordinator.told_bounds import realised
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.model.states import HashTable, StateSpec
from afspark.model.windows import Decaying, Hopping, Sliding, Window
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Tolerance
from afspark.sources import Source
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig
from tests.unit.runtime.sparkless import Rig
from tests.unit.runtime.test_pipeline_engine import Ends, two
from tests.unit.runtime.test_sparkless import Gate, Tally, number, words

pytestmark = pytest.mark.some(3)

LAGS = [Lag.RECORDS, pytest.param(Lag.BACKUPS, marks=pytest.mark.thorough)]
#: When Spark plans the batches: some windows are closed by a batch of their own, some by the same one.
TIMES = (1.0, 4.0, 12.0, 13.0, 27.0, 38.0)
POLICIES: list[Tolerance] = [MiniBatch(), BarrierSnapshot(batches=3)]


def line(tolerance: Tolerance, window: Window | None = None) -> Callable[[Source], Pipeline]:
    """Gate, tally (by key, with windows, feeds back to the gate), ends."""

    def pipeline(source: Source) -> Pipeline:
        return Pipeline(
            sources={SOURCE: source},
            nodes=(
                Node(name="gate", operator=Gate(), inputs=(Edge(SOURCE, (words,)),), tolerance=tolerance),
                Node(
                    name="tally",
                    operator=Tally(to="gate"),
                    inputs=(Edge("gate"),),
                    window=window,
                    keyed=True,
                    feeds_back=("gate",),
                    tolerance=tolerance,
                ),
                Node(name="ends", operator=Ends(), inputs=(Edge("tally"),), workers=1, tolerance=tolerance),
            ),
        )

    return pipeline


@pytest.mark.some(3)
@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("tolerance", POLICIES, ids=lambda one: one.name)
@pytest.mark.parametrize(
    "lost",
    [
        ("gate",),
        ("tally",),
        ("ends",),
        ("gate", "tally"),
        ("tally", "ends"),
        ("gate", "ends"),
        ("gate", "tally", "ends"),
    ],
    ids=" ".join,
)
def test_connected_operators(make_rig: MakeRig, lost: tuple[str, ...], tolerance: Tolerance, lag: Lag) -> None:
    one = LaggingRig(make_rig, lag, pipeline=line(tolerance, Hopping(10, by="processing")))
    rig = one.rig
    one.go(*TIMES[:5])
    for operator in lost:
        rig.lose(0, operator=operator)
    one.go(*TIMES[5:])
    one.assert_as_calm(*TIMES)
    replayed = one.replayed()
    assert replayed.keys() == {(operator, 0) for operator in lost} and min(replayed.values()) > 0
    assert {(operator, worker) for operator, worker, _ in one.again()} == replayed.keys()
    assert rig.delivered == list(range(6))


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize("tolerance", POLICIES, ids=lambda one: one.name)
def test_upstream_and_downstream_one_after_the_other(
    make_rig: MakeRig, tolerance: Tolerance, worker: int, lag: Lag
) -> None:
    """The gate is lost while the tally replays: what it had kept of those batches has to be made again first."""
    one = LaggingRig(make_rig, lag, pipeline=line(tolerance, Hopping(10, by="processing")))
    rig = one.rig
    one.go(*TIMES[:5])
    rig.lose(worker, operator="tally")
    happened: list[int] = []

    def before(kind: str, partition: int, attempt: int) -> None:
        applied = one.applied()
        if not happened and any(times > 1 for (operator, _, _), times in applied.items() if operator == "tally"):
            happened.append(1)
            rig.lose(1 - worker, operator="gate")

    rig.hosts.before = before
    one.go(*TIMES[5:])
    assert happened
    one.assert_as_calm(*TIMES)
    assert one.replayed().keys() == {("tally", worker), ("gate", 1 - worker)}
    assert rig.delivered == list(range(6))


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("tolerance", POLICIES, ids=lambda one: one.name)
@pytest.mark.parametrize("lost", ["gate", "echo", None])
def test_feedback(make_rig: MakeRig, lost: str | None, tolerance: Tolerance, lag: Lag) -> None:
    """Feedback of the last durable batch is in its backup, that of later ones is made again."""
    one = LaggingRig(make_rig, lag, pipeline=two(tolerance))
    rig = one.rig
    for _ in range(2):
        rig.go(2)
        rig.lose(operator=lost)
    rig.go()
    one.assert_as_calm()
    assert rig.counts("echo") == one.truth
    assert all(entry.loss.items == 0 for entry in rig.ledger)
    assert min(one.replayed().values()) > 0


@pytest.mark.some(3)
@pytest.mark.parametrize("lag", list(Lag))
@pytest.mark.parametrize("lost", ["echo", None], ids=["sender", "all"])
@pytest.mark.parametrize("limit", [0.0, 10.0, 1000.0])
def test_approximate_feedback_loses_no_more_than_it_tells(
    make_rig: MakeRig, limit: float, lost: str | None, lag: Lag
) -> None:
    """What the durable batch had sent reaches nobody who is replayed from there; those who have it keep it."""
    one = LaggingRig(make_rig, lag, pipeline=two(Approximate(theta=0.0, items=limit)))
    rig = one.rig
    for _ in range(2):
        rig.go(2)
        rig.lose(operator=lost)
    rig.go()
    one.calm.go()
    assert rig.counts("echo") == one.truth
    told = sum(entry.loss.items for entry in rig.ledger)
    missing = number(one.calm, "gate", "returned") - number(rig, "gate", "returned")
    # Every item reaches both gates.
    assert missing == (0 if lost else 2 * told)
    assert told <= limit and (told > 0) == (limit == 1000.0)


class Fading(Tally):
    """A tally that may decay."""

    alpha = 1.0

    def states(self) -> Mapping[str, StateSpec]:
        return {"counts": HashTable(key="string", value="float64")}


def windowed(tolerance: Tolerance, window: Window) -> Callable[[Source], Pipeline]:
    """By key if shares need not be even."""
    given = {"workers": 1} if window.by == "count" else {"keyed": True}

    def pipeline(source: Source) -> Pipeline:
        edge = Edge(SOURCE, (words,))
        node = Node(name="tally", operator=Fading(), inputs=(edge,), window=window, tolerance=tolerance, **given)
        return Pipeline(sources={SOURCE: source}, nodes=(node,))

    return pipeline


WINDOWS: list[Window] = [
    Hopping(10, by="processing"),
    Sliding(20, 10, by="processing"),
    Decaying(0.5, 10, by="processing"),
    Hopping(40, by="count"),
]


@pytest.mark.some(3)
@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("tolerance", [*POLICIES, Approximate(0.0)], ids=lambda one: one.name)
@pytest.mark.parametrize("window", WINDOWS, ids=repr)
def test_windows(make_rig: MakeRig, window: Window, tolerance: Tolerance, lag: Lag) -> None:
    one = LaggingRig(make_rig, lag, pipeline=windowed(tolerance, window))
    got: list[Any] = []
    expected: list[Any] = []
    for rig, closed in ((one.rig, got), (one.calm, expected)):
        take = partial(take_windows, rig, closed)
        for planned, rig.now in enumerate(TIMES):
            rig.go(1, deliver=take)
            if rig is one.rig and planned in (2, 4):
                rig.lose(0)
        rig.driver.ready()
    assert got == expected
    one.assert_as_calm()
    assert min(one.replayed().values()) > 0
    for rig, closed in ((one.rig, got), (one.calm, expected)):
        rig.end(deliver=partial(take_windows, rig, closed))
    assert got == expected


def test_a_base_that_moves_between_two_barriers(make_rig: MakeRig) -> None:
    """What the first barrier has backed up has faded by the next one, where a word has come as often as then."""
    one = LaggingRig(
        make_rig, Lag.NOTHING, pipeline=windowed(BarrierSnapshot(batches=2), Decaying(0.5, 10, by="processing"))
    )
    times = (1.0, 20_000.0, 20_001.0, 20_002.0, 20_003.0)
    one.go(*times[:4])
    one.rig.lose()
    one.go(times[4])
    one.assert_as_calm(*times)


def take_windows(rig: Rig, closed: list[Any], batch: int) -> None:
    closed.append((batch, rig.windows(batch)))


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("theta", [40.0, 400.0])
@pytest.mark.parametrize("window", WINDOWS[:2], ids=repr)
def test_windows_within_their_bounds(make_rig: MakeRig, window: Window, theta: float, lag: Lag) -> None:
    """A window is told what its own panes may lack, and no more is missing from it."""
    one = LaggingRig(make_rig, lag, pipeline=windowed(Approximate(theta), window))
    got: list[Any] = []
    expected: list[Any] = []
    bounds: dict[int, float] = {}
    for rig, closed in ((one.rig, got), (one.calm, expected)):
        for planned, rig.now in enumerate(TIMES):

            def take(batch: int, rig: Rig = rig, closed: list[Any] = closed) -> None:
                for worker, share in enumerate(rig.windows(batch)):
                    for name, cells in share.items():
                        closed.append((batch, worker, name, cells))
                        if rig is one.rig:
                            bounds[name[0]] = realised(rig.run_of(), name[0])["counts"]

            rig.go(1, deliver=take)
            if rig is one.rig and planned in (1, 2, 4):
                rig.lose(planned % 2)
    assert [one[:3] for one in got] == [one[:3] for one in expected] and got
    for (*_, name, cells), (*_, true) in zip(got, expected, strict=True):
        off = max(abs(true[key] - cells.get(key, 0)) for key in true)
        assert off <= bounds[name[0]] <= theta
