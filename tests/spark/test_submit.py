"""Programs that ``spark-submit`` starts: settings given to it are respected, and it can be stopped like the program."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.spark.submitting import SECONDS, python_below, said, submitted, until, write_input

LOCAL = ("--master", "local[3]", "--conf", "spark.ui.enabled=false")


def test_settings_given_to_spark_submit_are_respected(tmp_path: Path) -> None:
    truth = write_input(tmp_path)
    defaults = tmp_path / "defaults.conf"
    defaults.write_text("spark.sql.shuffle.partitions 3\nspark.app.name from-a-file\n")
    options = (
        *("--properties-file", str(defaults), "--name", "counted", "--driver-memory", "600m"),
        *("--conf", "spark.locality.wait=7s", "--conf", f"spark.pyspark.python={sys.executable}"),
    )
    with submitted(tmp_path, "MiniBatch()", "now", options=(*LOCAL, *options)) as process:
        found = said(process)
    assert found["counts"] == truth
    assert found["settings"]["spark.master"] == "local[3,4]" and found["slots"] == 3
    assert found["settings"]["spark.app.name"] == "counted"
    assert found["settings"]["spark.driver.memory"] == "600m"
    assert (found["wait"], found["partitions"]) == ("7s", "3")
    # Those of afspark that nobody has given.
    assert found["settings"]["spark.python.daemon.module"] == "afspark.cluster.spark.daemon"
    assert found["settings"]["spark.speculation"] == "false"


@pytest.mark.thorough
@pytest.mark.parametrize("whom", ["the JVM", "the program", "all"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda one: one.name)
def test_a_stop_of_spark_submit_flushes(tmp_path: Path, number: signal.Signals, whom: str) -> None:
    """Nothing was ever backed up by the policy. Then a start without any state is exact, and nothing is counted."""
    truth = write_input(tmp_path)
    commits = tmp_path / "checkpoint" / "commits"
    with submitted(tmp_path, "Approximate(theta=1e9)", "100 milliseconds", options=LOCAL) as process:
        until(lambda: (commits / "0").exists() or process.poll() is not None)
        if whom == "all":
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid if whom == "the JVM" else python_below(process.pid), number)
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode not in (0, -signal.SIGKILL), errors
    assert "Traceback" not in errors and "not durable" not in errors, errors
    shutil.rmtree(tmp_path / "segments")
    with submitted(tmp_path, "Approximate(theta=1e9)", "now", options=LOCAL) as process:
        found = said(process)
    assert found["counts"] == truth and found["bound"] == 0
    assert found["counted"] == [False, False]
