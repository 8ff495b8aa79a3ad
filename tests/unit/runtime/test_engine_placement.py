"""Hosts that go, come back, are busy; tasks that end up elsewhere; retried stages with other contents."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from afspark.algorithms import WordCount
from afspark.cluster.cluster import StageFailed
from afspark.errors import InputError, OperatorFailed, WorkerFailed
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, PassiveReplication, Tolerance
from afspark.policies.replication import SCHEMES, ActiveStandby
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Rig, die
from tests.unit.runtime.test_engine_failures import worst

pytestmark = pytest.mark.some(3)


def promised(tolerance: Tolerance) -> float:
    limit = tolerance.promise()
    assert limit is not None
    return limit


paths = pytest.mark.parametrize("keyed", [False, True], ids=["shares", "keyed"])


@paths
def test_a_task_on_the_wrong_host_touches_nothing(make_rig: MakeRig, keyed: bool) -> None:
    rig, truth = make_rig(keyed=keyed)
    rig.go(2)
    rig.hosts.astray = {("reduce" if keyed else "job", 0): "b"}
    rig.go()
    assert rig.hosts.astray == {}
    assert rig.counts() == truth
    assert rig.ledger == []
    assert [member.home for member in rig.members] == ["a", "b"]


@pytest.mark.parametrize(
    ("tolerance", "keyed"), [(MiniBatch(), True), (Approximate(400.0), False)], ids=["minibatch keyed", "approximate"]
)
def test_workers_of_a_host_that_is_gone_move(make_rig: MakeRig, tolerance: Tolerance, keyed: bool) -> None:
    rig, truth = make_rig(tolerance=tolerance, keyed=keyed)
    rig.go(3)
    rig.hosts.slots = {"a": 2}
    rig.go()
    assert [member.home for member in rig.members] == ["a", "a"]
    assert [entry.loss.worker for entry in rig.ledger] == [1]
    assert worst(truth, rig.counts()) <= rig.bound() <= promised(tolerance)


def test_state_on_a_host_that_comes_back_too_late_is_not_used(make_rig: MakeRig) -> None:
    rig, truth = make_rig(tolerance=Approximate(400.0))
    rig.go(3)
    rig.hosts.slots = {"a": 2}
    rig.go(1)
    rig.hosts.slots = {"a": 1, "b": 1}
    rig.start()
    rig.go()
    assert [entry.loss.worker for entry in rig.ledger] == [1]
    assert worst(truth, rig.counts()) <= rig.bound()


def test_a_host_that_comes_back_in_time_loses_nothing(make_rig: MakeRig) -> None:
    rig, truth = make_rig(host_grace_seconds=60.0)
    patience = Patience(rig, then=lambda: rig.hosts.slots.update(b=1), after=0.25)
    rig.go(3)
    rig.hosts.slots = {"a": 1}
    rig.go()
    assert patience.now >= 0.25
    assert rig.counts() == truth
    assert rig.ledger == []


@pytest.mark.parametrize(
    "tolerance", [MiniBatch(), BarrierSnapshot(batches=2), Approximate(400.0)], ids=lambda one: one.name
)
def test_a_host_without_executor_is_waited_for_without_a_scheme(make_rig: MakeRig, tolerance: Any) -> None:
    """Its state comes back with it, and costs no restore."""
    rig, truth = make_rig(host_grace_seconds=60.0, tolerance=tolerance)
    patience = Patience(rig, then=lambda: rig.hosts.slots.update(b=1), after=30.0)
    rig.go(3)
    rig.hosts.slots = {"a": 2}
    rig.go()
    assert patience.now >= 30.0
    assert rig.counts() == truth and rig.ledger == []


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
@pytest.mark.parametrize("silent", [False, True])
def test_no_host_is_waited_for_under_a_scheme(make_rig: MakeRig, scheme: Any, silent: bool) -> None:
    """Not even before its secondaries are built."""
    rig, truth = make_rig(slots={"a": 4, "b": 4}, host_grace_seconds=60.0, tolerance=scheme(batches=2))
    patience = Patience(rig)
    rig.go(1)
    away = rig.run_of().homes[1]
    if silent:
        rig.hosts.silent.add(away)
    else:
        del rig.hosts.slots[away]
    for one in rig.run_of().group.secondaries.members:
        rig.run_of().group.secondaries.gone(one)
    rig.go()
    assert patience.now < 1.0
    assert rig.counts() == truth and rig.bound() == 0
    assert away not in rig.run_of().homes.values()


def test_a_host_is_waited_for_if_there_is_no_other_one(make_rig: MakeRig) -> None:
    rig, truth = make_rig(slots={"a": 4, "b": 4}, host_grace_seconds=60.0, tolerance=PassiveReplication(batches=2))
    slots = dict(rig.hosts.slots)
    patience = Patience(rig, then=lambda: rig.hosts.slots.update(slots), after=5.0)
    rig.go(3)
    rig.hosts.slots.clear()
    rig.go()
    assert patience.now >= 5.0
    assert rig.counts() == truth and rig.ledger == []


@pytest.mark.parametrize("tolerance", [MiniBatch(), Approximate(400.0), PassiveReplication(), ActiveStandby()])
def test_a_query_that_no_host_is_left_for_stops_and_loses_nothing(make_rig: MakeRig, tolerance: Any) -> None:
    rig, truth = make_rig(slots={"a": 4, "b": 4}, tolerance=tolerance, keyed=True)
    rig.go(3)
    slots, rig.hosts.slots = rig.hosts.slots, {}
    with pytest.raises(WorkerFailed):
        rig.go()
    assert rig.ledger == []
    rig.hosts.slots = slots
    rig.start()
    rig.go()
    assert rig.counts() == truth and rig.ledger == []


def test_a_host_that_is_silent_for_a_while_loses_nothing(make_rig: MakeRig) -> None:
    rig, truth = make_rig(host_grace_seconds=60.0)
    patience = Patience(rig, then=rig.hosts.silent.clear, after=0.25)
    rig.go(3)
    rig.hosts.silent.add("b")
    rig.go()
    assert patience.now >= 0.25
    assert rig.counts() == truth
    assert rig.ledger == []


def test_a_sink_that_waited_for_a_silent_host_is_called_again(make_rig: MakeRig) -> None:
    """Nobody has lost anything: the host answers again when the batch is looked at once more."""
    rig, truth = make_rig()
    called: list[int] = []

    def deliver(batch: int) -> None:
        called.append(batch)
        if called == [0, 1]:
            raise StageFailed("b does not answer")

    rig.go(3, deliver)
    assert called == [0, 1, 1, 2]
    rig.go()
    assert rig.counts() == truth and rig.ledger == []


class Patience:
    """The driver's clock: naps take no time but count, and more of them than a hundred seconds are a hang."""

    def __init__(self, rig: Rig, *, then: Callable[[], None] | None = None, after: float = 0.0) -> None:
        self.now, self.then, self.after = 0.0, then, after
        rig.hosts.clock = self

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 100.0, "it waits for ever"
        if self.then is not None and self.now >= self.after:
            self.then()


