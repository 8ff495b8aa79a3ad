"""Drivers that fail while they begin, interrupted ends, and starts that could not replay what they have to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from afspark.algorithms import WordCount
from afspark.coordinator.ending import ENDING
from afspark.errors import BadItems, CheckpointError, StoreError, UsageError
from afspark.model.windows import Hopping
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Nothing, Tolerance
from afspark.store.local import LocalStore
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig
from tests.unit.runtime.sparkless import Rig, die
from tests.unit.runtime.test_replay_by_drivers import killed_after

pytestmark = pytest.mark.some(3)

WINDOW = Hopping(10, by="processing")


class Stumbling(LocalStore):
    """Cannot be read once where Spark says what belonged to a batch."""

    fails_at: ClassVar[set[str]] = set()

    def get(self, name: str) -> bytes:
        if name in self.fails_at:
            self.fails_at.remove(name)
            raise StoreError("It stumbles.")
        return super().get(name)


@pytest.mark.parametrize("stumbles", [2, 4])
@pytest.mark.parametrize("tolerance", [MiniBatch(), BarrierSnapshot(batches=3)], ids=lambda one: one.name)
def test_what_was_opened_in_part_is_opened_again(make_rig: MakeRig, tolerance: Tolerance, stumbles: int) -> None:
    """A driver that replays cannot read something, and whoever asked for results lives with it."""
    one = LaggingRig(make_rig, Lag.RECORDS, batches=7, tolerance=tolerance)
    rig = one.rig
    killed_after(one, 5)
    Stumbling.fails_at.add(f"offsets/{stumbles}")
    rig.open_store = Stumbling
    driver = rig.start()
    with pytest.raises(StoreError, match="stumbles"):
        driver.ready()
    assert not driver.runs and not Stumbling.fails_at
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    assert driver.items == sum(one.truth.values())


def interrupted_end(make_rig: MakeRig) -> Rig:
    """The end of a stream is begun after three batches; its driver dies when workers have applied its first batch."""
    rig, _ = make_rig(tolerance=MiniBatch(), batches=6, window=WINDOW)
    rig.go(3)
    rig.drive_and_die(lambda: rig.end(lambda _: die()))
    return rig


@pytest.mark.parametrize("asked", [False, True], ids=["at once", "after results"])
def test_no_batch_follows_an_end_that_was_interrupted(make_rig: MakeRig, asked: bool) -> None:
    rig = interrupted_end(make_rig)
    driver = rig.start()
    if asked:
        driver.ready()
    with pytest.raises(CheckpointError, match="has been ended"):
        rig.go(1)
    assert rig.committed == 2


def test_an_interrupted_end_can_be_made_although_spark_has_begun_a_batch(make_rig: MakeRig) -> None:
    rig = interrupted_end(make_rig)
    rig.start()
    with pytest.raises(CheckpointError):
        rig.go(1)
    assert (rig.checkpoint / "offsets" / "3").exists() and rig.driver.store.list(ENDING)
    rig.start()
    rig.end()
    assert rig.driver.ended


@pytest.mark.parametrize("tolerance", [MiniBatch(), Approximate(40.0)], ids=lambda one: one.name)
def test_whoever_could_not_replay_is_refused_while_records_are_behind(make_rig: MakeRig, tolerance: Tolerance) -> None:
    one = LaggingRig(make_rig, Lag.RECORDS, batches=7, tolerance=tolerance, window=WINDOW)
    rig = one.rig
    killed_after(one, 5)
    with pytest.raises(UsageError, match=r"1 to 4 .*Nothing") as caught:
        rig.start(tolerance=Nothing()).check_unrecorded()
    assert caught.value.batch == 1
    rig.start(tolerance=tolerance).check_unrecorded()
    rig.go(1)
    rig.driver.close()
    rig.start(tolerance=Nothing()).check_unrecorded()
    rig.go()
    assert rig.bound() < float("inf")


def test_without_windows_a_survivor_may_go_on_unprotected(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.RECORDS, batches=7, tolerance=MiniBatch())
    killed_after(one, 5)
    one.rig.start(tolerance=Nothing()).check_unrecorded()
    one.rig.go()
    assert one.rig.counts() == one.truth


@pytest.mark.parametrize(("before", "after"), [("partial", "full"), ("full", "partial")])
def test_who_goes_back_may_be_changed_while_a_query_runs(make_rig: MakeRig, before: str, after: str) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, batches=8, tolerance=BarrierSnapshot(batches=4, recovery=before))
    rig = one.rig
    rig.go(3)
    rig.run_of().want(BarrierSnapshot(batches=4, recovery=after))
    rig.go(1)
    rig.lose(0)
    rig.go()
    assert rig.counts() == one.truth
    assert {entry.loss.worker for entry in rig.ledger} == ({0, 1} if after == "full" else {0})


class Choosy(WordCount):
    """Can take no batch that is not the first."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        if self.context.batch > 1:
            raise ValueError("it is choosy")
        super().process(items, states)


@pytest.mark.parametrize("lag", [Lag.RECORDS, Lag.BACKUPS])
def test_whoever_stops_after_a_batch_that_could_not_be_committed_lets_go_of_the_query(
    make_rig: MakeRig, lag: Lag
) -> None:
    """The batch is applied, and has left out too many items: its record is not written, that of the one before may be
    on its way.
    """
    one = LaggingRig(
        make_rig,
        lag,
        batches=6,
        tolerance=MiniBatch(),
        operator=Choosy(),
        on_bad="skip",
        bad_limit=0,
        takeover=False,
        lease_seconds=600.0,
    )
    rig = one.rig
    with pytest.raises(BadItems):
        rig.go()
    rig.driver.close()
    rig.start().take_lease()
