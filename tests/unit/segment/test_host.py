from __future__ import annotations

import os
from pathlib import Path

import pytest

from afspark.cluster.spark.spark_host import alive_parents, executor_pid, spark_host


class FakeProc:
    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, pid: int, parent: int, *arguments: str, name: str = "program") -> None:
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} {pid} {pid} 0 -1\n")
        (folder / "cmdline").write_bytes(b"".join(part.encode() + b"\0" for part in arguments))


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    monkeypatch.delenv("AFSPARK_HOST", raising=False)
    fake = FakeProc(tmp_path)
    fake.add(1, 0, "/sbin/init")
    fake.add(os.getpid(), 30, "python", "-m", "pyspark.daemon", name="a) S 1 (b")
    fake.add(30, 20, "python", "-m", "pyspark.daemon")
    return fake


@pytest.mark.parametrize(
    "backend",
    [
        "org.apache.spark.executor.CoarseGrainedExecutorBackend",
        "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    ],
)
def test_name_from_the_executor(proc: FakeProc, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFSPARK_HOST", "not-this-one")
    proc.add(20, 10, "/usr/bin/java", "-Xmx1g", backend, "--executor-id", "0", "--hostname", "127.0.0.2")
    proc.add(10, 1, "/bin/bash", "-c", "java --hostname x")
    assert spark_host("driver", proc=proc.root) == "127.0.0.2"
    assert executor_pid(proc=proc.root) == 20
    assert alive_parents(proc=proc.root) == (30, 20, 10, 1)


def test_local_mode_has_no_executor(proc: FakeProc) -> None:
    proc.add(20, 10, "/usr/bin/java", "org.apache.spark.deploy.SparkSubmit", "job.py")
    proc.add(10, 1, "containers", "run", "--hostname", "box")
    assert spark_host("driver", proc=proc.root) == "driver"
    assert executor_pid(proc=proc.root) is None


def test_variable_where_there_is_no_executor(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFSPARK_HOST", "named")
    assert spark_host("driver", proc=proc.root) == "named"


def test_flag_without_a_name_is_no_name(proc: FakeProc) -> None:
    proc.add(20, 1, "java", "CoarseGrainedExecutorBackend", "--hostname")
    assert spark_host("driver", proc=proc.root) == "driver"


def test_name_outlives_the_executor(proc: FakeProc) -> None:
    proc.add(20, 1, "java", "CoarseGrainedExecutorBackend", "--hostname", "h")
    assert spark_host("driver", proc=proc.root) == "h"
    proc.add(30, 1, "python", "-m", "pyspark.daemon")
    assert spark_host("driver", proc=proc.root) == "h"
    assert executor_pid(proc=proc.root) not in alive_parents(proc=proc.root)


def test_a_loop_in_the_process_table_ends(proc: FakeProc) -> None:
    proc.add(20, 30, "sh")
    assert alive_parents(proc=proc.root) == (30, 20)


def test_unreadable_process_table(tmp_path: Path) -> None:
    assert alive_parents(proc=tmp_path) == ()
    assert executor_pid(proc=tmp_path) is None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs a /proc folder")
def test_real_parents() -> None:
    assert alive_parents()[0] == os.getppid()
