"""How many snapshots are kept, how many build on a full image, and that nothing is deleted that one of them needs."""

from __future__ import annotations

from typing import Any

import pytest

from afspark.policies import BarrierSnapshot
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig


def lagging(make_rig: MakeRig, **given: Any) -> LaggingRig:
    return LaggingRig(make_rig, Lag.NOTHING, batches=9, tolerance=BarrierSnapshot(batches=1, **given))


@pytest.mark.parametrize(
    ("every", "full"),
    [(1, [0, 2, 2, 2, 2, 2, 2, 2, 2]), (3, [0, 0, 0, 2, 0, 0, 2, 0, 0]), (100, [0] * 9)],
)
def test_every_so_many_is_a_full_image(make_rig: MakeRig, every: int, full: list[int]) -> None:
    """The first one has nothing to build on: it holds everything there is, whatever it is called."""
    one = lagging(make_rig, full_every=every, asynchronous=False)
    one.rig.go()
    one.rig.driver.close()
    assert [entry.full for entry in one.rig.driver.commits.snapshots.entries] == full
    newest = one.rig.driver.log.newest()
    assert newest is not None
    chains = [worker.chain for operator in newest.operators.values() for worker in operator.workers]
    assert all(len(chain) <= every for chain in chains)
    one.rig.lose()
    one.rig.driver.ready()
    one.assert_as_calm()


@pytest.mark.parametrize("every", [1, 2, 4])
def test_so_many_are_kept_with_all_they_build_on(make_rig: MakeRig, every: int) -> None:
    one = lagging(make_rig, full_every=every, keep=2)
    rig = one.rig
    for batch in range(9):
        rig.go(1)
        assert len(rig.records()) <= 2
        if batch in (2, 5):
            rig.lose(batch % 2)
            rig.driver.ready()
            one.assert_as_calm()
    rig.driver.close()
    log = rig.driver.log
    needed = {name for batch in (7, 8) for name in log.newest(batch).references()}  # type: ignore[union-attr]
    present = {str(path.relative_to(rig.checkpoint / "afspark")) for path in rig.objects()}
    assert needed <= present
    if every == 1:
        assert present == needed, "what no snapshot needs any more is gone"
    rig.lose()
    rig.start()
    rig.driver.ready()
    one.assert_as_calm()
    assert rig.counts() == one.truth and rig.bound() == 0


def test_a_damaged_image_is_made_good_by_the_snapshot_before_it(make_rig: MakeRig) -> None:
    one = lagging(make_rig, full_every=1, keep=2)
    rig = one.rig
    rig.go()
    rig.driver.close()
    rig.records()[-1].write_bytes(b"damaged")
    rig.lose()
    rig.start()
    rig.driver.ready()
    one.assert_as_calm()
    assert rig.bound() == 0
