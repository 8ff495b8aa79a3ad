"""What ``--hosts`` takes and refuses, and what a report says of killed hosts; no host is started."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection
from typing import Any

import pytest

from afspark.cli.host_killer import HostKill, HostKiller, QueryPace, with_recoveries
from afspark.cli.host_options import check_second_host, slots_of_hosts, spark_settings
from afspark.cli.options import parse
from afspark.cluster.loopback.host_failures import FailureSchedule, PlannedFailure
from afspark.cluster.loopback.loopback_cluster import check_addresses, host_names
from afspark.errors import UsageError
from afspark.policies import ActiveStandby, MiniBatch
from afspark.report.document import RunReport
from afspark.report.summary import console, summary

A, B = host_names(2)


def parsed(line: str) -> Any:
    return parse(f"run wordcount --generate 1MB {line}".split())


def test_slots_are_those_of_workers_unless_said() -> None:
    assert slots_of_hosts(parsed("--hosts 2 --workers 3"), ActiveStandby()) == 3
    assert slots_of_hosts(parsed("--hosts 3 --workers 3 --host-slots 2"), ActiveStandby()) == 2
    assert slots_of_hosts(parsed("--hosts 1"), MiniBatch()) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--away 2", "--hosts"),
        ("--host-slots 2", "--hosts"),
        ("--hosts 2 --master local[2]", "--master"),
        ("--hosts 2 --conf spark.master=local", "--master"),
        ("--hosts 0", "at least 1"),
        ("--hosts 201", "too many"),
    ],
)
def test_options_that_do_not_go_together(line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parsed(line)


def test_a_secondary_needs_a_second_host() -> None:
    with pytest.raises(UsageError) as refused:
        slots_of_hosts(parsed("--hosts 1"), ActiveStandby())
    assert refused.value.hosts == 1 and "--hosts 2" in refused.value.remedy


@pytest.mark.parametrize("line", ["", "--master local[4]", "--conf spark.master=local"])
def test_one_machine_is_no_second_host(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_MASTER", raising=False)
    options = parsed(f"--tolerance active-standby {line}")
    with pytest.raises(UsageError) as refused:
        check_second_host(options, ActiveStandby())
    assert refused.value.hosts == 1 and "--hosts 2" in refused.value.remedy
    check_second_host(options, MiniBatch())


def test_a_cluster_may_have_a_second_host(monkeypatch: pytest.MonkeyPatch) -> None:
    check_second_host(parsed("--tolerance active-standby --master spark://host:7077"), ActiveStandby())
    check_second_host(parsed("--tolerance active-standby --master local-cluster[2,1,512]"), ActiveStandby())
    monkeypatch.setenv("SPARK_MASTER", "spark://host:7077")
    check_second_host(parsed("--tolerance active-standby"), ActiveStandby())


def test_too_few_slots_are_refused_with_the_number_that_would_do() -> None:
    with pytest.raises(UsageError) as refused:
        slots_of_hosts(parsed("--hosts 2 --workers 4 --host-slots 3"), ActiveStandby())
    assert refused.value.slots == 3 and "--host-slots 4" in refused.value.remedy


def test_an_address_that_the_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: tuple[str, int]) -> None:
        raise OSError(99, "Cannot assign requested address")

    check_addresses(["127.0.0.1"])
    monkeypatch.setattr(socket, "socket", type("Probe", (socket.socket,), {"bind": refuse}))
    with pytest.raises(UsageError) as refused:
        check_addresses([A])
    assert refused.value.host == A and "ifconfig" in refused.value.remedy


def test_executors_get_the_options_of_other_jvms() -> None:
    found = spark_settings({"SPARK_SUBMIT_OPTS": "-Xint"})
    assert found["spark.executor.extraJavaOptions"] == "-Xint" and found["spark.driver.host"] == "127.0.0.1"


class NotedHosts:
    """Hosts that are there once they were started."""

    def __init__(self) -> None:
        self.alive = {A, B}
        self.done: list[tuple[str, str]] = []

    def kill(self, host: str) -> None:
        self.alive.discard(host)
        self.done.append(("kill", host))

    def start(self, host: str) -> None:
        self.alive.add(host)
        self.done.append(("start", host))


def test_a_killer_carries_the_schedule_out_and_notes_it() -> None:
    hosts, told = NotedHosts(), list[str]()
    schedule = FailureSchedule((A, B), (PlannedFailure(1, 0.0, 1),), away_seconds=0)

    def alive() -> Collection[str]:
        return hosts.alive

    with HostKiller(hosts, schedule, alive=alive, say=told.append) as killer:
        with killer.watching(lambda: QueryPace(1, 2.0)):
            while not killer.kills:
                time.sleep(0.01)
        while killer.kills[0].back_at is None:
            time.sleep(0.01)
    assert hosts.done == [("kill", B), ("start", B)]
    assert killer.kills[0].host == B and killer.kills[0].batches == 1 and killer.error is None
    assert [line.split()[0] for line in told] == [B, B]


def test_a_killer_that_fails_says_so_and_the_query_goes_on() -> None:
    told = list[str]()

    def alive() -> Collection[str]:
        raise ConnectionError("Spark is gone.")

    schedule = FailureSchedule((A, B), (PlannedFailure(1, 0.0, 1),))
    killer = HostKiller(NotedHosts(), schedule, alive=alive, say=told.append)
    with killer, killer.watching(lambda: QueryPace(1, 2.0)):
        while killer.error is None or not told:
            time.sleep(0.01)
    assert killer.kills == [] and "Spark is gone" in told[0]


def loss(at: float, **more: Any) -> dict[str, Any]:
    entry = {"operator": "wordcount", "worker": 0, "batch": 5, "at": at, "internal": False, "host": B}
    return entry | {"restore_seconds": 0.0, "gap_seconds": 0.5} | more


def test_losses_belong_to_the_kill_before_them() -> None:
    planned = PlannedFailure(1, 0.0, 0)
    kills = [HostKill(A, 100.0, 3.0, 4, planned, 108.0), HostKill(B, 120.0, 23.0, 9, planned)]
    ledger = [loss(99.0), loss(101.0), loss(120.5, restore_seconds=0.2, host=A), loss(121, gap_seconds=None, host=None)]
    first, second = with_recoveries(kills, ledger)
    (promoted,) = first["losses"]
    assert promoted["promoted"] and promoted["detection_seconds"] == 1.0 and promoted["recovered_seconds"] == 1.5
    assert first["away_seconds"] == 8.0 and second["away_seconds"] is None
    assert [one["promoted"] for one in second["losses"]] == [False, False]
    assert [one["recovered_seconds"] for one in second["losses"]] == [1.0, None]


def test_a_run_without_kills_has_nothing_to_tell_of_them() -> None:
    assert with_recoveries([], [loss(99.0)]) == []


def test_the_summary_and_the_document_name_killed_hosts() -> None:
    kills = with_recoveries([HostKill(A, 100.0, 3.0, 4, PlannedFailure(1, 0.0, 0), 108.0)], [loss(101.0)])
    hosts = {"names": [A, B], "slots": 2, "away_seconds": 3.0, "wanted": 2, "kills": kills}
    report = RunReport(
        algorithm="wordcount",
        settings={},
        items=1,
        bytes=1,
        seconds=1.0,
        batches=1,
        backups={"count": 0, "cells": 0, "bytes": 0},
        state={"cells": 0, "bytes": 0},
        main_state="counts",
        ledger=[],
        promised=0.0,
        realised={},
        hosts=hosts,
    )
    with (shown := console()).capture() as captured:
        shown.print(summary(report))
    text = captured.get()
    assert "Killed hosts (1 of 2)" in text and A in text and "1.5 s" in text and "over before" in text
    assert report.to_json()["hosts"]["kills"][0]["losses"][0]["promoted"] is True
