"""A checkpoint that goes away or runs full while the query works on it."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from afspark.errors import StoreAway, StoreFull
from afspark.policies import MiniBatch
from afspark.resident.open_folder import OpenFolder
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


def test_what_does_not_fit_beside_a_state_leaves_nothing_behind(small_disk: Path) -> None:
    with closing(OpenFolder(small_disk)) as folder:
        with pytest.raises(OSError, match="No space"):
            folder.write("spool-0-0-a", bytes(1 << 21))
        assert folder.names() == []
