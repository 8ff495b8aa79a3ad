"""Whatever fails, in whatever order: exact stays exact, and approximate stays inside what it promised."""

from __future__ import annotations

import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from afspark.cluster.local.processes import forked
from afspark.policies import Approximate, MiniBatch, Tolerance
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from afspark.sources import TextFiles
from afspark.store import RecordLog
from tests.unit.runtime.conftest import warm, write_words
from tests.unit.runtime.sparkless import Hosts, Rig, die
from tests.unit.runtime.test_engine_placement import Half

BATCHES = 5

workers = st.sets(st.integers(0, 1), min_size=1)
Event = tuple[str, Any]
event = st.one_of(
    st.tuples(st.just("quiet"), st.none()),
    st.tuples(st.just("fail"), st.sampled_from(FaultPhase)),
    st.tuples(st.just("lose"), workers),
    st.tuples(st.just("kill"), st.none()),
    st.tuples(st.just("move"), st.sampled_from([{"a": 2}, {"b": 2}, {"a": 1, "b": 1}])),
    st.tuples(st.just("driver"), st.tuples(st.sampled_from(["deliver", "before", "after"]), st.booleans())),
)
histories = st.lists(event, min_size=1, max_size=BATCHES)
tolerances = st.sampled_from([MiniBatch(), Approximate(60.0), Approximate(300.0)])


@pytest.fixture(scope="module", autouse=True)
def warm_kernels(tmp_path_factory: pytest.TempPathFactory) -> None:
    warm(tmp_path_factory.mktemp("warm"))


@settings(max_examples=(settings.default or settings()).max_examples // 16)  # each takes a second
@given(history=histories, tolerance=tolerances, keyed=st.booleans())
@example(
    history=[("quiet", None), ("fail", FaultPhase.COMMITTED), ("driver", ("after", False)), ("lose", {0, 1})],
    tolerance=MiniBatch(),
    keyed=False,
)
@example(
    history=[("quiet", None), ("kill", None), ("lose", {0}), ("driver", ("before", True)), ("lose", {1})],
    tolerance=Approximate(300.0),
    keyed=True,
)
def test_the_promise_holds(history: list[Event], tolerance: Tolerance, keyed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        truth = write_words(root / "input", 4 * (BATCHES + 1))
        rig = Rig(
            root,
            Hosts({"a": 1, "b": 1}, processes=forked),
            source=TextFiles(str(root / "input"), blocks=True),
            operator=Half(str(root / "marker")),
            tolerance=tolerance,
            workers=2,
            keyed=keyed,
            batch_bytes=1600,
            faults=plan_of(history),
        )
        for kind, detail in history:
            happen(rig, kind, detail)
        rig.go()
        check(rig, truth, tolerance)


def plan_of(history: list[Event]) -> FaultPlan:
    failures = (InjectedFailure(batch, detail) for batch, (kind, detail) in enumerate(history) if kind == "fail")
    return FaultPlan(frozenset(failures), "drawn")


def happen(rig: Rig, kind: str, detail: Any) -> None:
    """One batch, with what comes before it or in its middle."""
    if kind == "lose":
        for worker in detail & {worker for _, worker in rig.segment_folders()}:
            rig.lose(worker)
    elif kind == "kill":
        (rig.root / "marker").touch()
    elif kind == "move":
        rig.hosts.slots = dict(detail)
    elif kind == "driver":
        moment, with_state = detail
        rig.drive_and_die(partial(drive, rig, moment))
        if with_state and rig.segment_folders():
            rig.lose()
        rig.start()
    rig.go(1)


def drive(rig: Rig, moment: str) -> None:
    real = RecordLog.write

    def write(log: RecordLog, record: Any) -> None:
        if moment == "before":
            die()
        real(log, record)
        die()

    pytest.MonkeyPatch().setattr(RecordLog, "write", write)  # in a process that ends
    rig.go(1, deliver=(lambda batch: die()) if moment == "deliver" else None)


def check(rig: Rig, truth: Counter[str], tolerance: Tolerance) -> None:
    got = rig.counts()
    error = max(abs(truth[word] - got[word]) for word in truth | got)
    promised = tolerance.promise()
    assert promised is not None
    assert error <= rig.bound() <= promised
    assert all(entry.recovery is None or entry.recovery.covered for entry in rig.ledger)
    assert error == 0 or any(entry.loss.counted for entry in rig.ledger)
