"""The report of a run: as JSON, as tables, as a picture."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from afspark._version import __version__
from afspark.report.convergence_plot import save_convergence
from afspark.report.document import RunReport, save_json
from afspark.report.plot import Contender, save_plot
from afspark.report.summary import summary

LOSS = {
    "batch": 3,
    "operator": "words",
    "worker": 1,
    "theta": {"counts": 2500.0, "other": 0.0},
    "recovery_seconds": 0.25,
    "restored_cells": 7,
    "counted": True,
    "cause": "its segment is missing",
}
REPORT = RunReport(
    algorithm="wordcount",
    settings={"workers": 2},
    items=1_000,
    bytes=6_000_000,
    seconds=2.0,
    batches=4,
    backups={"count": 3, "cells": 20, "bytes": 700},
    state={"cells": 50, "bytes": 9_000},
    main_state="counts",
    ledger=[LOSS],
    promised=10_000.0,
    realised={"counts": 2500.0},
    top=[{"word": "[red]\x1b[2J", "count": 99}],
    results=50,
    observed={"state": 1234},
    accuracy={"words": 50},
)


def test_the_document() -> None:
    document = json.loads(json.dumps(REPORT.to_json(), allow_nan=False))
    assert document["version"] == __version__
    assert document["input"] == {"items": 1_000, "bytes": 6_000_000}
    assert document["throughput"] == {"items_per_second": 500.0, "mb_per_second": 3.0}
    assert document["backups"]["state"] == {"count": 3, "cells": 20, "bytes": 700}
    assert document["bound"]["state"] == 10_000.0
    assert document["bound"]["realised"] == 2500.0
    assert document["observed"]["state"] == 1234
    (loss,) = document["ledger"]
    assert (loss["worker"], loss["theta"], loss["recovery_seconds"]) == (1, 2500.0, 0.25)
    assert loss["theta_by_state"] == LOSS["theta"]
    assert {"python", "spark", "cores"} <= document["environment"].keys()
    assert document["settings"] == {"workers": 2} and document["batches"] == 4 and document["seconds"] == 2.0


def test_without_limits_there_are_nulls() -> None:
    loss = {**LOSS, "theta": {"counts": math.inf}}
    bare = replace(REPORT, promised=None, realised={"counts": math.inf}, ledger=[loss], observed=None, accuracy=None)
    document = bare.to_json()
    assert document["bound"]["state"] is None
    assert document["bound"]["realised"] is None
    assert document["ledger"][0]["theta"] is None
    assert document["observed"] is None
    json.dumps(document, allow_nan=False)


def test_a_run_without_time_has_no_throughput() -> None:
    assert replace(REPORT, seconds=0.0).mb_per_second == 0.0


def test_saving_replaces_the_file_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    with pytest.raises(ValueError, match="JSON"):
        save_json(path, {"a": math.nan})
    assert path.read_text() == "old"
    save_json(path, {"wörd": 1})
    assert json.loads(path.read_text(encoding="utf-8")) == {"wörd": 1}
    assert [*tmp_path.iterdir()] == [path]


def test_the_summary_fits_a_terminal_and_shows_what_counts() -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"), force_terminal=False)  # noqa: SIM115
    console.print(summary(replace(REPORT, ledger=[LOSS] * 25)))
    text = console.export_text()
    for part in ("3.0 MB/s", "3 objects, 20 cells, 700 B", "at most 10,000", "1,234", "2,500", "250 ms", "[red]"):
        assert part in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "… and 5 more" in text


def test_what_gap_recovery_has_left_out_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """As the ledger has it; nothing is said where everything is replayed."""

    def shown(ledger: list[dict[str, Any]], *, gap: bool = True) -> str:
        report = replace(REPORT, settings={"gap": gap}, ledger=ledger, promised=None)
        Console(width=110).print(summary(report))
        return " ".join(capsys.readouterr().out.split())

    first, second = LOSS | {"gap_batches": 2, "gap_items": 1000}, LOSS | {"gap_batches": 1, "gap_items": 234}
    whole = LOSS | {"gap_batches": 0, "gap_items": 0}
    assert "left out, not replayed 3 batches of 1 worker, 1,234 items" in shown([first, whole, second])
    assert "left out, not replayed 3 batches of 2 workers, 1,234 items" in shown([first, second | {"worker": 0}])
    assert "left out, not replayed nothing" in shown([whole])
    assert "left out" not in shown([whole], gap=False)
    report = replace(REPORT, learned={"skipped": 0}, observed=None, settings={"gap": True}, ledger=[first])
    Console(width=110).print(summary(report))
    assert "2 batches of 1 worker" in capsys.readouterr().out


def test_what_has_no_name_is_no_none_and_one_is_no_plural(capsys: pytest.CaptureFixture[str]) -> None:
    weights = [{"index": 7, "feature": None, "weight": -7.0915765328949805}]
    Console(width=110).print(summary(replace(REPORT, batches=1, top=weights, backups=dict.fromkeys(REPORT.backups, 1))))
    shown = capsys.readouterr().out
    assert "None" not in shown and "-7.09 " in shown
    assert "1 batch " in shown and "1 object, 1 cell, 1 B" in shown


def test_the_picture(tmp_path: Path) -> None:
    nothing = replace(REPORT, promised=None, backups={"count": 0, "cells": 0, "bytes": 0}, observed={"state": 10**7})
    exact = replace(REPORT, promised=0.0, observed={"state": 0})
    contenders = [Contender(name, "", "#888888", one) for name, one in (("a", nothing), ("b", exact), ("c", REPORT))]
    save_plot(tmp_path / "plot.png", contenders, title="t", subtitle="s")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_model_that_converges_is_told_with_its_regret(capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        "merges": 81,
        "items": 100,
        "l1": 0.25,
        "seconds": 3.0,
        "regret_per_item": 0.5,
        "regret_bound": 40.0,
        "held": False,
    }
    report = replace(REPORT, algorithm="regression", learned={"skipped": 0}, convergence=found, observed=None)
    assert report.to_json()["convergence"]["held"] is False
    Console(width=110).print(summary(report))
    told = capsys.readouterr().out
    assert "0.25 (L1), after 81 in 3.0 s" in told
    assert "ABOVE theorem 1's 0.4000" in told


@pytest.mark.parametrize("exchange", [None, {"pulls": [], "pushes": []}, "some"])
def test_how_a_model_converges_is_drawn(tmp_path: Path, exchange: Any) -> None:
    events = {"pulls": [[0, 7, 0, 5.0, 5.1, 0], [1, 8, 0, 5.0, 5.3, 0]], "pushes": [[0, 7, 0, 5.2], [1, 8, 0, 5.4]]}
    found = {"curve": [[0.1 * at, 1.0 / (1 + at), 10, 5.0] for at in range(20)]}
    save_convergence(tmp_path / "a.png", found, events if exchange == "some" else exchange, title="t")
    assert (tmp_path / "a.png").stat().st_size > 1000
