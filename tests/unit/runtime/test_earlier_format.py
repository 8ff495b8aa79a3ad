"""What an earlier release has written is refused by name; it is never misread, and nothing of it is touched.

The fixtures were written by the code before records, backups and segments became what they are: two batches of a word
count with one worker.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import afspark
from afspark.cli.main import main
from afspark.errors import CheckpointError
from afspark.policies import MiniBatch
from afspark.protocol.lifecycle import Foreign
from afspark.resident import examine, header
from afspark.store import FORMAT_VERSION, Damage, claim, open_store
from afspark.store.epochs import read_history
from afspark.store.reading import read_sealed
from tests.unit.runtime.conftest import MakeRig

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "checkpoint-of-format-1", tmp_path / "checkpoint"))


def _content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _is_refused_by_name(error: CheckpointError, checkpoint: Path) -> bool:
    line = str(error)
    return (
        (error.found, error.expected) == (1, FORMAT_VERSION)
        and str(checkpoint) in line
        and "earlier release" in line
        and "\n" not in line
        and error.remedy == "Use that release, or start with a new checkpoint folder."
    )


def test_a_query_does_not_start_on_a_checkpoint_of_an_earlier_release(checkpoint: Path, make_rig: MakeRig) -> None:
    before = _content(checkpoint)
    rig, _ = make_rig()
    with pytest.raises(CheckpointError) as refused:
        rig.start()
    assert _is_refused_by_name(refused.value, checkpoint) and rig.checkpoint == checkpoint
    assert _content(checkpoint) == before


def test_nobody_claims_or_inspects_a_checkpoint_of_an_earlier_release(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CheckpointError) as refused:
        claim(open_store(checkpoint).below("afspark"), "any", {})
    assert _is_refused_by_name(refused.value, checkpoint)
    with pytest.raises(CheckpointError) as refused:
        afspark.inspect(checkpoint)
    assert _is_refused_by_name(refused.value, checkpoint)
    assert main(["inspect", str(checkpoint)]) != 0
    assert "earlier release" in capsys.readouterr().err


def test_records_and_backups_of_an_earlier_release_are_foreign(checkpoint: Path) -> None:
    store = open_store(checkpoint).below("afspark")
    names = [*store.list("epochs"), *store.list("objects")]
    found = [one for one in read_sealed(store, names) if isinstance(one, Damage)]
    assert len(found) == len(names) == 5 and {damage.reason for damage in found} == {"foreign"}
    assert not read_history(store, 1).records


def test_a_segment_of_an_earlier_release_is_foreign() -> None:
    found = examine(FIXTURES / "segment-of-format-3")
    assert isinstance(found, Foreign) and "format version 3" in found.reason


def test_state_that_an_earlier_release_has_left_counts_as_lost_and_is_restored(make_rig: MakeRig) -> None:
    rig, truth = make_rig(tolerance=MiniBatch())
    rig.go(3)
    folders = rig.segment_folders().values()
    for folder in folders:
        meta = json.loads((folder / header.META).read_text())
        meta["identity"]["format_version"] -= 1
        (folder / header.META).write_text(json.dumps(meta))
    assert all(isinstance(examine(folder), Foreign) for folder in folders)
    rig.start()
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0.0
    assert [entry.loss.worker for entry in rig.ledger] == [0, 1]
