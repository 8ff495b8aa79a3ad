"""Figures about secondaries: what is read from the system, and the page and plot about them; no host is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from afspark.bench.experiments import experiment_replicas
from afspark.bench.host_usage import HostUsage, folder_bytes, loopback_bytes, usage_of
from afspark.bench.replica_costs import FAILURES, schemes_with_secondaries
from afspark.bench.rig import Rig
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


def test_bytes_over_the_loopback_interface(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "dev").write_text("Inter-| Receive\n face |bytes\n  eth0: 5 1\n    lo: 1234 9 0\n")
    assert loopback_bytes(proc=tmp_path) == 1234
    assert loopback_bytes(proc=tmp_path / "nowhere") == 0


def test_files_count_with_what_they_take(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10_000)
    assert folder_bytes(tmp_path) >= 10_000 and folder_bytes(tmp_path / "none") == 0


def test_schemes_appear_once_the_engine_has_them() -> None:
    assert schemes_with_secondaries()["active-standby"] is ActiveStandby


def test_keys_follow_the_records() -> None:
    sizes = experiment_replicas._sizes
    assert sizes(Rig(Path(), seeds=20, records=10**8)) == {10**6: 20, 10**4: 3, 10**7: 3}
    assert sizes(Rig(Path(), seeds=2, records=10**6)) == {10**5: 2, 10**4: 2}


def figures(*names: str) -> dict[str, Any]:
    return {name: {"median": 1.5, "least": 1.0, "most": 2.0} for name in names}


def test_the_page_has_a_row_for_every_scheme_and_failure(tmp_path: Path) -> None:
    costs = figures(
        "primary_cpu",
        "secondary_cpu",
        "secondary_state",
        "secondary_python",
        "network_per_record",
        "records_per_second",
    )
    recovery = figures("recovery", "delay", "detection", "promoted", "late")
    found = {
        "keys": 100,
        "schemes": ["active-standby"],
        "costs": {
            "figures": {"none": costs, "active-standby": costs},
            "throughput": figures("none", "active-standby"),
        },
        "recoveries": {"100": {failure: {"active-standby": recovery} for failure in FAILURES}},
    }
    text = experiment_replicas.page(found)
    assert text.count("| active-standby |") == 1 + len(FAILURES) and all(f"| {one} |" in text for one in FAILURES)
    assert experiment_replicas.draw(found, tmp_path / "plot.png") and (tmp_path / "plot.png").stat().st_size > 10_000
