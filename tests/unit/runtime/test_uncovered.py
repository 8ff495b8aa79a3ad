"""Losses that no bound covers: whoever is told a bound is told that there is none, for as long as that is so."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import afspark
from afspark.cli.main import main
from afspark.coordinator.told_bounds import in_force, told
from afspark.model.windows import Hopping, Sliding, Window
from afspark.policies import Approximate, MiniBatch, Tolerance
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Rig, die


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def bound(rig: Rig, window: int | None = None) -> float:
    (found,) = told(rig.run_of(), window).values()
    return found


@pytest.mark.parametrize("tolerance", [MiniBatch(), Approximate(200.0)], ids=["exact", "approximate"])
def test_after_a_damaged_backup_there_is_no_bound_any_more(
    make_rig: MakeRig, tolerance: Tolerance, tmp_path: Path
) -> None:
    rig, truth = make_rig(batches=8, tolerance=tolerance)
    rig.go(5)
    damage(rig.objects(worker=0)[1])
    before = bound(rig)
    rig.lose()
    rows: list[float] = []
    rig.go(deliver=lambda batch: rows.append(bound(rig)))
    assert before == 0.0 and rows == [math.inf] * 3, "also the rows of the batch that completes the recovery"
    got = rig.counts()
    assert max(truth[word] - got[word] for word in truth) > getattr(tolerance, "theta", 0) / 2
    rig.start()
    rig.driver.ready()
    assert bound(rig) == math.inf, "a new driver tells the same"
    (entry, _) = in_force(rig.run_of())
    assert not entry["covered"] and "no bound holds since batch 5" in entry["why"]
    (operator,) = afspark.inspect(rig.checkpoint, segments=rig.segments).operators
    assert operator.bounds == {"counts": math.inf}
    document = tmp_path / "found.json"
    main(["inspect", str(rig.checkpoint), "--json", str(document)])
    assert json.loads(document.read_text())["operators"][0]["bounds"] == {"counts": None}


def test_covered_losses_keep_their_bound(make_rig: MakeRig) -> None:
    rig, _ = make_rig(tolerance=Approximate(200.0))
    rig.go(3)
    rig.lose(0)
    rig.go(1)
    assert bound(rig) == 50.0 and all(entry["covered"] for entry in in_force(rig.run_of()))
    (operator,) = afspark.inspect(rig.checkpoint, segments=rig.segments).operators
    assert operator.bounds == {"counts": 50.0}


def test_damage_met_by_a_repeated_recovery_is_told_as_well(make_rig: MakeRig) -> None:
    """The first recovery was complete when its driver died, before the batch was committed; its segment is lost too."""
    rig, _ = make_rig(tolerance=MiniBatch())
    rig.go(4)
    rig.lose(0)
    rig.drive_and_die(lambda: rig.go(1, deliver=lambda batch: die()))
    assert afspark.inspect(rig.checkpoint, segments=rig.segments).ledger[0].recovery is not None
    rig.lose(0)
    damage(rig.objects(worker=0)[2])
    rig.start()
    rig.go()
    assert [entry.recovery.covered for entry in rig.ledger if entry.recovery] == [False]
    assert bound(rig) == math.inf


@pytest.mark.parametrize(
    "window", [Hopping(10, by="processing"), Sliding(20, 10, by="processing")], ids=["hop", "slide"]
)
def test_windows_are_concerned_while_they_have_a_pane_of_the_lost_state(make_rig: MakeRig, window: Window) -> None:
    rig, _ = make_rig(batches=10, tolerance=MiniBatch(), window=window)

    def go(pane: int) -> None:
        rig.now = 10.0 * pane + 5
        rig.go(1)

    for pane in (0, 1, 2):
        go(pane)
        go(pane)
    damage(rig.objects(worker=0)[-1])
    rig.lose(0)
    go(2)
    concerned = range(2, 2 + window.panes)
    assert not rig.ledger[0].recovery.covered  # type: ignore[union-attr]
    assert [bound(rig, window=pane) for pane in concerned] == [math.inf] * window.panes
    assert bound(rig, window=concerned[-1] + 1) == 0.0
    assert bound(rig) == math.inf
    go(concerned[-1])
    assert bound(rig) == math.inf, "the last of them is still open"
    go(concerned[-1] + 1)
    go(concerned[-1] + 1)
    assert bound(rig) == 0.0, "all of them are gone"
    rig.start()
    rig.driver.ready()
    assert (bound(rig), bound(rig, window=2)) == (0.0, math.inf)


@pytest.mark.parametrize("window", [Hopping(10, by="processing"), None], ids=["windows", "none"])
def test_windows_of_a_damaged_record_are_known_again_from_what_workers_have_kept(
    make_rig: MakeRig, window: Window | None
) -> None:
    rig, _ = make_rig(tolerance=MiniBatch(), window=window)
    rig.go(4)
    damage(rig.records()[-1])
    rig.start()
    rig.go(1)
    rig.start()
    rig.go(1)
    assert bound(rig) == 0.0 and rig.ledger == []


@pytest.mark.parametrize("window", [Hopping(10, by="processing"), None], ids=["windows", "none"])
def test_windows_depend_on_records_where_nothing_can_be_replayed(make_rig: MakeRig, window: Window | None) -> None:
    """Spark has forgotten what belonged to the batch of a damaged record."""
    rig, _ = make_rig(tolerance=MiniBatch(), window=window)
    rig.go(4)
    damage(rig.records()[-1])
    (rig.checkpoint / "offsets" / "2").unlink()
    rig.start()
    rig.go(1)
    rig.start()
    rig.go(1)
    if window is None:
        assert bound(rig) == 0.0 and rig.ledger == []
        return
    (entry,) = rig.ledger
    assert entry.recovery is not None and not entry.recovery.covered
    assert bound(rig) == bound(rig, window=7) == math.inf
