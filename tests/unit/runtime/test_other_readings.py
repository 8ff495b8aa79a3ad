"""Secondaries that a killed driver has left with a batch of which Spark gives another reading now."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from afspark.coordinator.committer import Committer
from afspark.coordinator.replicas.secondary_job import SecondaryJob
from afspark.policies import BarrierSnapshot
from afspark.policies.replication import ActiveReplication, ActiveStandby, ColdStandby, HotStandby
from afspark.protocol.lifecycle import Present
from afspark.resident import examine
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.framed import FramedRig, frame_of, framed
from tests.unit.runtime.sparkless import Rig, die
from tests.unit.runtime.test_secondaries import homes, secondaries

HOSTS = {"a": 4, "b": 4, "c": 4}
#: The batch in which the first driver dies.
CUT = 3


def drive_to_the_cut(rig: Rig) -> None:
    """A driver dies between two batches."""

    def script() -> None:
        rig.go(CUT)
        die()

    rig.drive_and_die(script)


def divided_otherwise(rig: Rig) -> None:
    """Spark has other slots now, and divides the rows of a batch that runs again among other partitions."""
    assert isinstance(rig, FramedRig)
    rig.partitions = 2
    rig._frame = lambda batch: frame_of(batch, 2)  # type: ignore[method-assign]


def is_secondary(folder: Path) -> bool:
    found = examine(folder)
    return isinstance(found, Present) and found.secondary


def lose_both(rig: Rig, worker: int) -> None:
    for folder in rig.segments.glob(f"*/*/operator-{worker}"):
        shutil.rmtree(folder)


def lose_at_the_cut(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 0 loses its state when the first batch of the driver has begun."""
    real = Committer.begin

    def begin(self: Committer, batch: Any, *given: Any, **named: Any) -> None:
        real(self, batch, *given, **named)
        if batch == CUT:
            rig.lose(0)

    monkeypatch.setattr(Committer, "begin", begin)


def check_exact(rig: Rig, truth: Any) -> None:
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


@pytest.mark.parametrize("keyed", [False, True], ids=["shares", "keyed"])
@pytest.mark.parametrize(
    "scheme", [ActiveReplication, ActiveStandby, HotStandby, ColdStandby], ids=lambda scheme: scheme.name
)
def test_a_copy_keeps_nothing_of_a_batch_that_its_primary_takes_back(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, scheme: Any, keyed: bool
) -> None:
    """A worker is lost with both copies: the others take the batch back, because it gets other rows."""
    rig, truth = framed(make_rig)(slots=HOSTS, tolerance=scheme(batches=1), keyed=keyed)
    real = Committer.commit

    def commit(self: Committer, batch: int, *given: Any) -> None:
        if batch == CUT:
            die()
        real(self, batch, *given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", commit)
        rig.drive_and_die(rig.go)
    lose_both(rig, 1)
    divided_otherwise(rig)
    rig.go(1)
    rig.lose(0)
    check_exact(rig, truth)


@pytest.mark.parametrize("keyed", [False, True], ids=["shares", "keyed"])
def test_a_copy_that_was_ahead_of_its_primary_keeps_no_other_rows(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    """An active replica has applied the batch in which the driver dies, and its primary has not."""
    rig, truth = framed(make_rig)(slots=HOSTS, tolerance=ActiveReplication(batches=1), keyed=keyed)
    real = SecondaryJob.run

    def run(self: SecondaryJob, cluster: Any, stage: Any) -> bool:
        done = real(self, cluster, stage)
        if stage.batch == CUT:
            die()
        return done

    with monkeypatch.context() as patch:
        patch.setattr(SecondaryJob, "run", run)
        rig.drive_and_die(rig.go)
    divided_otherwise(rig)
    rig.go(1)
    assert {one.worker for one in secondaries(rig)} <= set(homes(rig))
    rig.lose()
    check_exact(rig, truth)


@pytest.mark.parametrize("keyed", [False, True], ids=["shares", "keyed"])
@pytest.mark.parametrize("scheme", [ActiveStandby, HotStandby], ids=lambda scheme: scheme.name)
def test_a_copy_follows_the_reading_of_its_primary(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, scheme: Any, keyed: bool
) -> None:
    """All primaries survive the driver, with batches that no record covers; a copy that is built anew would be given
    another reading of those.
    """
    rig, truth = framed(make_rig)(
        slots=HOSTS,
        tolerance=scheme(batches=50, store_every=1) if scheme is ActiveStandby else scheme(batches=50),
        keyed=keyed,
        max_replay_seconds=1000.0,
    )
    drive_to_the_cut(rig)
    for one in rig.segments.glob("*/*/operator-*"):
        if is_secondary(one):
            shutil.rmtree(one)
    divided_otherwise(rig)
    lose_at_the_cut(rig, monkeypatch)
    check_exact(rig, truth)
    assert rig.ledger


@pytest.mark.parametrize("keyed", [False, True], ids=["shares", "keyed"])
def test_one_who_is_lost_after_a_start_replays_one_reading_with_the_others(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    """Also without secondaries: the driver has found everybody, and loses a worker in its first batch."""
    rig, truth = framed(make_rig)(
        slots=HOSTS, tolerance=BarrierSnapshot(batches=50), keyed=keyed, max_replay_seconds=1000.0
    )
    drive_to_the_cut(rig)
    divided_otherwise(rig)
    lose_at_the_cut(rig, monkeypatch)
    check_exact(rig, truth)
    assert rig.ledger
