"""Where a starting driver finds its workers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afspark.bounds import Place
from afspark.cluster.cluster import HostTask, StageFailed
from afspark.cluster.local.local_cluster import LocalCluster
from afspark.coordinator.recovery.discovery import SEARCH_TRIES, RecordedWorkers, find_survivors, restore_workers
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.worker_state import WorkerState
from afspark.errors import WorkerFailed
from afspark.model.states import HashTable
from afspark.policies import Approximate, MiniBatch, Nothing, Tolerance
from afspark.protocol.fault_plan import FaultPlan
from afspark.protocol.lifecycle import Hint, Identity
from afspark.protocol.operator_config import OperatorConfig
from afspark.resident import Segment, SegmentRoot, Survivor
from afspark.store import CountedFailure, Loss, ObjectRef, Rescaled, WorkerRecord, open_store
from tests.unit.runtime.sparkless import Hurried

SLOTS = {"a": 1, "b": 1}
NO_RECORD = RecordedWorkers()
CHAIN = (ObjectRef("object", "sum", 100, 10, False),)


def budget(tolerance: Tolerance | None = None, workers: int = 2) -> ErrorBudget:
    states = {"counts": HashTable(key="string", value="int64")}
    return ErrorBudget(tolerance=tolerance or Approximate(80.0), states=states, place=Place(workers=workers))


def taken(theta: float) -> CountedFailure:
    return CountedFailure(taken={"counts": theta}, theta={"counts": theta})


def missing(member: WorkerState) -> dict[str, float]:
    return budget().missing(member.counted_failures)


def record(worker: int, **facts: Any) -> WorkerRecord:
    defaults: dict[str, Any] = {"incarnation": 0, "failures": 0, "completed": 4, "host": "a", "theta": {"counts": 20.0}}
    return WorkerRecord(worker=worker, chain=CHAIN, **{**defaults, **facts})


def survivor(worker: int, version: int, *, host: str = "a", incarnation: int = 0) -> Survivor:
    return Survivor(
        operator="count",
        worker=worker,
        workers=2,
        fingerprint="f",
        incarnation=incarnation,
        version=version,
        marked=False,
        host=host,
        directory=f"/{host}/{worker}",
        kept_from=version - 1,
    )


def loss(worker: int, incarnation: int = 0, *, batch: int = 5, counted: bool = True, theta: float = 20.0) -> Loss:
    return Loss(
        batch=batch,
        operator="count",
        worker=worker,
        incarnation=incarnation,
        counted=counted,
        cause="test",
        theta={"counts": theta},
        failures=incarnation,
        counted_failure=taken(theta) if counted else None,
    )


def call(
    batch: int,
    *,
    records: Sequence[WorkerRecord] | None = None,
    recorded: int | None = None,
    losses: Sequence[Loss] = (),
    survivors: Sequence[Survivor] = (),
    slots: dict[str, int] | None = None,
    agreed: ErrorBudget | None = None,
) -> tuple[list[WorkerState], list[int]]:
    return restore_workers(
        batch=batch,
        budget=agreed or budget(),
        slots=slots or SLOTS,
        recorded=RecordedWorkers(batch - 1 if recorded is None else recorded, records) if records else NO_RECORD,
        losses=losses,
        survivors=survivors,
    )


def test_the_first_driver_makes_its_workers() -> None:
    members, undeclared = call(0)
    assert [(m.home, m.hint, m.incarnation) for m in members] == [("a", Hint.CREATE, 0), ("b", Hint.CREATE, 0)]
    assert undeclared == []


@pytest.mark.parametrize("version", [4, 5], ids=["before the batch", "batch applied"])
def test_survivors_are_taken_over_where_they_are(version: int) -> None:
    survivors = [survivor(0, version, host="b"), survivor(1, version, host="a")]
    members, undeclared = call(5, records=[record(0), record(1)], survivors=survivors)
    assert [(m.home, m.hint, m.completed) for m in members] == [("b", Hint.RESUME, 4), ("a", Hint.RESUME, 4)]
    assert undeclared == []


@pytest.mark.parametrize("version", [3, 6], ids=["too old", "too new"])
def test_survivors_of_another_age_do_not_count(version: int) -> None:
    _, undeclared = call(5, records=[record(0), record(1)], survivors=[survivor(0, version), survivor(1, 4)])
    assert undeclared == [0]


def test_state_on_a_host_without_executor_is_not_there() -> None:
    _, undeclared = call(
        5, records=[record(0), record(1)], survivors=[survivor(0, 4), survivor(1, 4, host="b")], slots={"a": 2}
    )
    assert undeclared == [1]


def test_a_loss_that_was_declared_is_not_declared_again() -> None:
    members, undeclared = call(
        5, records=[record(0), record(1)], losses=[loss(0)], survivors=[survivor(0, 4), survivor(1, 4)]
    )
    assert undeclared == []
    assert (members[0].incarnation, members[0].hint, members[0].failures) == (1, Hint.RECOVER, 1)
    assert members[0].chain == CHAIN and missing(members[0]) == {"counts": 20.0}
    assert members[1].hint is Hint.RESUME


def test_a_worker_recovered_before_the_driver_died_is_found_in_its_new_incarnation() -> None:
    found = [survivor(0, 5, incarnation=1), survivor(0, 4, host="b"), survivor(1, 4)]
    members, undeclared = call(5, records=[record(0), record(1)], losses=[loss(0)], survivors=found)
    assert (members[0].home, members[0].hint, members[0].incarnation) == ("a", Hint.RESUME, 1)
    assert members[0].completed == 0, "its batch was never committed"
    assert undeclared == []


def test_losses_that_did_not_count_lower_nothing() -> None:
    losses = [loss(0), loss(0, 1, counted=False)]
    members, _ = call(5, records=[record(0), record(1)], losses=losses, survivors=[survivor(1, 4)])
    assert (members[0].incarnation, members[0].failures, missing(members[0])) == (2, 1, {"counts": 20.0})


TWO_LOSSES = {"failures": 2, "incarnation": 2, "counted_failures": (taken(20.0), taken(10.0))}


def test_failures_known_to_the_record_count_although_the_ledger_lost_them() -> None:
    members, _ = call(5, records=[record(0, **TWO_LOSSES), record(1)], survivors=[survivor(1, 4)])
    assert members[0].failures == 2
    assert missing(members[0]) == {"counts": 20.0 + 10.0}


def test_failures_after_the_record_count_although_the_ledger_lost_those_before() -> None:
    members, _ = call(5, records=[record(0, **TWO_LOSSES), record(1)], losses=[loss(0, 2, theta=5.0)])
    assert (members[0].incarnation, members[0].failures, missing(members[0])) == (3, 3, {"counts": 35.0})


def test_no_failure_counts_twice() -> None:
    """The record and the ledger both know of the first two."""
    losses = [loss(0), loss(0, 1, theta=10.0), loss(0, 2, theta=5.0)]
    members, _ = call(5, records=[record(0, **TWO_LOSSES), record(1)], losses=losses)
    assert (members[0].incarnation, members[0].failures, missing(members[0])) == (3, 3, {"counts": 35.0})


def test_what_was_taken_over_from_other_workers_counts_beside_what_the_ledger_tells_of_these() -> None:
    """The record has forgotten losses whose windows have closed, and the ledger is the longer one."""
    found = record(0, incarnation=5, counted_failures=(taken(20.0),))
    recorded = RecordedWorkers(4, [found, record(1, incarnation=5)], Rescaled(3, 3))
    losses = [loss(0, 0, theta=7.0), loss(0, 3, theta=10.0), loss(0, 4, theta=5.0)]
    members, _ = restore_workers(batch=5, budget=budget(), slots=SLOTS, recorded=recorded, losses=losses, survivors=[])
    assert (members[0].failures, missing(members[0])) == (3, {"counts": 35.0})


@pytest.mark.parametrize(("losses", "waiting"), [([], 4), ([loss(0)], 0)], ids=["same incarnation", "lost since"])
def test_items_wait_for_the_incarnation_that_holds_them(losses: list[Loss], waiting: int) -> None:
    members, _ = call(5, records=[record(0, waiting=4), record(1)], losses=losses, survivors=[survivor(0, 4)])
    assert members[0].waiting == waiting


def test_the_next_driver_knows_how_many_items_went() -> None:
    """The first one died between the loss and the batch that would have told the operator."""
    before, after = replace(loss(0), items=9), replace(loss(0, 1), items=4)
    records = [record(0, incarnation=1, counted_failures=(taken(20.0),)), record(1)]
    members, _ = call(5, records=records, losses=[before, after])
    assert members[0].request(5, budget()).lost_items == 4


@pytest.mark.parametrize(("limit", "recheck"), [(40.0, True), (80.0, False), (160.0, False)])
def test_everything_is_examined_when_the_limit_was_lowered(limit: float, recheck: bool) -> None:
    survivors = [survivor(0, 4), survivor(1, 4)]
    members, _ = call(5, records=[record(0), record(1)], survivors=survivors, agreed=budget(Approximate(limit)))
    assert [member.recheck for member in members] == [recheck, recheck]


def test_without_records_the_newest_survivor_is_the_expected_one() -> None:
    found = [survivor(0, 4, incarnation=2), survivor(1, 4)]
    members, undeclared = call(5, survivors=found, agreed=budget(Nothing()))
    assert [(m.incarnation, m.hint) for m in members] == [(2, Hint.RESUME), (0, Hint.RESUME)]
    assert undeclared == []


def test_without_records_and_survivors_a_loss_is_declared() -> None:
    _, undeclared = call(5, survivors=[survivor(1, 4)], agreed=budget(Nothing()))
    assert undeclared == [0]


@pytest.mark.parametrize(("tolerance", "theta"), [(MiniBatch(), 0.0), (Nothing(), math.inf)], ids=["exact", "nothing"])
@pytest.mark.parametrize(
    ("recorded", "declared", "undeclared"),
    [(None, 3, [0]), (None, 5, []), (2, 3, [0]), (2, 5, []), (4, 5, [])],
    ids=[
        "it has applied batches 3 and 4",
        "the last driver declared it",
        "with an old record, it has applied batches 3 and 4",
        "with an old record, the last driver declared it",
        "with the newest record, the last driver declared it",
    ],
)
def test_an_incarnation_that_may_have_completed_a_batch_is_declared_lost(
    recorded: int | None, declared: int, undeclared: list[int], tolerance: Tolerance, theta: float
) -> None:
    """Its predecessor's loss does not tell of what it has applied."""
    members, found = call(
        5,
        records=None if recorded is None else [record(0)],
        recorded=recorded,
        losses=[loss(0, batch=declared, theta=theta)],
        agreed=budget(tolerance, workers=1),
    )
    assert (found, members[0].hint, members[0].incarnation) == (undeclared, Hint.RECOVER, 1)
    assert members[0].completed == (1 if undeclared and not tolerance.needs_records else 0)


