"""A worker's task on a segment of its own: who may work on it, and what its operator may send."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.model.operator import Operator
from afspark.model.states import Numeric, StateSpec
from afspark.policies import ThresholdBackup
from afspark.protocol.fault_plan import FaultPhase, FaultPlan
from afspark.protocol.lifecycle import RESTORING, Hint, Present
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import Packet
from afspark.protocol.ports import feedback_for
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident import SegmentAddress, process_cache
from afspark.store import open_store
from afspark.task.feed import Feed
from afspark.task.ingest import GivenPackets, Ingest
from tests.unit.runtime.environments import attend


class Sum(Operator):
    """Adds up numbers, and sends them back to ``to`` if there is one."""

    def __init__(self, to: str = "") -> None:
        self.to = to

    def states(self) -> Mapping[str, StateSpec]:
        return {"sum": Numeric()}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["sum"].add(sum(items.column("n").to_pylist()))
        if self.to:
            self.context.outbox.feed_back(items, to=self.to)


Attend = Callable[..., TaskReport]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "segments" / "q" / "sum-0"


@pytest.fixture
def task(tmp_path: Path, place: Path) -> Iterator[Attend]:
    """Runs a task of worker 0 for batch 1, which brings the numbers 1 to 3."""
    config = OperatorConfig(
        query_id="q",
        fingerprint="f",
        operator_name="sum",
        workers=1,
        checkpoint="",
        store=open_store(str(tmp_path / "store")),
        epoch="00000001-0123456789abcdef",
        segments=None,
        emit=False,
        faults=FaultPlan(),
        feeds_back=("gate",),
    )

    def run(
        hint: Hint,
        *,
        fence: int,
        operator: Operator | None = None,
        address: SegmentAddress | None = None,
        probe: Callable[[FaultPhase], None] = lambda phase: None,
        theta: float = 0.0,
    ) -> TaskReport:
        request = TaskRequest(
            worker=0,
            batch=1,
            incarnation=1,
            hint=hint,
            fence=fence,
            home="a",
            backup=ThresholdBackup(theta={"sum": theta}),
            missing={"sum": 0.0},
        )
        feed = Feed([("", Ingest(GivenPackets([Packet(pa.record_batch({"n": [1, 2, 3]}))]), ()))])
        return attend(config, request, operator or Sum(), feed, address or SegmentAddress(place), "a", probe)

    yield run
    process_cache().clear()


def found(place: Path) -> Present:
    present = SegmentAddress(place).examine()
    assert isinstance(present, Present)
    return present


class Slow(SegmentAddress):
    """The task that has put its state in place is held up before it comes to work on it."""

    def open(self) -> None:
        return None


hints = pytest.mark.parametrize("hint", [Hint.CREATE, Hint.RECOVER], ids=["created", "recovered"])


@hints
def test_new_state_is_closed_to_tasks_with_a_lower_fence(task: Attend, place: Path, hint: Hint) -> None:
    assert task(hint, fence=7, address=Slow(place)).status is Status.BUSY
    before = found(place)
    assert (before.fence, before.version) == (7, 0)
    zombie = task(hint, fence=3)
    assert (zombie.status, zombie.detail) == (Status.CONTRADICTORY, "superseded")
    assert found(place) == before
    assert task(hint, fence=7).status is Status.APPLIED


class Died(BaseException):
    """Nobody handles it."""


def test_a_zombie_does_not_finish_a_recovery_that_was_interrupted(task: Attend, place: Path) -> None:
    """The fence is there before the state is whole, so that nobody older builds it anew."""

    def die(phase: FaultPhase) -> None:
        if phase is FaultPhase.RECOVERING:
            raise Died

    with pytest.raises(Died):
        task(Hint.RECOVER, fence=7, probe=die)
    before = found(place)
    assert (before.fence, before.version) == (7, RESTORING)
    assert task(Hint.RECOVER, fence=3).detail == "superseded"
    assert found(place) == before
    assert task(Hint.RECOVER, fence=8).status is Status.APPLIED


def test_feedback_that_was_announced_is_kept(task: Attend, place: Path) -> None:
    report = task(Hint.CREATE, fence=0, operator=Sum(to="gate"))
    assert (report.status, report.fed_back) == (Status.APPLIED, {"gate": 3})
    assert list(report.produced) == [feedback_for("gate")]


def test_feedback_that_was_not_announced_is_refused_and_leaves_nothing(task: Attend, place: Path) -> None:
    """Nobody would read it, and no backup would hold it."""
    report = task(Hint.CREATE, fence=0, operator=Sum(to="other"))
    assert report.status is Status.FAILED and isinstance(report.error, UsageError)
    assert (found(place).version, found(place).marked) == (0, False)
    assert task(Hint.CREATE, fence=0, theta=10.0).drift == {"sum": 6.0}
