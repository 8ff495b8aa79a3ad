"""Items that are lost on their way through a relay are told of the operators that the user has written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.unit.push.relayed import AFTER, BEFORE, LIMIT, LOST

ROOT = Path(__file__).parents[3]


def test_what_a_relay_loses_is_told_of_its_readers(tmp_path: Path) -> None:
    """A driver is killed while acknowledged items wait at its receiver; two operators would have read them."""
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.push.relayed", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    arrived = BEFORE + AFTER
    assert told["counts"] == {"ones": arrived, "threes": 3 * arrived}, "the items that wait are meant to be lost"
    # Half of the budget for each reader, half of that for the first failure: a producer may never come back to tell.
    most = LIMIT / 2 / 2
    assert most >= LOST
    assert told["bounds"] == {"ones": {"counts": most}, "threes": {"counts": 3 * most}}
    assert all(row["counts"] == most for row in told["delivered"].values()), "rows that lack items say so"
    lost = {name: sum(items for one, items in told["item_losses"] if one == name) for name in ("ones", "threes")}
    assert lost == {"ones": LOST, "threes": LOST}
    assert told["operators"] == ["ones", "threes"]
    assert told["inspected"] == {"ones": [{"counts": most}, most], "threes": [{"counts": 3 * most}, most]}
    # Half of the budget each, for two lanes; a relay has none.
    assert told["plan"] == [LIMIT / 2 / (2 * 2)] and told["why"].startswith("1/2 of")