@pytest.mark.parametrize("counted", [True, False])
def test_without_backups_a_loss_of_another_policy_tells_nothing_of_a_record_that_cannot_be_read(counted: bool) -> None:
    """It took no more than θ while there were backups that the worker could be given back."""
    losses = [loss(0, batch=5, counted=counted)]
    for records in (None, [record(0)]):
        _, without = call(5, records=records, losses=losses, agreed=budget(Nothing(), workers=1))
        _, backed_up = call(5, records=records, losses=losses, agreed=budget(MiniBatch(), workers=1))
        assert (without, backed_up) == ([] if records else [0], []), "with backups its recovery tells"


def test_lost_workers_get_the_slots_that_survivors_leave_free() -> None:
    """Survivors fill one host: the others belong to the other one, or they would wait for each other."""
    slots = {"a": 2, "b": 2}
    records = [record(worker) for worker in range(4)]
    survivors = [survivor(0, 4, host="a"), survivor(1, 4, host="a")]
    members, undeclared = call(
        5, records=records, survivors=survivors, slots=slots, agreed=budget(MiniBatch(), workers=4)
    )
    assert undeclared == [2, 3]
    assert [member.home for member in members] == ["a", "a", "b", "b"]


class Wandering(LocalCluster):
    """Tasks run on host a until those for b have gone astray twice. ``rounds``: the hosts that each search was for."""

    def __init__(self) -> None:
        super().__init__({"a": 1, "b": 1})
        self.rounds: list[list[str]] = []

    def run_on(self, hosts: Mapping[int, str], task: HostTask) -> list[Any]:
        self.rounds.append(list(hosts.values()))
        for number, home in hosts.items():
            self.astray["job", number] = "a" if home == "nowhere" or len(self.rounds) < 3 else home
        return super().run_on(hosts, task)


