"""Looking into checkpoints, from Python and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import afspark
from afspark.cli.main import main
from afspark.coordinator.last_snapshot import take_last_snapshot
from afspark.errors import UsageError
from afspark.model.windows import Hopping
from afspark.policies import Approximate
from afspark.resident import Segment
from afspark.resident.peek import StateView
from afspark.store import claim, open_store
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Rig, die


def look(rig: Rig, **options: Any) -> afspark.Inspection:
    return afspark.inspect(rig.checkpoint, segments=rig.segments, **options)


def residents_of(found: afspark.Inspection) -> list[StateView]:
    workers = found.operators[0].workers
    return [state for worker in workers for resident in worker.residents for state in resident.peek.states]


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_running_query(make_rig: MakeRig) -> None:
    rig, _ = make_rig()
    rig.go(3)
    rig.lose(0)
    rig.go(1)
    before = contents(rig.root)
    found = look(rig, verify=True, cells=2)
    assert contents(rig.root) == before, "inspecting changes nothing"
    assert (found.batch, found.spark_batch, found.damaged) == (3, 3, ())
    (operator,) = found.operators
    first, second = operator.workers
    assert first.record is not None and second.record is not None
    assert (first.record.incarnation, first.record.failures) == (1, 1)
    assert first.last_backup == second.last_backup == 3
    (entry,) = found.ledger
    assert entry.recovery is not None and entry.recovery.covered
    (resident,) = second.residents
    assert (resident.peek.version, resident.peek.marked, resident.current) == (3, False, True)
    (state,) = resident.peek.states
    assert state.cells and state.divergence is not None
    assert [cell["value"] for cell in state.largest] == sorted((c["value"] for c in state.largest), reverse=True)
    rig.go()
    assert look(rig).batch == 5


@pytest.mark.parametrize("theta", [100, 1000], ids=["backed up just now", "never backed up"])
def test_divergence_within_the_threshold(make_rig: MakeRig, theta: float) -> None:
    rig, _ = make_rig(tolerance=Approximate(theta))
    rig.go(2)
    for worker in look(rig).operators[0].workers:
        assert worker.record is not None
        (state,) = worker.residents[0].peek.states
        assert state.divergence is not None
        assert 0 < state.divergence <= worker.record.theta["counts"]


def test_nothing_diverges_after_a_planned_stop(make_rig: MakeRig) -> None:
    rig, _ = make_rig(tolerance=Approximate(1000))
    rig.go(2)
    take_last_snapshot(rig.driver)
    found = look(rig)
    assert [state.divergence for state in residents_of(found)] == [0.0, 0.0]
    rig.go(1)
    assert all(state.divergence for state in residents_of(look(rig))), "it is not for ever"


def test_a_crashed_driver(make_rig: MakeRig) -> None:
    rig, _ = make_rig()
    rig.drive_and_die(lambda: rig.go(3, deliver=lambda batch: die() if batch == 2 else None))
    found = look(rig)
    assert (found.batch, found.spark_batch) == (1, 1)
    assert {worker.residents[0].peek.version for worker in found.operators[0].workers} == {2}


def test_a_busy_segment_is_said_to_be_busy(make_rig: MakeRig) -> None:
    rig, _ = make_rig()
    rig.go(1)
    segment = Segment.open(rig.segment_folders()["operator", 0])
    assert segment is not None
    with segment.lock(1.0):
        peeks = [worker.residents[0].peek for worker in look(rig).operators[0].workers]
    segment.close()
    assert [peek.trouble for peek in peeks] == ["busy", ""]


def test_windows(make_rig: MakeRig) -> None:
    rig, _ = make_rig(window=Hopping(10, by="processing"))
    rig.now = 25.0
    rig.go(2)
    (operator,) = look(rig).operators
    assert operator.window_progress is not None and operator.window_progress.touched == {2}
    assert {view.pane for view in operator.workers[0].residents[0].peek.states} == {2}


def test_no_records_yet(make_rig: MakeRig, capsys: pytest.CaptureFixture[str]) -> None:
    rig, _ = make_rig()
    rig.start()
    found = afspark.inspect(rig.checkpoint)
    assert found.batch is None and found.operators[0].workers[0].record is None
    assert main(["inspect", str(rig.checkpoint)]) == 0
    assert "none yet" in capsys.readouterr().out


def test_a_damaged_object_is_found_by_reading_all(make_rig: MakeRig, capsys: pytest.CaptureFixture[str]) -> None:
    rig, _ = make_rig()
    rig.go(3)
    victim = rig.objects(worker=0)[-1]
    victim.write_bytes(victim.read_bytes()[:-7])
    assert look(rig).damaged == ()
    (damage,) = look(rig, verify=True).damaged
    assert (Path(damage.name).name, damage.reason) == (victim.name, "corrupt")
    report = rig.root / "report.json"
    line = ["inspect", str(rig.checkpoint), "--segments", str(rig.segments), "--verify", "--json", str(report)]
    assert main([*line, "--cells", "3"]) == 1
    assert "Damaged (1)" in capsys.readouterr().out
    assert json.loads(report.read_text())["damaged"][0]["reason"] == "corrupt"


def test_a_damaged_record_is_passed_over(make_rig: MakeRig) -> None:
    rig, _ = make_rig()
    rig.go(3)
    victim = rig.records()[-1]
    victim.write_bytes(victim.read_bytes()[:-7])
    found = look(rig)
    assert found.batch == 1 and len(found.damaged) == 1
    assert main(["inspect", str(rig.checkpoint), "--segments", str(rig.segments)]) == 1


def test_the_exit_status_tells_scripts_of_damage(make_rig: MakeRig, capsys: pytest.CaptureFixture[str]) -> None:
    rig, _ = make_rig()
    rig.go(2)
    line = ["inspect", str(rig.checkpoint), "--segments", str(rig.segments)]
    assert main([*line, "--verify"]) == 0
    rig.objects(worker=0)[-1].unlink()
    assert main(line) == 0, "objects are read with --verify only"
    assert main([*line, "--verify"]) == 1
    capsys.readouterr()
    assert main(["inspect", "--help"]) == 0
    assert "1: something is damaged" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["absent", "foreign"])
def test_no_checkpoint(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / kind
    if kind == "foreign":
        folder.mkdir()
        (folder / "letter.txt").write_text("dear")
    with pytest.raises(UsageError):
        afspark.inspect(folder)
    assert main(["inspect", str(folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert folder.exists() is (kind == "foreign")


def test_wrong_options(make_rig: MakeRig, capsys: pytest.CaptureFixture[str]) -> None:
    rig, _ = make_rig()
    rig.go(1)
    for wrong in (["--operator", "nobody"], ["--segments", str(rig.root / "nowhere")], ["--cells", "x"]):
        assert main(["inspect", str(rig.checkpoint), *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_an_ended_stream(make_rig: MakeRig) -> None:
    rig, _ = make_rig(window=Hopping(4.0, by="processing"))
    rig.go()
    assert not look(rig).ended
    rig.end()
    assert look(rig).ended


def test_nothing_named_by_a_checkpoint_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been sent by anybody, and looking into it must not run what they wrote."""
    (tmp_path / "theirs.py").write_text("open('ran', 'w').close()\nclass State: pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    states = {"s": {"kind": "own", "class": "theirs:State", "args": [], "divergence": "max", "exact": False}}
    operator = {"operator": {"operator": "op", "states": states}, "workers": 1, "keyed": False, "window": None}
    claim(open_store(tmp_path).below("afspark"), "f", {"sources": {}, "operators": {"op": operator}})
    (tmp_path / "segments").mkdir()
    found = afspark.inspect(tmp_path, segments=tmp_path / "segments", cells=3)
    assert [one.name for one in found.operators] == ["op"]
    assert not (tmp_path / "ran").exists()
