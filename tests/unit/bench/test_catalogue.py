"""Experiments by name and by the papers' numbers, and the page about them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from afspark.bench.catalogue import ALIASES, NAMES, chosen, experiment
from afspark.bench.interleave import Contest, interleave
from afspark.bench.markdown import spread, table
from afspark.bench.page import write_page
from afspark.cli.main import main
from afspark.errors import UsageError

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_has_a_title_a_measurement_and_a_page(name: str) -> None:
    one = experiment(name)
    assert one.title and callable(one.measure) and callable(one.page)


def test_numbers_stand_for_names_and_each_runs_once() -> None:
    assert chosen(["3", "1", "schemes"]) == ["schemes", "pushed", "native", "heavy-hitters"]
    assert chosen(["all"]) == list(NAMES)
    assert all(set(names) <= set(NAMES) for names in ALIASES.values())


def test_an_unknown_experiment_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="There is no experiment '9'"):
        chosen(["9"])
    assert main(["bench", "9"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "There is no experiment '9'" in error


def test_a_page_must_lie_above_its_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--out", str(tmp_path / "a"), "--page", str(tmp_path / "b" / "page.md")]) == 2
    assert "below the folder of --page" in capsys.readouterr().err


def test_at_least_four_batches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "state", "--batches", "3"]) == 2
    assert "at least 4" in capsys.readouterr().err


@pytest.mark.parametrize(("records", "said"), [("1e3", "at least 1,000,000 records"), ("many", "many")])
def test_records_are_many(records: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "snapshots", "--records", records]) == 2
    assert said in capsys.readouterr().err


def test_snapshots_are_four_experiments() -> None:
    assert chosen(["snapshots", "slow-store"]) == [
        "slow-store",
        "snapshot-cost",
        "snapshot-intervals",
        "snapshot-parallelism",
        "snapshot-recovery",
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "results").glob("*.json")), ids=lambda path: path.stem)
def test_saved_figures_can_be_told_and_drawn(path: Path, tmp_path: Path) -> None:
    document = json.loads(path.read_text())
    one = experiment(document["experiment"])
    text = one.page(document["figures"])
    assert "|---" in text
    if one.draw is not None:
        assert one.draw(document["figures"], tmp_path / "plot.png")
        assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_the_page_tells_what_is_there(tmp_path: Path) -> None:
    figures = {"states": [{"state": "S", "divergence": "max", "million_updates_per_second": 2.5, "upkeep_share": 0.1}]}
    where = {"cores": 2, "processor": "P", "memory_gb": 8, "spark": "4", "python": "3", "load_before": 0.1}
    settings = {"rounds": 1, "batches": 4, "seeds": 2}
    document = {"experiment": "upkeep", "environment": where, "settings": settings, "seconds": 60, "figures": figures}
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "upkeep.json").write_text(json.dumps(document))
    write_page(folder, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| S | max | 2.5 | 10% |" in text and "afspark bench upkeep" in text and "native" not in text


def test_ratios_are_made_within_a_round() -> None:
    rounds = {"a": [{"x": 2.0}, {"x": 30.0}, {"x": 8.0}], "b": [{"x": 1.0}, {"x": 10.0}, {"x": 2.0}]}
    contest = Contest(rounds)
    assert contest.ratio_spread("a", "b", "x") == {"median": 3.0, "least": 2.0, "most": 4.0}


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []

    def run(name: str) -> dict[str, float]:
        order.append(name)
        return {"x": float(len(order))}

    contest = interleave({name: (lambda name=name: run(name)) for name in "ab"}, rounds=2)  # type: ignore[misc]
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert contest.rounds["a"] == [{"x": 4.0}, {"x": 5.0}]


def test_tables() -> None:
    assert table(["a", "b"], [[1, "x"]]) == "| a | b |\n|---|---|\n| 1 | x |\n\n"
    assert spread({"median": 2.0, "least": 1.0, "most": 3.0}) == "2.0 (1.0 to 3.0)"
    assert spread({"median": 2.0, "least": 2.0, "most": 2.0}) == "2.0"
