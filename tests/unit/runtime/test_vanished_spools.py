"""A folder of resident state that is removed while backups in it are uploaded: that is a loss, and no user's fault."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import pytest

from afspark.policies import BarrierSnapshot, MiniBatch, Tolerance
from afspark.protocol.operator_config import OperatorConfig
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig, WatchedEnvironment
from tests.unit.runtime.test_orderly_end import assert_store_has_all_that_records_name


@dataclass(frozen=True, kw_only=True)
class Vanishing(WatchedEnvironment):
    """The folder of worker 0 vanishes when an upload from it begins."""

    def upload(self, config: OperatorConfig, worker: int) -> None:
        folder = self._directory(config, worker)
        if worker > 0 or not list(folder.glob("spool-*")):
            return super().upload(config, worker)
        # The system refuses to open the lock, as it does in a folder that is gone by then.
        (folder / "uploading").unlink(missing_ok=True)
        (folder / "uploading").mkdir()
        try:
            return super().upload(config, worker)
        finally:
            shutil.rmtree(folder)


@pytest.mark.parametrize("tolerance", [MiniBatch(), BarrierSnapshot(batches=2)], ids=lambda one: one.name)
def test_a_folder_that_vanishes_when_an_upload_begins_is_a_loss(make_rig: MakeRig, tolerance: Tolerance) -> None:
    one = LaggingRig(make_rig, Lag.BACKUPS, batches=7, tolerance=tolerance, keyed=True)
    rig = one.rig
    rig.go(4)
    usual, log = rig.hosts.on_host, rig.root / "applied"
    rig.hosts.on_host = lambda host: Vanishing(name=host, log=log, uploads=False)
    rig.driver.commits.settle()
    rig.hosts.on_host = usual
    assert_store_has_all_that_records_name(one)
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
