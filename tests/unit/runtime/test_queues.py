"""Items that wait beside sleeping secondaries: what is taken from there when those are promoted, and in how many
stages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from afspark.cluster.cluster import StageFailed
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.policies.replication import HotStandby
from afspark.protocol.replicas import ReplicaRole
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident.open_folder import OpenFolder
from afspark.sources import Source
from afspark.task import queueing
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Rig
from tests.unit.runtime.test_pipeline_engine import two
from tests.unit.runtime.test_replay_differs import Draws, Marks
from tests.unit.runtime.test_secondaries import HOSTS, secondaries
from tests.unit.runtime.test_sparkless import words


class Stage(NamedTuple):
    """A stage of primaries that apply batches of the past: from their queues, or because they are brought the items."""

    operator: str
    workers: tuple[int, ...]
    first: int
    last: int
    queued: bool


class Replayed:
    """The stages in which batches are applied once more. ``fail``: whether what came of a stage is lost."""

    def __init__(self, rig: Rig, patch: pytest.MonkeyPatch) -> None:
        self.stages: list[Stage] = []
        self.fail: Callable[[Stage], bool] = lambda _: False
        real = rig.hosts.run_stage

        def run_stage(config: Any, work: Any, requests: Sequence[TaskRequest], inputs: Any) -> list[TaskReport]:
            found = real(config, work, requests, inputs)
            asked = [one for one in requests if one.replay and one.apply and one.role is ReplicaRole.PRIMARY]
            if asked:
                last = max(one.batch for request in asked for one in (request, *request.following))
                workers = tuple(one.worker for one in asked)
                stage = Stage(config.operator_name, workers, asked[0].batch, last, asked[0].queued)
                self.stages.append(stage)
                if self.fail(stage):
                    raise StageFailed("what came of it is lost")
            return found

        patch.setattr(rig.hosts, "run_stage", run_stage)

    @property
    def spans(self) -> list[tuple[int, int, bool]]:
        return [(one.first, one.last, one.queued) for one in self.stages]


def hot_rig(make_rig: MakeRig, **settings: Any) -> tuple[Rig, Counter[str], int]:
    """A rig beside whose secondaries the items of all batches from a number on wait; the batch before."""
    given = {"batches": 10, "slots": HOSTS, "keyed": True, "tolerance": HotStandby(batches=50), **settings}
    rig, truth = make_rig(max_replay_seconds=1000.0, **given)
    rig.go(8)
    (version,) = {one.version for one in secondaries(rig)}
    assert version < 5
    assert all(sorted(one.queued) == list(range(version + 1, 8)) for one in secondaries(rig))
    return rig, truth, version


@pytest.mark.parametrize("lost", [(0,), (0, 1)])
def test_batches_that_wait_are_applied_in_one_stage(
    make_rig: MakeRig, lost: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only those are asked that lack them."""
    rig, truth, version = hot_rig(make_rig)
    replayed = Replayed(rig, monkeypatch)
    rig.lose(*lost)
    rig.go(1)
    assert replayed.stages == [Stage("operator", lost, version + 1, 7, True)]
    assert {entry.recovery.replayed for entry in rig.ledger if entry.recovery} == {7 - version}
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


