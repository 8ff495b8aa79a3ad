"""Contests that go on where they were cut off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from afspark.bench.kept_rounds import KeptRounds, OneRun, TimeLeft, in_order, run_contests

SETTINGS = {"records": 100}


class Measured:
    """Contenders that note who ran; ``fails_at``: the run that is cut off."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.ran: list[str] = []
        self.warmed = 0
        self.fails_at = fails_at

    def contender(self, name: str) -> Callable[[], dict[str, float]]:
        def run() -> dict[str, float]:
            if len(self.ran) == self.fails_at:
                raise KeyboardInterrupt
            self.ran.append(name)
            return {"seconds": float(len(self.ran))}

        return run

    def contests(self) -> dict[str, dict[str, Callable[[], dict[str, float]]]]:
        return {contest: {name: self.contender(contest + name) for name in "ab"} for contest in "xy"}

    def warm_up(self) -> None:
        self.warmed += 1


def test_contests_take_turns_in_every_round_and_so_do_contenders() -> None:
    runs = in_order(Measured().contests(), 2)
    assert [run.contest + run.contender for run in runs] == ["xb", "xa", "yb", "ya", "xa", "xb", "ya", "yb"]
    assert [run.round for run in runs] == [1] * 4 + [2] * 4


@pytest.mark.parametrize("fails_at", range(8))
def test_a_contest_that_was_cut_off_measures_only_what_is_missing(tmp_path: Path, fails_at: int) -> None:
    path = tmp_path / "rounds"
    first, second = Measured(fails_at), Measured()
    with pytest.raises(KeyboardInterrupt):
        run_contests(first.contests(), rounds=2, kept=KeptRounds(path, SETTINGS), warm_up=first.warm_up)
    kept = KeptRounds(path, SETTINGS)
    assert len(kept) == fails_at
    found = run_contests(second.contests(), rounds=2, kept=kept, warm_up=second.warm_up)
    whole = [run.contest + run.contender for run in in_order(first.contests(), 2)]
    assert first.ran + second.ran == whole
    assert all(len(rounds) == 2 for contest in found.values() for rounds in contest.rounds.values())
    kept.forget()
    assert not path.exists()


def test_nothing_is_warmed_up_when_nothing_is_left_to_do(tmp_path: Path) -> None:
    first, second = Measured(), Measured()
    for one in (first, second):
        kept = KeptRounds(tmp_path / "rounds", SETTINGS)
        found = run_contests(one.contests(), rounds=1, kept=kept, warm_up=one.warm_up)
    assert (first.warmed, second.warmed, second.ran) == (1, 0, [])
    assert found["x"].rounds == {"b": [{"seconds": 1.0}], "a": [{"seconds": 2.0}]}


def test_more_rounds_add_to_those_before(tmp_path: Path) -> None:
    first, second = Measured(), Measured()
    run_contests(first.contests(), rounds=1, kept=KeptRounds(tmp_path / "r", SETTINGS), warm_up=first.warm_up)
    run_contests(second.contests(), rounds=2, kept=KeptRounds(tmp_path / "r", SETTINGS), warm_up=second.warm_up)
    assert len(second.ran) == 4


def test_figures_of_other_settings_are_not_mixed_in(tmp_path: Path) -> None:
    run = OneRun("x", "a", 1)
    KeptRounds(tmp_path / "r", SETTINGS).keep(run, {"seconds": 1.0})
    assert KeptRounds(tmp_path / "r", {"records": 200}).figures(run) is None
    assert KeptRounds(tmp_path / "r", SETTINGS).figures(run) == {"seconds": 1.0}


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    path, first, second = tmp_path / "r", OneRun("x", "a", 1), OneRun("x", "b", 1)
    for run in (first, second):
        KeptRounds(path, SETTINGS).keep(run, {"seconds": 1.0})
    path.write_bytes(path.read_bytes()[:-9])
    kept = KeptRounds(path, SETTINGS)
    assert kept.figures(first) is not None and kept.figures(second) is None
    kept.keep(second, {"seconds": 2.0})
    assert KeptRounds(path, SETTINGS).figures(second) == {"seconds": 2.0}


def test_without_a_folder_nothing_is_written() -> None:
    kept = KeptRounds(None, SETTINGS)
    kept.keep(OneRun("x", "a", 1), {"seconds": 1.0})
    kept.forget()
    assert len(kept) == 1


def test_the_time_left_is_that_of_the_same_contenders_or_of_all() -> None:
    runs = [OneRun("x", name, number) for number in (1, 2) for name in "ab"]
    left = TimeLeft(runs)
    assert left.seconds() == 0.0
    left.done(runs[0], 10.0)
    assert left.seconds() == 30.0
    left.done(runs[1], 2.0)
    assert left.seconds() == 12.0


def test_a_run_for_which_a_process_started_too_late_is_done_again(tmp_path: Path) -> None:
    calls: list[str] = []

    def late() -> dict[str, float]:
        calls.append("late")
        if len(calls) < 3:
            raise RuntimeError("Python worker failed to connect back.")
        return {"seconds": 1.0}

    def wrong() -> dict[str, float]:
        raise RuntimeError("something else")

    kept = KeptRounds(tmp_path / "r", SETTINGS)
    found = run_contests({"x": {"a": late}}, rounds=1, kept=kept, warm_up=lambda: None)
    assert found["x"].rounds == {"a": [{"seconds": 1.0}]}
    with pytest.raises(RuntimeError, match="something else"):
        run_contests({"y": {"a": wrong}}, rounds=1, kept=kept, warm_up=lambda: None)