def inhabited(root: Path) -> None:
    """A segment of worker 0 on host a, and of worker 1 on host b."""
    for worker, host in enumerate("ab"):
        identity = Identity(query_id="q", fingerprint="f", operator="count", worker=worker, workers=2)
        Segment.create(SegmentRoot(str(root), host).directory("q", "count", worker), identity, 0).close()


def found_on(cluster: LocalCluster, root: Path, *hosts: str) -> list[tuple[str, int]]:
    config = OperatorConfig(
        query_id="q",
        fingerprint="f",
        operator_name="count",
        workers=2,
        checkpoint="",
        store=open_store(str(root / "store")),
        epoch="e",
        segments=str(root),
        emit=False,
        faults=FaultPlan(),
    )
    return sorted((survivor.host, survivor.worker) for survivor in find_survivors(cluster, hosts, config))


def test_hosts_that_stayed_silent_are_asked_again(tmp_path: Path) -> None:
    """A task meant for b that ends up on a says nothing about b."""
    inhabited(tmp_path)
    cluster = Wandering()
    assert found_on(cluster, tmp_path, "a", "b") == [("a", 0), ("b", 1)]
    assert cluster.rounds == [["a", "b"], ["b"], ["b"]]


def test_a_host_that_never_answers_does_not_keep_the_driver_from_starting(tmp_path: Path) -> None:
    inhabited(tmp_path)
    cluster = Wandering()
    assert found_on(cluster, tmp_path, "a", "nowhere") == [("a", 0)]
    assert cluster.rounds == [["a", "nowhere"]] + [["nowhere"]] * (SEARCH_TRIES - 1)


