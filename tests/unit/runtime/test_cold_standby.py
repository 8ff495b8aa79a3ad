"""Secondaries that sleep have the last checkpoint in memory; what came since is replayed if they are promoted."""

from __future__ import annotations

from typing import Any

import pytest

from afspark.model.state_label import StateLabel
from afspark.model.windows import Hopping
from afspark.numbers import Batch, Fence, Incarnation
from afspark.policies.replication import ColdStandby, HotStandby
from afspark.protocol.shipments import Shipment, ShipOrder
from afspark.store import seal
from afspark.task.backup import BackupTask
from afspark.task.shipping import put_checkpoints, take_checkpoints
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Hosts, Rig
from tests.unit.runtime.test_secondaries import HOSTS, homes, lose_host, secondaries, state_on

pytestmark = pytest.mark.some(3)


@pytest.mark.parametrize("keyed", [False, True])
def test_checkpoints_come_into_their_memory(make_rig: MakeRig, keyed: bool) -> None:
    rig, truth = make_rig(batches=8, slots=HOSTS, tolerance=ColdStandby(batches=3), keyed=keyed)
    rig.go()
    covered = rig.driver.commits.records.covered.batch
    assert rig.committed - 3 <= covered < rig.committed
    for one in secondaries(rig):
        copy = state_on(rig, one.home, one.worker)
        assert copy.secondary and copy.version == one.version == covered
        # It was built once, and then given what had changed.
        assert one.built_from < covered and one.checkpoints >= 1
    assert rig.counts() == truth and rig.ledger == []


@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1)])
def test_one_takes_the_place_of_a_lost_primary(make_rig: MakeRig, lost: tuple[int, ...]) -> None:
    rig, truth = make_rig(batches=10, slots=HOSTS, tolerance=ColdStandby(batches=3), keyed=True)
    rig.go(6)
    before = {one.worker: (one.home, one.version) for one in secondaries(rig)}
    rig.lose(*lost)
    rig.go(1)
    assert [homes(rig)[worker] for worker in lost] == [before[worker][0] for worker in lost]
    for entry in rig.ledger:
        assert entry.recovery is not None and entry.recovery.covered and not entry.loss.counted
        # What its memory had was not read again; what came since its checkpoint was replayed.
        assert entry.recovery.restored_cells == 0
        assert entry.recovery.replayed == 5 - before[entry.loss.worker][1]
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


def test_hosts_lost_one_after_the_other(make_rig: MakeRig) -> None:
    rig, truth = make_rig(batches=13, slots=HOSTS, tolerance=ColdStandby(batches=2), keyed=True)
    for host in ("a", "b", "a", "b"):
        rig.go(3)
        lose_host(rig, host)
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


@pytest.mark.parametrize("trouble", ["hole", "incarnation", "fence", "damage"])
def test_a_checkpoint_that_does_not_fit_is_refused(make_rig: MakeRig, trouble: str) -> None:
    rig, _ = make_rig(batches=6, slots=HOSTS, tolerance=ColdStandby(batches=2))
    rig.go(4)
    run, (one, _) = rig.run_of(), secondaries(rig)
    begins = one.version + (1 if trouble == "hole" else 0)
    shipment = Shipment(
        incarnation=Incarnation(one.incarnation + (trouble == "incarnation")),
        deltas=((begins, begins + 1, b"rot" if trouble == "damage" else seal({}, {})),),
        kept_from=Batch(one.version),
    )
    order = ShipOrder(
        config=run.config,
        worker=one.worker,
        incarnation=one.incarnation,
        fence=Fence(run.group.fence - (trouble == "fence")),
        source=homes(rig)[one.worker],
        target=one.home,
        version=one.version,
        until=Batch(one.version + 1),
    )
    here = rig.hosts.environment(one.home)
    ((_, answer),) = put_checkpoints([order], here, 0, [shipment])
    assert answer.refused
    assert state_on(rig, one.home, one.worker).version == one.version
    if trouble == "hole":
        # The same, from where it is.
        fitting = Shipment(
            incarnation=one.incarnation,
            deltas=((one.version - 1, one.version + 1, seal({}, {})),),
            kept_from=Batch(one.version),
        )
        ((_, answer),) = put_checkpoints([order], here, 0, [fitting])
        assert (answer.refused, answer.version) == ("", one.version + 1)


def test_what_may_still_be_taken_back_is_not_shipped(make_rig: MakeRig) -> None:
    """A primary has applied a batch, and others have not yet: it has kept its checkpoint, and may have to go back."""
    rig, _ = make_rig(batches=6, slots=HOSTS, tolerance=ColdStandby(batches=1), keyed=True)
    rig.go(4)
    run, (one, _) = rig.run_of(), secondaries(rig)
    home = homes(rig)[one.worker]
    found = state_on(rig, home, one.worker)

    def shipped(until: int) -> list[int]:
        order = ShipOrder(
            config=run.config,
            worker=one.worker,
            incarnation=one.incarnation,
            fence=run.group.fence,
            source=home,
            target=one.home,
            version=found.version - 1,
            until=Batch(until),
        )
        ((_, shipment),) = take_checkpoints([order], rig.hosts.environment(home), 0)
        return [reached for _, reached, _ in shipment.deltas]

    assert found.version in shipped(found.version)
    assert found.version not in shipped(found.version - 1)


def panes_of(rig: Rig, host: str, worker: int) -> set[int]:
    """The panes that a state on a host has columns of."""
    home = rig.hosts.environment(host).address(rig.run_of().config, worker).open()
    assert home is not None
    labels = [StateLabel.of_column(name) for name in home.columns.names()]
    return {label.pane for label in labels if label is not None and label.pane is not None}


@pytest.mark.parametrize("scheme", [ColdStandby, HotStandby])
@pytest.mark.parametrize("batches", [1, 2])
def test_closed_panes_are_dropped_where_the_copy_sleeps(make_rig: MakeRig, scheme: Any, batches: int) -> None:
    window = Hopping(10, by="processing")
    rig, _ = make_rig(batches=14, slots=HOSTS, tolerance=scheme(batches=batches), keyed=True, window=window)
    for batch in range(12):
        rig.now = 10.0 * batch + 1
        rig.go(1)
    for one in secondaries(rig):
        own = panes_of(rig, homes(rig)[one.worker], one.worker)
        assert own and len(panes_of(rig, one.home, one.worker)) <= len(own) + batches
    rig.lose(0)
    rig.now = 121.0
    rig.go(2)
    calm = Rig(rig.root / "calm", Hosts(HOSTS), **rig.settings)
    for batch in range(14):
        calm.now = min(10.0 * batch + 1, 121.0)
        calm.go(1)
    assert rig.cells() == calm.cells() and rig.windows(13) == calm.windows(13)


def test_one_whose_checkpoint_was_not_kept_is_built_anew(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig, truth = make_rig(batches=12, slots=HOSTS, tolerance=ColdStandby(batches=1), keyed=True)
    rig.go(4)
    with monkeypatch.context() as patch:
        patch.setattr(BackupTask, "_keep_for_secondary", lambda *_: None)
        rig.go(1)
    rig.go(3)
    assert "lacks a checkpoint" in caplog.text
    covered = rig.driver.commits.records.covered.batch
    assert covered == rig.committed and {one.version for one in secondaries(rig)} == {covered}
    lose_host(rig, "a")
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0
