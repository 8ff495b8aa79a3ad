"""Figures about secondaries: what is read from the system, and the page and plot about them; no host is started."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from afspark.bench.experiments import (
    experiment_detection,
    experiment_replica_costs,
    experiment_replica_intervals,
    experiment_replica_recovery,
)
from afspark.bench.host_network import BridgedNetwork
from afspark.bench.host_usage import HostUsage, folder_bytes, usage_of
from afspark.bench.kept_rounds import KeptRounds
from afspark.bench.real_failures import RealFailure
from afspark.bench.recovery_trials import Trials, figures_of
from afspark.bench.replica_case import ReplicaCase, TookTooLong
from afspark.bench.scheme_colors import NONE_COLOR, SCHEME_COLORS
from afspark.bench.trial_series import TrialSeries, median_of, run_series, summaries, summary, together
from afspark.cluster.loopback.host_processes import executors_of, processes_of
from afspark.policies import ActiveStandby


def process(proc: Path, pid: int, session: int, command: str, *, ticks: int = 0, state: str = "S") -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(f"{pid} (a ) b) {state} 1 {session} {session} 0 -1 0 0 0 0 0 {ticks} 0 {ticks} 0 20")
    (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")
    (folder / "status").write_text("Name:\tx\nRssAnon:\t    2000 kB\nRssShmem:\t    9000 kB\n")


def test_the_processes_of_a_host_are_those_of_its_session(tmp_path: Path) -> None:
    process(tmp_path, 10, 10, "/usr/bin/java org.apache.spark.deploy.worker.Worker")
    process(tmp_path, 11, 10, "/usr/bin/java org.apache.spark.executor.CoarseGrainedExecutorBackend")
    process(tmp_path, 12, 10, "/usr/bin/python3 -m daemon")
    process(tmp_path, 13, 10, "/usr/bin/python3 -m daemon", state="Z")
    process(tmp_path, 20, 20, "/usr/bin/java org.apache.spark.executor.CoarseGrainedExecutorBackend")
    assert sorted(processes_of(10, proc=tmp_path)) == [10, 11, 12]
    assert executors_of(10, proc=tmp_path) == [11] and executors_of(20, proc=tmp_path) == [20]


def test_cpu_is_that_of_all_processes_and_memory_that_of_python(tmp_path: Path) -> None:
    process(tmp_path, 10, 10, "/usr/bin/java Worker", ticks=100)
    process(tmp_path, 11, 10, "/usr/bin/python3 -m daemon", ticks=200)
    process(tmp_path, 20, 20, "/usr/bin/python3 -m daemon", ticks=400)
    found = usage_of(10, proc=tmp_path)
    assert found.cpu_seconds == 2 * usage_of(20, proc=tmp_path).cpu_seconds * 300 / 800
    assert found.python_bytes == 2000 * 1024
    assert HostUsage(3.0, 0).since(HostUsage(1.0, 0)) == 2.0


def test_files_count_with_what_they_take(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10_000)
    assert folder_bytes(tmp_path) >= 10_000 and folder_bytes(tmp_path / "none") == 0


def test_a_worker_is_back_with_the_batch_that_has_found_the_loss() -> None:
    lost = [
        {
            "batch": 6,
            "steps": {"detection": 0.4, "promotion": 0.3, "wait": None},
            "estimated": {"seconds": 1.5},
            "restore_seconds": 0.0,
            "host": "b",
        }
    ]
    ends = {6: 10.1, 7: 11.2, 8: 11.7, 9: 13.2}
    found = figures_of(ends, 10.0, 0.5, lost, {"foreseen": 2.0})
    assert found["recovery"] == pytest.approx(1.2) and found["held_up"] == pytest.approx(3.2) and found["usual"] == 0.5
    assert found["step_detection"] == 0.4 and "step_wait" not in found
    assert found["estimated"] == 1.5 and found["promoted"] == 1.0
    assert "estimated" not in figures_of({6: 10.1}, 10.0, 0.5, [], {})


def test_an_estimate_below_the_measured_time_is_counted() -> None:
    trials = [{"recovery": 2.0, "estimated": 1.0}, {"recovery": 1.0, "foreseen": 0.9}, {"failed": 1.0}]
    found = summary(trials)
    assert (found["count"], found["failed"], found["estimates"], found["too_low"]) == (3, 1, 2, 1)
    assert found["above"] == 0.5 and found["recovery"]["most"] == 2.0
    assert together(found, "estimated", "foreseen") == 1.9 and median_of(found, "noticed") is None


class StandingHosts:
    """Hosts that no query of these tests asks for anything."""

    def complete(self) -> None:
        pass


class OneQuery(ReplicaCase):
    """A case whose query is nobody; ``fails``: starting it fails so often."""

    fails: ClassVar[list[bool]] = []

    @contextmanager
    def running(self, hosts: Any, tolerance: Any) -> Iterator[Any]:
        if self.fails and self.fails.pop():
            raise TookTooLong("no batch came")
        yield None


def test_a_series_goes_on_where_it_was_and_with_another_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def run(self: Trials, failure: RealFailure, seed: int) -> dict[str, float]:
        asked.append((failure, seed))
        if len(asked) == 2:
            raise TookTooLong("no batch came")
        return {"recovery": 1.0}

    monkeypatch.setattr(Trials, "run", run)
    monkeypatch.setattr(OneQuery, "fails", [False, False, True])
    kinds = (RealFailure.FROZEN, RealFailure.HOST_KILLED)
    series = TrialSeries(
        contest="few keys",
        scheme="deployed",
        case=OneQuery(keys=1),
        tolerance=ActiveStandby(),
        failures=kinds,
        seeds=(1, 2),
    )
    kept = KeptRounds(tmp_path / "kept", {})
    hosts: Any = StandingHosts()
    run_series(hosts, [series], kept)
    assert asked == [(kind, seed) for seed in (1, 2) for kind in kinds]
    again = KeptRounds(tmp_path / "kept", {})
    run_series(hosts, [series], again)
    assert len(asked) == 4
    found = summaries([series], again)
    assert found["host killed"]["deployed"]["failed"] == 1 and found["host frozen"]["deployed"]["count"] == 2


def spreads(*names: str) -> dict[str, Any]:
    return {name: {"median": 1.5, "least": 1.0, "most": 2.0} for name in names}


def test_the_page_has_a_row_for_every_scheme_and_failure(tmp_path: Path) -> None:
    recovery = spreads("recovery", "held_up", "noticed", "step_wait", "step_promotion", "estimated", "late")
    recovery |= {"count": 3, "failed": 1, "estimates": 2, "too_low": 1}
    failures = {str(failure): {"active-standby": recovery} for failure in RealFailure}
    found = {"records": 1000, "pause": 500, "interval": 1.0, "recoveries": {"1000000": failures}}
    text = experiment_replica_recovery.page(found)
    assert text.count("| active-standby | 3, 1 failed, late | 1.50 (1.00 to 2.00) |") == len(RealFailure)
    assert all(f"| {failure} |" in text for failure in RealFailure)
    plot = tmp_path / "plot.png"
    assert experiment_replica_recovery.draw(found, plot) and plot.stat().st_size > 10_000


def test_the_pages_about_costs_intervals_and_detection(tmp_path: Path) -> None:
    figures = spreads(
        *("primary_cpu", "secondary_cpu", "secondary_state", "secondary_python"),
        *("received_per_record", "sent_per_record", "records_per_second"),
    )
    ratios = spreads("none", "hot-standby")
    costs = {"keys": 10, "records": 5, "interval": 1.0, "seconds": 3.0, "throughput": ratios, "cpu": ratios}
    costs["figures"] = {"none": figures, "hot-standby": figures}
    assert "| hot-standby | 1.50 (1.00 to 2.00) |" in experiment_replica_costs.page(costs)
    assert experiment_replica_costs.draw(costs, tmp_path / "costs.png")
    assert len({NONE_COLOR, *SCHEME_COLORS.values()}) == 8

    names = [kind.name for kind in experiment_replica_intervals.SCHEMES_WITH_CHECKPOINTS]
    every = [experiment_replica_intervals.contest_of(one) for one in experiment_replica_intervals.INTERVALS]
    recovery = spreads("recovery", "step_replay") | {"count": 2}
    intervals = {
        "keys": 10,
        "costs": {one: {name: spreads("throughput", "cpu") for name in names} for one in every},
        "recoveries": {one: dict.fromkeys(names, recovery) for one in every},
    }
    assert experiment_replica_intervals.page(intervals).count("| every 0.5 s |") == len(names)
    assert experiment_replica_intervals.draw(intervals, tmp_path / "intervals.png")
    # A scheme that did not recover once has no point, and not one at zero.
    intervals["recoveries"][every[1]] = {name: {"count": 2} for name in names}
    assert "| 2 | – | – | – |" in experiment_replica_intervals.page(intervals)
    panel = experiment_replica_intervals._panel("", intervals["recoveries"], "recovery")
    assert all([math.isnan(y) for y in line.y] == [False, True, False] for line in panel.lines)
    assert list(panel.ticks.values()) == ["0.5 s", "2 s", "8 s"]
    assert experiment_replica_intervals.draw(intervals, tmp_path / "gaps.png")

    who = {one.name: spreads("noticed", "recovery") | {"count": 1} for one in experiment_detection.WATCHED}
    detection = {"keys": 10, "pause": 500, "found": {str(RealFailure.FROZEN): who}}
    assert experiment_detection.page(detection).count("| host frozen |") == len(who)


def test_a_network_is_made_of_names_that_carry_its_number() -> None:
    network = BridgedNetwork(2, 4711)
    assert network.hosts == ("10.213.211.2", "10.213.211.3") and network.driver == "10.213.211.1"
    assert network.launcher[-1].format(host=network.hosts[0]) == "afspark4711-10.213.211.2"