def test_a_starting_driver_waits_for_the_hosts_of_its_workers(make_rig: MakeRig) -> None:
    """The record names two hosts, and the executor of one of them registers later than the driver starts."""
    rig, truth = make_rig(host_grace_seconds=20.0)
    patience = Patience(rig, then=lambda: rig.hosts.slots.update(b=1), after=19.5)
    rig.go(3)
    assert patience.now == 0.0, "no record, nobody to wait for"
    del rig.hosts.slots["b"]
    rig.start()
    rig.go()
    assert patience.now == pytest.approx(19.5, abs=0.2)
    assert rig.counts() == truth
    assert rig.ledger == []
    assert [member.home for member in rig.members] == ["a", "b"]


def test_a_starting_driver_gives_hosts_up_when_their_grace_ends(make_rig: MakeRig) -> None:
    rig, truth = make_rig(host_grace_seconds=20.0)
    patience = Patience(rig)
    rig.go(3)
    rig.hosts.slots = {"a": 2}
    rig.start()
    rig.go()
    assert patience.now == pytest.approx(20.0, abs=0.2)
    assert rig.counts() == truth
    assert [entry.loss.worker for entry in rig.ledger] == [1]


def test_a_host_that_goes_in_the_middle_of_a_batch_is_waited_for(make_rig: MakeRig) -> None:
    rig, truth = make_rig(tolerance=MiniBatch())
    rig.go(3)

    def leave(kind: str, partition: int, attempt: int) -> None:
        if partition == 1:
            rig.hosts.slots, rig.hosts.before = {"a": 2}, None

    rig.hosts.before = leave
    rig.go()
    assert rig.counts() == truth
    assert [entry.loss.worker for entry in rig.ledger] == [1]