class Failing(LocalCluster):
    """Tasks die so many times before they come to their end; ``leaves``: then host b has no executor any more."""

    def __init__(self, times: int, *, leaves: bool = False) -> None:
        super().__init__({"a": 1, "b": 1}, clock=Hurried())
        self.times, self.leaves = times, leaves

    def run_on(self, hosts: Mapping[int, str], task: HostTask) -> list[Any]:
        self.times -= 1
        if self.times >= 0:
            raise StageFailed("each of its processes was killed")
        return super().run_on(hosts, task)

    def slots_by_host(self) -> dict[str, int]:
        return {"a": 1} if self.leaves else super().slots_by_host()


def test_tasks_that_died_while_they_looked_for_state_are_run_again(tmp_path: Path) -> None:
    inhabited(tmp_path)
    assert found_on(Failing(SEARCH_TRIES - 1), tmp_path, "a", "b") == [("a", 0), ("b", 1)]
    assert found_on(Failing(1, leaves=True), tmp_path, "a", "b") == [("a", 0)]


def test_state_that_nobody_could_look_for_is_not_given_up(tmp_path: Path) -> None:
    inhabited(tmp_path)
    with pytest.raises(WorkerFailed) as caught:
        found_on(Failing(SEARCH_TRIES), tmp_path, "a", "b")
    assert caught.value.hosts == ["a", "b"]


def test_who_starts_anew_is_behind_no_state_that_is_left_and_lacks_nothing() -> None:
    members, undeclared = restore_workers(
        batch=5,
        budget=budget(),
        slots=SLOTS,
        recorded=RecordedWorkers(anew=True),
        losses=[loss(0, 1, batch=3)],
        survivors=[survivor(0, 4, incarnation=2), survivor(1, 4)],
    )
    assert not undeclared
    assert [(one.incarnation, one.version, one.hint, one.saved) for one in members] == [
        (3, 4, Hint.CREATE, True),
        (1, 4, Hint.CREATE, True),
    ]
    assert not any(one.chain or one.completed or one.recovering for one in members)
    assert {one.home for one in members} == {"a", "b"} and len(members[0].counted_failures) == 1
