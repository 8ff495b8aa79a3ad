"""Decaying windows by event time: any finite time will do, whoever dies meanwhile."""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from afspark.bounds import Place
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.model.operator import Operator
from afspark.model.states import HashTable, StateSpec
from afspark.model.windows import Decaying, WindowProgress
from afspark.policies import Approximate, MiniBatch, Nothing, ThresholdBackup, Tolerance
from afspark.protocol.batch_times import BatchTime
from afspark.protocol.fault_plan import FaultPhase, FaultPlan
from afspark.protocol.lifecycle import Hint
from afspark.protocol.losses import LossEvidence
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident import SegmentAddress, process_cache
from afspark.resident.residents import Residents, state_of
from afspark.sources import Source, TextFiles
from afspark.store import open_store
from afspark.task.ingest import GivenPackets, Ingest
from afspark.task.intake import Intake
from afspark.task.lane_feed import LaneFeed
from afspark.task.pane_states import PaneStates
from afspark.task.task_environment import TaskEnvironment
from tests.unit.runtime.environments import LaneClock, attend
from tests.unit.runtime.sparkless import Hosts, Rig
from tests.unit.runtime.test_steps import A, Died, FakeLane

pytestmark = pytest.mark.usefixtures("warm_kernels")

EPOCH = 1_700_000_000.0
WINDOW = Decaying(0.5, 1, column="t")


class Sum(Operator):
    """Adds one for every item, to a number that fades."""

    alpha = 1.0

    def states(self) -> Mapping[str, StateSpec]:
        return {"n": HashTable(key="int64", value="float64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["n"].add(pa.array([0] * items.num_rows), 1.0)


def times(lines: pa.RecordBatch) -> pa.RecordBatch:
    words = pc.list_flatten(
        pc.utf8_split_whitespace(pc.utf8_trim_whitespace(lines.column("value").cast(pa.large_string())))
    )
    return pa.record_batch({"t": words.cast(pa.float64())})


@dataclass
class Stream:
    """A rig whose batches bring items of given times, and what they add up to."""

    rig: Rig
    batches: list[list[float]]

    def truth(self, tick: int) -> float:
        taken = [one for batch in self.batches[: self.rig.committed + 1] for one in batch if math.isfinite(one)]
        return math.fsum(0.5 ** min(tick - math.floor(one), 10**6) for one in taken)

    def shown(self, tick: int) -> float:
        return math.fsum(self.rig._everywhere(None, partial(_read, tick)))

    def check(self) -> float:
        """Observed ≤ told, and both of them numbers; how much is missing."""
        tick = self.rig.run_of().latest_tick
        assert tick == max(math.floor(one) for one in self.batches[self.rig.committed] if math.isfinite(one))
        missing, bound = self.truth(tick) - self.shown(tick), self.rig.bound()
        assert math.isfinite(bound) and abs(missing) <= bound + 1e-9
        return missing


def _read(tick: int, residents: Residents, here: TaskEnvironment, worker: int) -> float:
    columns = state_of(here, residents, worker).columns
    cells = PaneStates(columns, Sum().states(), paned=False, decaying=WINDOW).at(tick)["n"].export()
    return float(pc.sum(cells.column("value")).as_py() or 0.0)


def make(root: Path, tolerance: Tolerance, batches: list[list[float]]) -> Stream:
    (root / "input").mkdir()
    for batch, items in enumerate(batches):
        # Four files a batch, two for each of two workers.
        for part in range(4):
            text = " ".join(map(repr, items[part::4]))
            (root / "input" / f"{batch:04d}-{part}.txt").write_text(text.ljust(799) + "\n")

    def pipeline(source: Source) -> Pipeline:
        edge = Edge(SOURCE, (times,))
        node = Node(name="sum", operator=Sum(), inputs=(edge,), workers=2, window=WINDOW, tolerance=tolerance)
        return Pipeline(sources={SOURCE: source}, nodes=(node,))

    source = TextFiles(str(root / "input"), blocks=True)
    rig = Rig(root, Hosts({"a": 1, "b": 1}), pipeline=pipeline(source), batch_bytes=3200)
    return Stream(rig, batches)


def second(start: float, number: int = 40) -> list[float]:
    """Items of the twenty seconds from ``start`` on."""
    return [start + 20 * place / number for place in range(number)]


STREAMS = {
    "continuous": [second(0), second(20), second(40)],
    "gaps of minutes and years": [second(0), second(1040), second(2300), second(EPOCH)],
    "epoch from the first batch on": [second(EPOCH), second(EPOCH + 20), second(EPOCH + 4000)],
    "before the epoch": [second(-EPOCH), second(-30), second(-3)],
    "late by years": [second(EPOCH), [*second(EPOCH + 20), 5.0, -1e12], [*second(EPOCH + 40), EPOCH + 1]],
    "all of it in one batch": [[-1e9, *second(0), *second(700), *second(1e6), *second(EPOCH)], second(EPOCH + 20)],
    "no times": [[math.nan, *second(EPOCH)], [math.inf, *second(EPOCH + 20), -math.inf]],
}


@pytest.mark.parametrize("name", STREAMS)
def test_any_finite_time_will_do(name: str, tmp_path: Path) -> None:
    tolerance = Nothing() if name.startswith("gaps") else Approximate(16.0)
    stream = make(tmp_path, tolerance, STREAMS[name])
    for _ in stream.batches:
        stream.rig.go(1)
        assert stream.check() == pytest.approx(0.0, abs=1e-9)
    assert stream.rig.committed == len(stream.batches) - 1
    assert stream.rig.run_of().counters.unplaced == sum(not math.isfinite(t) for batch in stream.batches for t in batch)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        *((name, Approximate(16.0)) for name in STREAMS if name != "no times"),
        ("gaps of minutes and years", MiniBatch()),
    ],
)
def test_lost_states_stay_inside_what_is_told(name: str, tolerance: Tolerance, tmp_path: Path) -> None:
    """All state is lost after every batch, and every second time the driver with it."""
    stream = make(tmp_path, tolerance, STREAMS[name])
    lost = 0.0
    for number in range(len(stream.batches)):
        if number:
            stream.rig.lose()
            if number % 2:
                stream.rig.engine = None
        stream.rig.go(1)
        lost = max(lost, stream.check())
    assert len(stream.rig.ledger) == 2 * (len(stream.batches) - 1)
    if isinstance(tolerance, MiniBatch):
        assert lost == pytest.approx(0.0, abs=1e-9)
    elif name == "continuous":
        assert lost > 0