def test_a_stage_that_nobody_has_heard_of_is_not_done_again(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is further than the driver knows has no items of those batches any more, and says what it said."""
    rig, truth, version = hot_rig(make_rig)
    replayed = Replayed(rig, monkeypatch)
    replayed.fail = lambda _: len(replayed.stages) == 1
    rig.lose(0)
    rig.go(1)
    # Where no host was missed, items of the first batch are not tried again.
    first = version + 1
    assert replayed.spans == [(first, 7, True), (first, first, False), (first + 1, 7, True)]
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


def test_one_batch_that_does_not_wait_is_read_and_the_others_are_not(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, truth, version = hot_rig(make_rig)
    replayed = Replayed(rig, monkeypatch)
    (home,) = {one.home for one in secondaries(rig) if one.worker == 0}
    (file,) = rig.segments.glob(f"{home}/*/operator-0/queue-{version + 2}")
    file.unlink()
    rig.lose(0)
    rig.go(1)
    first, gone = version + 1, version + 2
    assert replayed.spans == [(first, 7, True), (gone, 7, True), (gone, gone, False), (gone + 1, 7, True)]
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


def chained(odd: str = "") -> Callable[[Source], Pipeline]:
    """Two operators with secondaries, one after the other. ``odd``: what the first one never makes twice alike."""

    def pipeline(source: Source) -> Pipeline:
        hot = HotStandby(batches=50)
        return Pipeline(
            sources={SOURCE: source},
            nodes=(
                Node(name="first", operator=Draws(odd), inputs=(Edge(SOURCE, (words,)),), keyed=True, tolerance=hot),
                Node(name="second", operator=Marks(), inputs=(Edge("first"),), keyed=True, tolerance=hot),
            ),
        )

    return pipeline


@pytest.mark.parametrize("odd", ["", "items"])
def test_what_waits_counts_as_long_as_those_before_send_the_same(
    make_rig: MakeRig, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they were lost meanwhile; but nobody applies what they do not send any more."""
    rig, _ = make_rig(batches=8, slots={"a": 6, "b": 6}, max_replay_seconds=1000.0, pipeline=chained(odd))
    rig.go(6)
    replayed = Replayed(rig, monkeypatch)
    rig.lose(0, operator="first")
    rig.lose(operator="second")
    rig.go(1)
    of_second = [one for one in replayed.stages if one.operator == "second"]
    assert of_second and {one.queued for one in of_second} == {not odd}
    # Without items that differ one stage an operator was enough.
    assert odd or len(replayed.stages) == 2
    rig.go()
    sent = Counter[str]()
    for share in rig.cells("first"):
        sent.update(share["drawn"])
    assert odd or {word: 7 * times for word, times in sent.items()} == dict(rig.counts("second"))


def test_nobody_reads_what_waits_to_put_more_beside_it(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    reading = OpenFolder.read

    def noted(self: OpenFolder, name: str) -> bytes | None:
        read.append(name)
        return reading(self, name)

    monkeypatch.setattr(OpenFolder, "read", noted)
    hot_rig(make_rig)
    assert read and not [name for name in read if name.startswith("queue-")]


def test_a_queue_has_an_end(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, truth, version = hot_rig(make_rig, batches=12)
    files = rig.segments.glob("*/*/operator-0/queue-*")
    monkeypatch.setattr(queueing, "MOST_QUEUED_BYTES", sum(file.stat().st_size for file in files) + 10)
    rig.go(2)
    one = secondaries(rig)[0]
    assert one.full and sorted(one.queued) == list(range(version + 1, 8))
    rig.lose(0)
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


def test_who_has_applied_unheard_what_is_not_sent_any_more_goes_back(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second operator has taken batches from its queue, nobody knows, and the first one makes something else."""
    rig, _ = make_rig(batches=8, slots={"a": 6, "b": 6}, max_replay_seconds=1000.0, pipeline=chained("items"))
    rig.go(6)
    replayed = Replayed(rig, monkeypatch)

    def fail(stage: Stage) -> bool:
        first = len(replayed.stages) == 1
        if first:
            rig.lose(0, operator="first")
        return first

    replayed.fail = fail
    rig.lose(0, operator="second")
    rig.go(1)
    assert replayed.stages[0].operator == "second" and replayed.stages[0].queued
    assert {one.queued for one in replayed.stages[1:] if one.operator == "second"} == {False}
    assert rig.run_of("second").group.member(0).incarnation == 2


def test_in_a_circle_each_batch_has_a_stage_of_its_own(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back to a worker is known when it has come back."""
    rig, _ = make_rig(slots={"a": 6, "b": 6}, max_replay_seconds=1000.0, pipeline=two(HotStandby(batches=50)))
    rig.go(5)
    replayed = Replayed(rig, monkeypatch)
    rig.lose(0)
    rig.go(1)
    queued = [one for one in replayed.stages if one.queued]
    assert len(queued) > 2 and all(one.first == one.last for one in queued)
