"""Backups, records and ledger entries that cannot be read any more."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest

import afspark
from afspark.algorithms import WordCount
from afspark.cluster.local.local_environment import LocalEnvironment
from afspark.coordinator.told_bounds import told
from afspark.errors import StoreNotWritable
from afspark.model.operator import WorkerContext
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Tolerance
from afspark.store import CompactionRule, ObjectRef, Store
from afspark.store.itemlosses import Gap
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig
from tests.unit.runtime.sparkless import Rig, die

pytestmark = pytest.mark.some(3)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


#: What tells one from the other is the store's business; here all that matters is what follows.
damages = pytest.mark.parametrize("damage", [flip_a_bit, Path.unlink], ids=["flipped bit", "missing"])


@pytest.mark.parametrize(
    ("damage", "restart"),
    [(truncate, False), (Path.unlink, False), (flip_a_bit, True)],
    ids=["truncated", "missing", "flipped bit, restarted"],
)
def test_the_state_before_a_damaged_backup_is_used_and_nobody_is_deceived(
    make_rig: MakeRig, damage: Callable[[Path], None], restart: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rig, truth = make_rig(tolerance=MiniBatch())
    rig.go(4)
    damaged = rig.objects(worker=0)[2]
    damage(damaged)
    rig.lose()
    if restart:
        rig.start()
    with caplog.at_level(logging.WARNING, logger="afspark"):
        rig.go()
    entries = {entry.loss.worker: entry for entry in rig.ledger}
    assert entries[0].recovery.damaged == (str(damaged.relative_to(rig.checkpoint / "afspark")),)
    assert not entries[0].recovery.covered and entries[1].recovery.covered
    assert damaged.name in caplog.text
    # Batches 2 and 3 of worker 0 are gone: a third of its share of six batches.
    assert rig.counts()["all"] == truth["all"] * 5 // 6


def test_backups_written_after_a_damaged_one_are_found_by_the_next_recovery(make_rig: MakeRig) -> None:
    rig, _ = make_rig(tolerance=MiniBatch())
    rig.go(3)
    truncate(rig.objects(worker=0)[2])
    rig.lose(0)
    rig.go(1)
    after_first = rig.counts()
    rig.lose(0)
    rig.go(1)
    assert rig.ledger[-1].recovery.covered
    grown = rig.counts()
    assert grown["all"] == after_first["all"] + 80


class DiesInFirstRecovery(WordCount):
    """Kills the process of worker 0 once, in the batch that follows its recovery."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = marker

    def begin(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        self.worker = context.worker

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        super().process(items, states)
        if self.worker == 0 and os.path.exists(self.marker):
            os.unlink(self.marker)
            die()

    def fingerprint(self) -> dict[str, object]:
        return {"operator": "dies"}


def test_damage_is_not_forgotten_when_the_recovering_process_dies(make_rig: MakeRig, tmp_path: Path) -> None:
    """The process that met the damage dies before it could report; the retried task finds a restored segment."""
    marker = tmp_path / "marker"
    rig, _ = make_rig(tolerance=MiniBatch(), operator=DiesInFirstRecovery(str(marker)))
    rig.hosts.fork()
    rig.go(3)
    truncate(rig.objects(worker=0)[2])
    rig.lose(0)
    marker.touch()
    rig.go(1)
    assert not marker.exists()
    assert not rig.ledger[0].recovery.covered
    before = rig.counts()
    rig.lose(0)
    rig.go(1)
    assert rig.counts()["all"] == before["all"] + 80, "a chain with a hole in it was continued"


def test_damage_that_is_met_while_nothing_is_processed_is_told(make_rig: MakeRig) -> None:
    """Results are asked for between two batches; the recovery they need is all that happens."""
    rig, truth = make_rig(tolerance=MiniBatch())
    rig.go(3)
    truncate(rig.objects(worker=0)[2])
    rig.lose(0)
    rig.driver.ready()
    assert not rig.ledger[0].recovery.covered
    assert rig.counts()["all"] == truth["all"] * 5 // 12
    rig.go(1)
    before = rig.counts()
    rig.lose(0)
    rig.go(1)
    assert rig.counts()["all"] == before["all"] + 80, "a chain with a hole in it was continued"


def test_damage_that_is_met_while_records_are_made_durable_is_told(make_rig: MakeRig) -> None:
    """A savepoint is asked for between two batches, and somebody turns out to be lost with its spool."""
    rig = LaggingRig(make_rig, Lag.BACKUPS, tolerance=MiniBatch()).rig
    rig.go(3)
    truncate(rig.objects(worker=0)[0])
    rig.lose(0)
    rig.driver.commits.settle()
    assert [entry.covered for entry in rig.ledger] == [False] and rig.bound() == math.inf
    rig.go(1)
    assert len(rig.ledger) == 1


class Early(CompactionRule):
    """Every third backup is a full image."""

    def due(self, chain: Sequence[ObjectRef]) -> bool:
        return len(chain) == 2


def go_compacting_early(rig: Rig, batches: int) -> None:
    rig.go(1)
    group = rig.run_of().group
    group.budget = replace(group.budget, compaction=Early())
    rig.go(batches - 1)


def test_a_damaged_full_image_is_replaced_by_the_chain_before_it(make_rig: MakeRig) -> None:
    rig, truth = make_rig(tolerance=MiniBatch())
    go_compacting_early(rig, 4)
    chain, previous = rig.members[0].chain, rig.members[0].previous
    assert chain[0].full and len(chain) == 2 and len(previous) == 2
    truncate(rig.checkpoint / "afspark" / chain[0].name)
    rig.lose(0)
    rig.go()
    assert not rig.ledger[0].recovery.covered
    # Batches 2 and 3 of one of two workers are lost, no more.
    assert rig.counts()["all"] == truth["all"] - 80


def test_compaction_keeps_recovery_exact(make_rig: MakeRig) -> None:
    rig, truth = make_rig(batches=8, tolerance=MiniBatch())
    go_compacting_early(rig, 1)
    rig.lose()
    for _ in range(6):
        rig.go(1)
        rig.lose()
    rig.go()
    assert len(rig.ledger) == 14 and all(entry.recovery.covered for entry in rig.ledger)
    assert rig.counts() == truth


@damages
def test_a_damaged_record_is_passed_over_with_state_that_survives(
    make_rig: MakeRig, damage: Callable[[Path], None]
) -> None:
    """The record before it lacks a backup the survivors rely on: the chain must not go on with a hole in it."""
    rig, truth = make_rig(tolerance=MiniBatch())
    rig.go(4)
    damage(rig.records()[-1])
    rig.start()
    rig.go(1)
    assert rig.counts()["all"] == truth["all"] * 5 // 6
    rig.lose()
    rig.go()
    told = any(entry.recovery is not None and not entry.recovery.covered for entry in rig.ledger)
    assert told or rig.counts() == truth


@damages
def test_batches_of_a_damaged_record_are_replayed(make_rig: MakeRig, damage: Callable[[Path], None]) -> None:
    """Files can be read again: what the record named is made again from the one before it."""
    rig, truth = make_rig(tolerance=MiniBatch())
    rig.go(4)
    damage(rig.records()[-1])
    rig.lose()
    rig.start()
    rig.go()
    assert rig.counts() == truth
    assert [(entry.recovery.covered, entry.recovery.replayed) for entry in rig.ledger] == [(True, 1), (True, 1)]


@pytest.mark.parametrize(
    "tolerance", [MiniBatch(), Approximate(400.0), BarrierSnapshot(batches=2)], ids=lambda t: t.name
)
@pytest.mark.parametrize("hosts", [0, 1], ids=["all state survives", "one worker is lost"])
def test_without_any_readable_record_everything_is_replayed(
    make_rig: MakeRig, tolerance: Tolerance, hosts: int
) -> None:
    rig, truth = make_rig(tolerance=tolerance)
    rig.go(4)
    for record in rig.records():
        flip_a_bit(record)
    if hosts:
        rig.lose(0)
    rig.start()
    rig.go()
    assert rig.counts() == truth
    assert all(entry.recovery is not None and entry.recovery.covered for entry in rig.ledger)


def test_input_that_a_replay_needs_and_does_not_find_is_told(make_rig: MakeRig, tmp_path: Path) -> None:
    rig, truth = make_rig(tolerance=MiniBatch())
    rig.go(4)
    flip_a_bit(rig.records()[-1])
    rig.lose()
    for path in sorted((tmp_path / "input").iterdir())[12:16]:
        path.unlink()
    rig.start()
    rig.go()
    assert rig.counts() != truth
    assert any(entry.recovery is not None and not entry.recovery.covered for entry in rig.ledger)
    assert set(told(rig.run_of()).values()) == {math.inf}


def test_a_store_that_breaks_in_the_middle_leaves_the_batch_to_be_applied_again(make_rig: MakeRig) -> None:
    rig, truth = make_rig(tolerance=MiniBatch())
    rig.go(2)
    sound = rig.hosts.on_host
    rig.hosts.on_host = lambda host: Refusing(name=host)
    with pytest.raises(StoreNotWritable):
        rig.go()
    rig.hosts.on_host = sound
    rig.go()
    assert rig.counts() == truth
    assert rig.ledger == []


class Refusing(LocalEnvironment):
    """No backup can be written."""

    def start_write(self, store: Store, name: str, data: bytes) -> NoReturn:
        raise StoreNotWritable("full", path="x")


@damages
@pytest.mark.parametrize("part", ["loss", "recovery"])
def test_a_ledger_that_has_lost_an_entry_knows_no_bound(
    make_rig: MakeRig, damage: Callable[[Path], None], part: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig, _ = make_rig(tolerance=Approximate(400.0))
    rig.go(2)
    rig.lose(0)
    rig.go(1)
    assert rig.bound() == 100.0
    (entry,) = (rig.checkpoint / "afspark" / "ledger").glob(f"*/{part}*")
    damage(entry)
    rig.start()
    rig.go(1)
    assert entry.name in caplog.text
    assert rig.bound() == math.inf
    # For good: nobody will ever know.
    rig.start()
    rig.go(1)
    assert rig.bound() == math.inf
    assert [found.name for found in afspark.inspect(rig.checkpoint).damaged] == [
        str(entry.relative_to(rig.checkpoint / "afspark"))
    ]


@damages
def test_lost_items_that_their_ledger_has_forgotten_are_lost_all_the_same(
    make_rig: MakeRig, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    rig, _ = make_rig()
    rig.go(1)
    rig.driver.item_losses.note(0, "operator", 1, [Gap("p", 3, 10)])
    rig.run_of().gaps[0, 1] = 7
    rig.go(1)
    (entry,) = (rig.checkpoint / "afspark" / "itemlosses").iterdir()
    damage(entry)
    for _ in range(2):
        rig.start()
        rig.go(1)
        assert sum(rig.run_of().gaps.values()) == 7
        assert "knows 0, its commit record 7" in caplog.text
    assert [found.name for found in afspark.inspect(rig.checkpoint).damaged] == (
        [f"itemlosses/{entry.name}"] if entry.exists() else []
    )