def test_a_backup_in_older_units_is_not_taken_for_one_in_newer(tmp_path: Path) -> None:
    """Ten are durable for each worker and have faded away; as ten of today they would make sixteen near enough."""
    stream = make(tmp_path, Approximate(16.0), [[0.0] * 20, [1000.0] * 32, [1001.0] * 4])
    stream.rig.go(2)
    stream.rig.lose()
    stream.rig.go(1)
    assert 0 < stream.check() <= stream.rig.bound() == 8.0


def test_a_tick_that_has_ended_is_shown_as_it_is_now(tmp_path: Path) -> None:
    """In units of a tick long ago the newest items would weigh more than any number can express."""
    stream = make(tmp_path, MiniBatch(), [second(0), second(EPOCH), second(EPOCH + 20)])
    stream.rig.go(2)
    before = stream.shown(math.floor(EPOCH) + 19)
    stream.rig.go(1)
    shares = stream.rig.windows(2)
    ended = {name[0] for share in shares for name in share}
    assert ended == {19, *range(math.floor(EPOCH), math.floor(EPOCH) + 19)}
    for tick in ended:
        assert sum(cells.get(0, 0.0) for share in shares for name, cells in share.items() if name[0] == tick) == before


# --- pushed items, in steps ---------------------------------------------------------------------------------


