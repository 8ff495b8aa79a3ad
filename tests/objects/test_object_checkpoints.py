"""Queries with a checkpoint on a real S3 server, where Spark has no connector: another host goes on exactly."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from afspark.algorithms import WordCount
from afspark.api.inspection import inspect
from afspark.api.savepoints import savepoint_of
from afspark.errors import AnotherDriver, CheckpointError
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Nothing, Tolerance
from afspark.sources import TextFiles
from afspark.store import open_store
from afspark.store.divided_store import whole_checkpoint
from afspark.store.naming import FOLDER
from afspark.store.spark_files import PlannedBatches
from tests.objects.object_rig import ObjectRig
from tests.unit.runtime.conftest import warm_kernels, write_words  # noqa: F401 (a fixture)
from tests.unit.runtime.sparkless import Hosts

pytestmark = pytest.mark.usefixtures("warm_kernels")

BATCHES = 6
EXACT = [MiniBatch(), BarrierSnapshot(batches=2)]
POLICIES: list[Tolerance] = [*EXACT, Approximate(theta=30), Nothing()]


def made(root: Path, address: str, tolerance: Tolerance, **settings: Any) -> tuple[ObjectRig, Counter[str]]:
    truth = write_words(root / "input", 4 * BATCHES)
    source = TextFiles(str(root / "input"), blocks=True)
    given = {"batch_bytes": 1600, "source": source, "operator": WordCount(), "tolerance": tolerance, "workers": 2}
    return ObjectRig(root, Hosts(), address, **given, **settings), truth


def finished(rig: ObjectRig) -> Counter[str]:
    rig.go()
    rig.driver.ready()
    return rig.counts()


@pytest.mark.parametrize("tolerance", POLICIES, ids=lambda one: type(one).__name__)
def test_a_driver_on_another_host_goes_on_with_the_states_of_its_workers(
    tmp_path: Path, address: str, tolerance: Tolerance
) -> None:
    rig, truth = made(tmp_path, address, tolerance)
    rig.go(3)
    rig.on_another_host()
    rig.start()
    assert rig.driver.resumed
    assert finished(rig) == truth
    assert not rig.ledger and rig.bound() == 0


@pytest.mark.parametrize("tolerance", [*EXACT, Approximate(theta=30)], ids=lambda one: type(one).__name__)
def test_a_driver_on_another_host_goes_on_from_the_store_alone(
    tmp_path: Path, address: str, tolerance: Tolerance
) -> None:
    rig, truth = made(tmp_path, address, tolerance)
    rig.go(3)
    rig.on_another_host()
    rig.lose()
    rig.start()
    got = finished(rig)
    worst = max(abs(truth[word] - got[word]) for word in truth | got)
    assert worst <= rig.bound() <= (0 if tolerance in EXACT else 30)


@pytest.mark.parametrize("moment", ["planned", "applied", "committed"])
def test_a_driver_that_is_killed_at_any_moment_of_a_batch_has_lost_nothing(
    tmp_path: Path, address: str, moment: str
) -> None:
    """Another host might plan a batch otherwise: what workers have applied is what the store knows of it."""
    rig, truth = made(tmp_path, address, MiniBatch())
    rig.go(2)
    if moment == "planned":
        assert rig._plan(2)
    elif moment == "applied":
        with pytest.raises(RuntimeError, match="killed"):
            rig.go(1, deliver=killed)
    rig.on_another_host()
    # Another host would plan batches of other sizes, if it were free to.
    rig.start(batch_bytes=3200)
    assert finished(rig) == truth
    assert not rig.ledger


def killed(batch: int) -> None:
    raise RuntimeError("killed")


def test_after_an_orderly_end_no_batch_runs_again(tmp_path: Path, address: str) -> None:
    rig, truth = made(tmp_path, address, MiniBatch())
    rig.go(3)
    rig.stop()
    rig.on_another_host()
    rig.start()
    assert finished(rig) == truth
    assert rig.delivered == list(range(BATCHES))


def test_a_driver_that_was_superseded_changes_nothing(tmp_path: Path, address: str) -> None:
    rig, truth = made(tmp_path, address, MiniBatch())
    rig.go(2)
    older, its_copies, its_folder = rig.driver, rig.copies, rig.checkpoint
    assert its_copies is not None
    rig.on_another_host()
    rig.start()
    rig.go(2)
    # The older one wakes up, and Spark has planned something else for the batch there.
    planned = (rig.checkpoint / "offsets" / "2").read_text()
    other = re.sub(r'"chunks": \d+', '"chunks": 9', planned)
    assert other != planned
    (its_folder / "offsets" / "2").write_text(other)
    its_copies.keep(2)
    with pytest.raises(AnotherDriver):
        older.run(2, None, lambda batch: None)
    rig.on_another_host()
    rig.start()
    assert (rig.checkpoint / "offsets" / "2").read_text() == planned
    assert finished(rig) == truth


def test_what_belongs_to_the_last_batch_must_be_readable(tmp_path: Path, address: str) -> None:
    rig, _ = made(tmp_path, address, MiniBatch())
    rig.go(2)
    store = open_store(address).below(FOLDER)
    newest = PlannedBatches(store).entries()[-1].name
    store.put(newest, store.get(newest)[:-1])
    rig.on_another_host()
    with pytest.raises(CheckpointError) as refused:
        rig.start()
    assert refused.value.batch == 1


@pytest.mark.parametrize("tolerance", POLICIES, ids=lambda one: type(one).__name__)
def test_a_batch_takes_few_requests_and_no_listing(tmp_path: Path, address: str, tolerance: Tolerance) -> None:
    rig, _ = made(tmp_path, address, tolerance, record_seconds=0.0)
    rig.go()
    assert len(rig.progress) == BATCHES
    # The first batches open the query and tidy up.
    steady = [one.requests for one in rig.progress[2:]]
    assert all(one["lists"] == 0 for one in steady)
    # What Spark has planned; a record and what its batches have done; and backups, which may become durable later.
    most = 1 if isinstance(tolerance, Nothing) else 3
    backups = sum(one.backups["count"] for one in rig.progress[1:])
    assert sum(one["puts"] for one in steady) <= most * len(steady) + backups
    assert all(one["gets"] <= 3 for one in steady)


def test_the_copy_is_tidied_up(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afspark.store.batch_log._SLACK", 2)
    rig, truth = made(tmp_path, address, MiniBatch())
    rig.go(4)
    for name in ("0", "1", "2"):
        os.unlink(rig.checkpoint / "offsets" / name)
    got = finished(rig)
    assert got == truth
    kept = {entry.batch for entry in PlannedBatches(open_store(address).below(FOLDER)).entries()}
    assert min(kept) == 3 and max(kept) == BATCHES - 1


def test_what_looks_into_a_checkpoint_sees_all_of_it(tmp_path: Path, address: str) -> None:
    rig, _ = made(tmp_path, address, MiniBatch())
    rig.go(4)
    rig.stop()
    found = inspect(address, verify=True)
    assert (found.batch, found.spark_batch) == (3, 3) and not found.damaged
    assert "secret" not in found.path
    place, savepoint = savepoint_of(address, "before")
    assert savepoint.batch == 3
    assert [one.name for one in inspect(address).savepoints] == ["before"]
    assert open_store(place).has("offsets/3")
    assert whole_checkpoint(open_store(address)).list("commits")[-1] == "commits/3"
