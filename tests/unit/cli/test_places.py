"""Places are checked before a run and tidied after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from afspark.cli.places import RunFolders, check_checkpoint, check_file, check_output, make_folder
from afspark.errors import StoreNotWritable, UsageError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("mine")
    return path


def test_good_places(tmp_path: Path, file: Path) -> None:
    check_file(str(file), "--json")
    check_file(str(tmp_path / "new.json"), "--json")
    check_output(str(tmp_path / "new" / "below"))
    check_checkpoint(str(tmp_path / "checkpoint"))
    assert file.read_text() == "mine"
    assert not (tmp_path / "new").exists()


def test_earlier_results_may_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").touch()
    (tmp_path / "_SUCCESS").touch()
    check_output(str(tmp_path))


def test_nothing_else_may_be_replaced(tmp_path: Path, file: Path) -> None:
    for address in (str(tmp_path), str(file), str(file / "below")):
        with pytest.raises(UsageError):
            check_output(address)


def test_files_that_cannot_be_written(tmp_path: Path, file: Path) -> None:
    for address in (str(tmp_path), str(file / "below.json")):
        with pytest.raises(UsageError):
            check_file(address, "--json")


def test_folders_that_cannot_be_made(file: Path) -> None:
    with pytest.raises(UsageError):
        make_folder(str(file / "below"), "--out")
    with pytest.raises(StoreNotWritable):
        check_checkpoint(str(file / "below"))


def test_a_workspace_leaves_nothing(tmp_path: Path) -> None:
    with RunFolders() as workspace:
        assert not workspace.lasting
        Path(workspace.checkpoint).mkdir()
        workspace.log.write_text("talk")
    assert not workspace.log.parent.exists()


def test_a_checkpoint_of_the_users_stays(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    with RunFolders(str(checkpoint)) as workspace:
        assert workspace.lasting and workspace.checkpoint == str(checkpoint)
    assert checkpoint.exists()


def fail_in(workspace: RunFolders, error: Exception) -> None:
    with workspace:
        workspace.log.write_text("the reason")
        raise error


def test_the_log_survives_what_was_not_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeError) as caught:
        fail_in(RunFolders(), RuntimeError())
    (note,) = caught.value.__notes__
    kept = Path(note.removeprefix("Spark's log: "))
    assert kept.read_text() == "the reason"
    assert [*tmp_path.iterdir()] == [kept]


def test_the_log_survives_an_error_that_points_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    workspace = RunFolders()
    with pytest.raises(UsageError) as caught:
        fail_in(workspace, UsageError("no", log=workspace.log))
    assert len(caught.value.__notes__) == 1


def test_the_log_goes_after_a_usage_error() -> None:
    workspace = RunFolders()
    with pytest.raises(UsageError):
        fail_in(workspace, UsageError("no"))
    assert not workspace.log.parent.exists()
