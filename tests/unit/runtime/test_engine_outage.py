"""A checkpoint that goes away or runs full while the query works on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from unittest import mock

import pytest

from afspark.errors import CheckpointError, StoreAway, StoreFull
from afspark.numbers import Batch
from afspark.policies import MiniBatch
from afspark.protocol.operator_config import OperatorConfig
from afspark.resident.open_folder import OpenFolder
from afspark.resident.spool import upload
from afspark.task.task_environment import SegmentEnvironment
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig

BATCH = 2


def test_a_checkpoint_that_is_away_for_a_moment_is_waited_for(make_rig: MakeRig) -> None:
    rig, truth = make_rig()
    away = rig.root / "away"
    returning = []

    def move(batch: int) -> None:
        if batch == BATCH:
            rig.checkpoint.rename(away)
            returning.append(threading.Timer(0.5, away.rename, [rig.checkpoint]))
            returning[0].start()

    rig.go(deliver=move)
    assert returning and not away.exists()
    rig.lose()
    rig.start()
    rig.go()
    rig.driver.ready()
    assert rig.counts() == truth


@pytest.mark.parametrize("killed", [False, True])
def test_what_spark_has_planned_while_the_checkpoint_was_away_is_put_back(make_rig: MakeRig, killed: bool) -> None:
    """A mount is gone: Spark makes the folder anew and writes there, which nobody sees once the mount is back."""
    rig, truth = make_rig(max_replay_seconds=1000.0)
    away, plan = rig.root / "away", f"offsets/{BATCH}"
    rig.go(BATCH)
    assert rig._plan(BATCH)
    rig.checkpoint.rename(away)
    (rig.checkpoint / "offsets").mkdir(parents=True)
    (away / plan).rename(rig.checkpoint / plan)

    def come_back() -> None:
        shutil.rmtree(rig.checkpoint)
        away.rename(rig.checkpoint)

    threading.Timer(0.5, come_back).start()
    rig.driver.run(Batch(BATCH), None, rig.delivered.append)
    assert (rig.checkpoint / plan).exists()
    (rig.checkpoint / "commits" / str(BATCH)).write_text("v1\n{}")
    if killed:
        rig.start()
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0 and rig.ledger == []


def test_a_batch_whose_plan_is_gone_can_be_planned_anew(make_rig: MakeRig) -> None:
    """Nobody has read what Spark wrote elsewhere before the checkpoint was back."""
    rig, truth = make_rig()
    rig.go(BATCH)
    with pytest.raises(CheckpointError) as caught:
        rig.driver.run(Batch(BATCH), None, rig.delivered.append)
    assert caught.value.batch == BATCH and "new one" not in str(caught.value)
    rig.start()
    rig.go()
    assert rig.counts() == truth and rig.ledger == []


@pytest.mark.parametrize("who", ["driver", "workers"])
def test_a_checkpoint_that_stays_away_stops_the_query_and_is_not_made_anew(make_rig: MakeRig, who: str) -> None:
    rig, truth = make_rig(store_wait_seconds=0.3)
    away = rig.root / "away"
    rig.go(BATCH)

    def move(*_: object) -> None:
        if rig.checkpoint.exists():
            rig.checkpoint.rename(away)

    if who == "workers":
        rig.hosts.before = lambda kind, partition, attempt: move() if kind == "job" else None
    with pytest.raises(StoreAway):
        rig.go(1, deliver=move)
    assert not rig.checkpoint.exists()
    rig.hosts.before = None
    away.rename(rig.checkpoint)
    rig.start()
    rig.go()
    assert rig.counts() == truth
    assert rig.ledger == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system can be mounted by root only")
    yield place
    # States that were opened stay mapped for as long as this process lives.
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(ballast: Path) -> None:
    """Leaves no room in the file system."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk_is_called_that_and_costs_nothing(make_rig: MakeRig, small_disk: Path) -> None:
    rig, truth = make_rig()
    rig.checkpoint = small_disk / "checkpoint"
    ballast = small_disk / "ballast"

    with pytest.raises(StoreFull) as caught:
        rig.go(deliver=lambda batch: fill(ballast) if batch == BATCH else None)
    assert (caught.value.path, caught.value.free) == (str(rig.checkpoint), 0)
    assert "ermission" not in str(caught.value)
    os.unlink(ballast)
    rig.lose()
    rig.start()
    rig.go()
    assert rig.counts() == truth
    assert all(entry.recovery is not None and entry.recovery.covered for entry in rig.ledger)


def test_a_batch_waits_for_the_store_if_backups_take_the_room_that_it_needs(
    make_rig: MakeRig, small_disk: Path
) -> None:
    one = LaggingRig(make_rig, Lag.BACKUPS, batches=8, tolerance=MiniBatch())
    rig = one.rig
    rig.segments = small_disk / "segments"
    rig.go(4)
    assert list(rig.segments.rglob("spool-*"))
    fill(small_disk / "ballast")
    rig.go(1)
    os.unlink(small_disk / "ballast")
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0 and rig.ledger == []


def test_a_batch_waits_for_the_store_if_backups_of_others_take_the_room_that_it_needs(
    make_rig: MakeRig, small_disk: Path
) -> None:
    one = LaggingRig(make_rig, Lag.BACKUPS, batches=8, tolerance=MiniBatch(), hosts={"slots": {"host": 2}})
    rig = one.rig
    rig.segments = small_disk / "segments"
    rig.go(4)
    (run,) = rig.driver.runs
    # Worker 0 has nothing of its own that could make room.
    upload(next(rig.segments.rglob("*-0")), run.config.store)
    assert list(rig.segments.rglob("*-1/spool-*")) and not list(rig.segments.rglob("*-0/spool-*"))
    fill(small_disk / "ballast")
    rig.go(1)
    os.unlink(small_disk / "ballast")
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0 and rig.ledger == []


def test_a_batch_is_applied_once_more_if_room_was_made_when_nobody_looked(make_rig: MakeRig, small_disk: Path) -> None:
    """Backups may have reached the store between the moment in which there was no room and the look for them."""
    one = LaggingRig(make_rig, Lag.BACKUPS, batches=8, tolerance=MiniBatch(), hosts={"slots": {"host": 2}})
    rig = one.rig
    rig.segments = small_disk / "segments"
    rig.go(4)
    fill(small_disk / "ballast")
    real = SegmentEnvironment.upload_all
    found: list[int] = []

    def too_late(environment: SegmentEnvironment, config: OperatorConfig) -> int:
        real(environment, config)
        found.append(real(environment, config))
        return found[-1]

    with mock.patch.object(SegmentEnvironment, "upload_all", too_late):
        rig.go(1)
    assert found and not any(found)
    os.unlink(small_disk / "ballast")
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0 and rig.ledger == []


def test_what_does_not_fit_beside_a_state_leaves_nothing_behind(small_disk: Path) -> None:
    with closing(OpenFolder(small_disk)) as folder:
        with pytest.raises(OSError, match="No space"):
            folder.write("spool-0-0-a", bytes(1 << 21))
        assert folder.names() == []
