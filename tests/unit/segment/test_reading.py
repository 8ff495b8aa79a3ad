"""What workers keep is read from the incarnation the driver knows, never from one that was declared lost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from afspark.cluster.local.local_environment import LocalEnvironment
from afspark.errors import SegmentError
from afspark.protocol.fault_plan import FaultPlan
from afspark.protocol.lifecycle import Identity
from afspark.protocol.operator_config import OperatorConfig
from afspark.resident import Segment, SegmentRoot, process_cache
from afspark.resident.residents import Residents, kept_by, state_of
from afspark.store import open_store

HERE = LocalEnvironment(name="a")


@pytest.fixture
def config(tmp_path: Path) -> Iterator[OperatorConfig]:
    yield OperatorConfig(
        query_id="q",
        fingerprint="f",
        operator_name="count",
        workers=2,
        checkpoint="",
        store=open_store(str(tmp_path / "store")),
        epoch="e",
        segments=str(tmp_path / "segments"),
        emit=False,
        faults=FaultPlan(),
    )
    process_cache().clear()


def make_segment(config: OperatorConfig, identity: Identity, incarnation: int, rows: bytes) -> None:
    """A segment of worker 0 that keeps ``rows`` of batch 0."""
    place = SegmentRoot(config.segments, "a").directory(config.query_id, config.operator_name, 0)
    segment = Segment.create(place, identity, incarnation)
    with segment.lock(1.0):
        segment.begin(0)
        segment.keep(0, "rows", rows)
        segment.finish(0, b"r")
    segment.close()


@pytest.mark.parametrize("known", [0, 2], ids=["a later one is here", "an earlier one is here"])
def test_only_the_incarnation_that_the_driver_knows_is_read(
    config: OperatorConfig, identity: Identity, known: int
) -> None:
    """A host that was away comes back with the segment of a worker that lives elsewhere by now."""
    make_segment(config, identity, 1, b"mine")
    assert kept_by(HERE, Residents(config, {0: 1, 1: 0}), 0, 0, "rows") == b"mine"
    for read in (partial(state_of, HERE), lambda residents, worker: kept_by(HERE, residents, worker, 0, "rows")):
        with pytest.raises(SegmentError) as caught:
            read(Residents(config, {0: known, 1: 0}), 0)
        assert (caught.value.worker, caught.value.host) == (0, "a")


def test_a_segment_held_open_is_not_read_once_a_later_one_replaced_it(
    config: OperatorConfig, identity: Identity
) -> None:
    make_segment(config, identity, 0, b"old")
    first, second = Residents(config, {0: 0, 1: 0}), Residents(config, {0: 1, 1: 0})
    assert kept_by(HERE, first, 0, 0, "rows") == b"old"
    make_segment(config, identity, 1, b"new")
    assert kept_by(HERE, second, 0, 0, "rows") == b"new"
    with pytest.raises(SegmentError):
        kept_by(HERE, first, 0, 0, "rows")


def test_a_worker_without_a_segment_here(config: OperatorConfig) -> None:
    with pytest.raises(SegmentError) as caught:
        state_of(HERE, Residents(config, {0: 0, 1: 0}), 1)
    assert (caught.value.worker, caught.value.host) == (1, "a")
