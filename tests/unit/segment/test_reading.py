"""What workers keep is read from the incarnation the driver knows, never from one that was declared lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from afspark.errors import SegmentError
from afspark.runtime.faults import FaultPlan
from afspark.runtime.host import HOST_VARIABLE
from afspark.runtime.lifecycle import Identity
from afspark.runtime.orders import Mission
from afspark.runtime.segment import Segment, SegmentRoot, process_cache
from afspark.runtime.segment.reading import Residents, kept_by, segment_of
from afspark.store import open_store


@pytest.fixture
def mission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mission]:
    monkeypatch.setenv(HOST_VARIABLE, "a")
    yield Mission(
        query_id="q",
        fingerprint="f",
        operator_name="count",
        workers=2,
        checkpoint="",
        store=open_store(str(tmp_path / "store")),
        epoch="e",
        driver_host="driver",
        segments=str(tmp_path / "segments"),
        emit=False,
        faults=FaultPlan(),
    )
    process_cache().clear()


def settle(mission: Mission, identity: Identity, incarnation: int, rows: bytes) -> None:
    """A segment of worker 0 that keeps ``rows`` of batch 0."""
    place = SegmentRoot(mission.segments, "a").directory(mission.query_id, mission.operator_name, 0)
    segment = Segment.create(place, identity, incarnation)
    with segment.lock(1.0):
        segment.begin(0)
        segment.keep(0, "rows", rows)
        segment.finish(0, b"r")
    segment.close()


@pytest.mark.parametrize("known", [0, 2], ids=["a later one is here", "an earlier one is here"])
def test_only_the_incarnation_that_the_driver_knows_is_read(mission: Mission, identity: Identity, known: int) -> None:
    """A host that was away comes back with the segment of a worker that lives elsewhere by now."""
    settle(mission, identity, 1, b"mine")
    assert kept_by(Residents(mission, (1, 0)), 0, 0, "rows") == b"mine"
    for read in (segment_of, lambda residents, worker: kept_by(residents, worker, 0, "rows")):
        with pytest.raises(SegmentError) as caught:
            read(Residents(mission, (known, 0)), 0)
        assert (caught.value.worker, caught.value.host) == (0, "a")


def test_a_segment_held_open_is_not_read_once_a_later_one_replaced_it(mission: Mission, identity: Identity) -> None:
    settle(mission, identity, 0, b"old")
    first, second = Residents(mission, (0, 0)), Residents(mission, (1, 0))
    assert kept_by(first, 0, 0, "rows") == b"old"
    settle(mission, identity, 1, b"new")
    assert kept_by(second, 0, 0, "rows") == b"new"
    with pytest.raises(SegmentError):
        kept_by(first, 0, 0, "rows")


def test_a_worker_without_a_segment_here(mission: Mission) -> None:
    with pytest.raises(SegmentError) as caught:
        segment_of(Residents(mission, (0, 0)), 1)
    assert (caught.value.worker, caught.value.host) == (1, "a")