def salted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every process reads other words: none of them is deterministic, each of them is consistent."""
    text = batch.column("value").cast(pa.large_string())
    text = pc.replace_substring_regex(text, r"(\S)\s", rf"\1-{os.getpid()} ")
    return pa.record_batch({"value": text.cast(pa.large_binary())})


def test_a_retried_stage_with_other_contents_is_taken_back_everywhere(make_rig: MakeRig) -> None:
    rig, truth = make_rig(keyed=True, transforms=(salted,))
    rig.hosts.fork()
    lost: list[bool] = []

    def lose_outputs(kind: str, partition: int, attempt: int) -> None:
        if kind == "reduce" and partition == 1 and rig.committed == 2 and not lost:
            lost.append(True)
            rig.hosts.forget_outputs()

    rig.hosts.before = lose_outputs
    rig.go()
    assert lost
    one_reading(rig.counts(), truth)


def one_reading(got: Counter[str], truth: Counter[str]) -> None:
    """Every file was read by one process, of which all words are there, and none of any other reading."""
    readers: dict[str, set[str]] = {}
    totals: Counter[str] = Counter()
    for word, count in got.items():
        base, _, salt = word.partition("-")
        totals[base] += count
        if base.startswith("file"):
            readers.setdefault(base, set()).update(filter(None, [salt]))
    assert totals == truth
    assert all(len(salts) == 1 for salts in readers.values())
    used = set().union(*readers.values())
    assert {word.partition("-")[2] for word in got} <= used | {""}


def took(marker: str) -> bool:
    """Whether the marker was there; of all processes that look only one finds it."""
    try:
        os.unlink(marker)
    except FileNotFoundError:
        return False
    return True


class Half(WordCount):
    """Kills its process in the middle of a batch, once: after the first half of the words is in the state."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = marker

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        middle = items.num_rows // 2
        super().process(items.slice(0, middle), states)
        if took(self.marker):
            die()
        super().process(items.slice(middle), states)

    def fingerprint(self) -> dict[str, object]:
        return {"operator": "half"}


@paths
def test_a_process_killed_in_the_middle_of_a_batch_loses_nothing(
    make_rig: MakeRig, tmp_path: Path, keyed: bool
) -> None:
    marker = tmp_path / "marker"
    rig, truth = make_rig(tolerance=Approximate(10.0), operator=Half(str(marker)), keyed=keyed)
    rig.hosts.fork()
    rig.go(3)
    marker.touch()
    rig.go()
    assert not marker.exists()
    assert rig.counts() == truth
    assert rig.ledger == []


class Raises(WordCount):
    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = marker

    def finish(self, states: Mapping[str, Any]) -> None:
        if os.path.exists(self.marker):
            raise ValueError("user code")

    def fingerprint(self) -> dict[str, object]:
        return {"operator": "raises"}


def test_user_code_that_raises_stops_the_query_and_can_be_mended(make_rig: MakeRig, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    rig, truth = make_rig(operator=Raises(str(marker)))
    rig.go(3)
    marker.touch()
    with pytest.raises(OperatorFailed) as caught:
        rig.go()
    assert caught.value.batch == 3 and "ValueError" in caught.value.trace
    marker.unlink()
    rig.start()
    rig.go()
    assert rig.counts() == truth


@pytest.mark.parametrize(
    ("keyed", "remedy", "bad"),
    [(False, "mended", 12), (False, "removed", 13), (True, "mended", 13), (True, "removed", 12)],
    ids=["first share mended", "second share removed", "second share mended, keyed", "first share removed, keyed"],
)
def test_a_file_that_cannot_be_read_stops_the_query_and_the_rest_counts_once(
    make_rig: MakeRig, keyed: bool, remedy: str, bad: int
) -> None:
    """Workers whose shares were sound have applied the batch already when the query stops."""
    rig, truth = make_rig(keyed=keyed)
    rig.go(3)
    file = rig.root / "input" / f"{bad:04d}.txt"
    content = file.read_text()
    rig.find_input()
    file.write_text(content[:100])
    with pytest.raises(InputError) as caught:
        rig.go()
    assert caught.value.path == str(file)
    if remedy == "mended":
        file.write_text(content)
    else:
        file.unlink()
        for word in content.split():
            truth[word] -= 1
    rig.start()
    rig.go()
    assert rig.counts() == +truth
    assert rig.ledger == []