@dataclass
class Pushed:
    """One worker whose items come from a lane; their numbers are their times."""

    root: Path
    theta: float = 4.0

    def run(self, lane: FakeLane, *, die_after: int | None = None, **changes: Any) -> TaskReport:
        request = TaskRequest(
            worker=0,
            batch=1,
            incarnation=1,
            hint=Hint.CREATE,
            fence=0,
            home="a",
            backup=ThresholdBackup(theta={"n": self.theta}),
            batch_time=BatchTime(window_progress=WindowProgress(latest=0.0)),
        )
        steps = 0

        def probe(phase: FaultPhase) -> None:
            nonlocal steps
            if phase is FaultPhase.BACKING_UP:
                steps += 1
                # So that its items are confirmed with the next pull.
                for thread in threading.enumerate():
                    if thread.name == "afspark-backup":
                        thread.join()
            if steps == die_after and phase is FaultPhase.APPLYING:
                raise Died

        feed = LaneFeed("", Intake(lane, seconds=3, clock=LaneClock(lane)), _ingest, start={})
        try:
            return attend(self.config, replace(request, **changes), Sum(), feed, self.address, "a", probe)
        finally:
            process_cache().clear()

    @property
    def config(self) -> OperatorConfig:
        return OperatorConfig(
            query_id="q",
            fingerprint="f",
            operator_name="sum",
            workers=1,
            checkpoint="",
            store=open_store(str(self.root / "store")),
            epoch="00000001-0123456789abcdef",
            segments=None,
            emit=False,
            faults=FaultPlan(),
            window=replace(WINDOW, column="n"),
            pushed=True,
        )

    @property
    def address(self) -> SegmentAddress:
        return SegmentAddress(self.root / "segments" / "q" / "sum-0")

    def shown(self, tick: int) -> float:
        segment = self.address.open()
        assert segment is not None
        panes = PaneStates(segment.columns, Sum().states(), paned=False, decaying=WINDOW)
        return float(panes.at(tick)["n"].get([0])[0])


def _ingest(packets: Any) -> Ingest:
    return Ingest(GivenPackets(packets), ())


@pytest.fixture
def pushed(tmp_path: Path) -> Iterator[Pushed]:
    yield Pushed(tmp_path)
    process_cache().clear()


@pytest.mark.parametrize("ticks", [range(1, 12), range(1, 6000, 997), range(17 * 10**8, 17 * 10**8 + 5)], ids=repr)
def test_steps_move_on_to_any_time(pushed: Pushed, ticks: range) -> None:
    report = pushed.run(FakeLane([[tick] * 3 for tick in ticks]))
    assert report.status is Status.APPLIED and report.positions == {A: 3 * len(ticks)}
    assert pushed.shown(ticks[-1]) == pytest.approx(sum(3 * 0.5 ** (ticks[-1] - tick) for tick in ticks))


@pytest.mark.parametrize("ticks", [range(1, 12), range(1, 6000, 997)], ids=repr)
@pytest.mark.parametrize("steps", [1, 2, 3, 4])
@pytest.mark.parametrize("items", [1, 3])
@pytest.mark.parametrize("known", [True, False], ids=["after a batch", "in the first"])
def test_what_steps_lose_is_counted_at_the_tick_they_had_reached(
    pushed: Pushed, ticks: range, steps: int, items: int, known: bool
) -> None:
    """A driver that counts a loss at the last tick it knows of hears of later ones from whoever restores the state."""
    lane = FakeLane([[tick] * items for tick in ticks])
    batch_time = BatchTime(window_progress=WindowProgress(latest=0.0)) if known else BatchTime()
    budget = ErrorBudget(
        tolerance=Approximate(pushed.theta), states=Sum().states(), place=Place(workers=1), window=pushed.config.window
    )
    with pytest.raises(Died):
        pushed.run(lane, die_after=steps, batch_time=batch_time, counts=known)
    shutil.rmtree(pushed.address.directory)
    counted_failures = [budget.count_failure([], batch_time, LossEvidence(1))] if known else []
    for incarnation in range(2, 5):
        counted = budget.counted(counted_failures)
        report = pushed.run(lane, hint=Hint.RECOVER, incarnation=incarnation, batch_time=batch_time, counted=counted)
        if report.trace is None:
            break
        counted_failures.append(budget.count_failure(counted_failures, batch_time, report.trace))
    assert report.status is Status.APPLIED and report.positions == {A: items * len(ticks)}
    newest = ticks[-1]
    missing = sum(items * 0.5 ** (newest - tick) for tick in ticks) - pushed.shown(newest)
    told = budget.missing(counted_failures, newest)["n"]
    assert abs(missing) <= told + 1e-12
    # One failure, counted once: at the newest tick that anybody knows of it.
    assert told == pytest.approx(pushed.theta * 0.5 ** (newest - max(failure.tick for failure in counted_failures)))
