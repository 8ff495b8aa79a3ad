"""Real executors on two hosts, killed for real: who loses what, and what comes back.

All in one file, which runs in one process: the hosts can serve one cluster at a time.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

from afspark.cluster.loopback.loopback_cluster import LoopbackCluster
from afspark.push.producer.producer import Producer
from tests.cluster.conftest import Driver
from tests.cluster.machines import HOSTS, executors, lose_host
from tests.cluster.snapshot_runs import APPLIED, weight
from tests.cluster.training_cluster import ITEMS
from tests.spark.stages import write_events
from tests.spark.streams import Place, worst, write_text

BATCHES = 5
EVENT_FILES = 12
STAGES_THETA = 300.0
FILES = 4 * BATCHES
THETA = 400.0
HOMES = [HOSTS[0], HOSTS[1]] * 2


@pytest.mark.thorough
def test_workers_stay_where_their_state_is(driver: Driver, place: Place) -> None:
    """Other jobs take all slots for longer than Spark waits by default, and fill the executors' memory."""
    truth = write_text(place.input, FILES)
    answer = driver.run(place, ["approximate", THETA], keyed=True, events={"1": ["occupy", "5"]})
    assert answer["homes"] == [HOMES] * BATCHES
    assert answer["counts"] == truth
    assert answer["ledger"] == [] and answer["bound"] == 0


@pytest.mark.thorough
def test_killed_executors_lose_nothing(driver: Driver, place: Place) -> None:
    """Between batches, and in the middle of one."""
    truth = write_text(place.input, FILES)
    events = {"1": ["kill", HOSTS[1]], "2": ["mark", "marker"]}
    answer = driver.run(place, ["approximate", THETA], fragile=True, events=events)
    assert not (place.root / "marker").exists()
    assert answer["counts"] == truth
    assert answer["ledger"] == []
    assert answer["homes"] == [HOMES] * BATCHES


@pytest.mark.parametrize(
    ("tolerance", "keyed", "bound"),
    [pytest.param(["minibatch"], True, 0.0, marks=pytest.mark.thorough), (["approximate", THETA], False, THETA / 4)],
    ids=["minibatch", "approximate"],
)
def test_exactly_the_workers_of_a_lost_host_recover(
    driver: Driver, place: Place, tolerance: list[object], keyed: bool, bound: float
) -> None:
    truth = write_text(place.input, FILES)
    answer = driver.run(place, tolerance, keyed=keyed, events={"2": ["lose", HOSTS[0]]})
    assert {entry["worker"] for entry in answer["ledger"]} == {0, 2}
    assert answer["homes"][-1] == HOMES
    assert worst(truth, answer["counts"]) <= answer["bound"] == bound


@pytest.mark.parametrize(
    "scheme",
    [
        "hot-standby",
        pytest.param("active-replication", marks=pytest.mark.thorough),
        pytest.param("active-standby", marks=pytest.mark.thorough),
        pytest.param("cold-standby", marks=pytest.mark.thorough),
    ],
)
def test_a_standby_takes_the_place_of_a_lost_host(driver: Driver, place: Place, scheme: str) -> None:
    """Two workers on a host each, with their secondaries on the other one."""
    truth = write_text(place.input, FILES)
    events = {"3": ["lose", HOSTS[0]]}
    answer = driver.run(place, [scheme, 3600], keyed=True, workers=2, events=events)
    assert answer["counts"] == truth and answer["bound"] == 0
    assert answer["homes"][-1] == [HOSTS[1]] * 2
    (entry,) = answer["ledger"]
    assert (entry["worker"], entry["restored_cells"]) == (0, 0)
    # Those that process are at most one batch behind; the others have the checkpoint of the first batch.
    assert entry["replayed_batches"] <= (1 if scheme.startswith("active") else 3)


@pytest.mark.parametrize(
    "scheme",
    [
        "active-standby",
        pytest.param("hot-standby", marks=pytest.mark.thorough),
        pytest.param("deployed", marks=pytest.mark.thorough),
    ],
)
def test_a_standby_takes_the_place_of_a_frozen_host(driver: Driver, place: Place, scheme: str) -> None:
    """The driver finds out by itself: Spark would wait two minutes for a sign of life. The host wakes up later."""
    truth = write_text(place.input, FILES)
    events = {"1": ["freeze", HOSTS[0]], "3": ["thaw", HOSTS[0]]}
    answer = driver.run(place, [scheme, 3600], keyed=True, workers=2, events=events)
    assert answer["counts"] == truth and answer["bound"] == 0
    assert answer["homes"][1] == list(HOSTS) and answer["homes"][2] == answer["homes"][3] == [HOSTS[1]] * 2
    assert answer["failures"][0] == [HOSTS[0], "silent"]
    (entry,) = answer["ledger"]
    assert entry["worker"] == 0 and entry["replayed_batches"] <= (1 if scheme == "active-standby" else 2)
    assert (entry["restored_cells"] > 0) == (scheme == "deployed"), "the others have their states in memory"


@pytest.mark.thorough
def test_a_host_that_was_frozen_for_a_while_has_lost_nothing(driver: Driver, place: Place) -> None:
    """The batch is tried again when it answers; tasks of the first try that wake up do no harm."""
    truth = write_text(place.input, FILES)
    answer = driver.run(
        place, ["approximate", THETA], keyed=True, silentSeconds=1, grace=120, events={"1": ["nap", HOSTS[0]]}
    )
    assert answer["counts"] == truth and answer["bound"] == 0 and answer["ledger"] == []
    assert answer["homes"] == [HOMES] * BATCHES
    assert answer["failures"][0] == [HOSTS[0], "silent"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("tolerance", "grace"),
    [(["minibatch"], 2), (["passive-replication", 3600], 3600), (["approximate", THETA], 2)],
    ids=["minibatch", "passive-replication", "approximate"],
)
def test_workers_of_a_host_that_never_comes_back_move(
    driver: Driver, machines: LoopbackCluster, place: Place, tolerance: list[object], grace: int
) -> None:
    """Under a scheme it is not waited for."""
    truth = write_text(place.input, FILES)
    group = str(machines.session(HOSTS[1]))
    answer = driver.run(place, tolerance, grace=grace, events={"1": ["gone", group]})
    assert {entry["worker"] for entry in answer["ledger"]} == {1, 3}
    assert answer["homes"][-1] == [HOSTS[0]] * 4
    assert worst(truth, answer["counts"]) <= answer["bound"] <= (THETA if tolerance[0] == "approximate" else 0)


@pytest.mark.thorough
def test_system_failures_that_kill_every_executor(driver: Driver, place: Place) -> None:
    truth = write_text(place.input, FILES)
    answer = driver.run(place, ["approximate", THETA], failures=2, batches=BATCHES)
    assert {entry["worker"] for entry in answer["ledger"]} == {0, 1, 2, 3}
    assert min(Counter(entry["worker"] for entry in answer["ledger"] if entry["counted"]).values()) >= 1
    assert 0 < worst(truth, answer["counts"]) <= answer["bound"] < THETA


@pytest.mark.thorough
def test_map_outputs_lost_after_one_worker_has_applied_them(driver: Driver, place: Place) -> None:
    """What is read again differs, so the whole batch has to be taken back."""
    truth = write_text(place.input, 4)
    (place.root / "marker").touch()
    answer = driver.run(place, ["minibatch"], keyed=True, fragile=True, salted=True)
    assert not (place.root / "marker").exists()
    assert answer["tries"] > 1 and answer["ledger"] == []
    got: Counter[str] = Counter()
    readings = set()
    for word, count in answer["counts"].items():
        salt, _, rank = word[1:].partition("x") if word.startswith("w") else ("", "", "")
        readings.add(salt)
        got[f"w{rank}" if salt else word] += count
    assert got == truth
    assert len(readings - {""}) == 4, "four map tasks read the batch; what others read must have left no trace"


def test_a_killed_driver_finds_all_state_again(driver: Driver, place: Place) -> None:
    truth = write_text(place.input, FILES)
    # With little to replay every batch has its record, behind the batches.
    given = {"events": {"0": ["die_after_record", "2"]}, "maxReplaySeconds": 0.1}
    assert driver.run(place, ["approximate", THETA], **given) == {}
    done = committed(place)
    answer = driver.run(place, ["approximate", THETA])
    assert answer["batches"] == BATCHES - done - 1
    assert answer["counts"] == truth
    assert answer["ledger"] == []


# --- three operators with windows and feedback -------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "tolerance",
    [["minibatch"], pytest.param(["approximate", STAGES_THETA], marks=pytest.mark.thorough)],
    ids=["minibatch", "approximate"],
)
def test_a_host_lost_under_a_pipeline(driver: Driver, place: Place, tolerance: list[object]) -> None:
    truth = write_events(place, EVENT_FILES)
    answer = driver.run(place, tolerance, stages=True, events={"0": ["lose", HOSTS[0]]})
    got = {(window, key): count for window, key, count in answer["windows"]}
    bounds = dict(answer["bounds"])
    windows = {window for window, _ in truth}
    assert set(bounds) == windows and answer["twice"] == []
    for window in windows:
        keys = {key for at, key in truth.keys() | got.keys() if at == window}
        errors = [abs(truth.get((window, key), 0) - got.get((window, key), 0)) for key in keys]
        assert max(errors) <= bounds[window] <= (0 if tolerance == ["minibatch"] else STAGES_THETA)
    assert answer["ledger"] and answer["total"]["windows"] == len(windows) and answer["total"]["ended"] == 1
    assert answer["hosts"] == list(HOSTS)
    if tolerance == ["minibatch"]:
        assert answer["gate"] == {"passed": EVENT_FILES * 800, "fed": 2 * len(windows)}


@pytest.mark.thorough
def test_a_killed_driver_keeps_windows_and_feedback(driver: Driver, place: Place) -> None:
    """Killed between its own record of a batch and Spark's: the batch runs again, nothing is applied twice."""
    truth = write_events(place, EVENT_FILES)
    given = {"events": {"0": ["die_after_record", "1"]}, "maxReplaySeconds": 0}
    assert driver.run(place, ["minibatch"], stages=True, **given) == {}
    answer = driver.run(place, ["minibatch"], stages=True)
    windows = {window for window, _ in truth}
    assert answer["total"] == {"total": EVENT_FILES * 800, "windows": len(windows), "ended": 1}
    assert answer["gate"] == {"passed": EVENT_FILES * 800, "fed": 2 * len(windows)}
    assert all(truth[window, key] == count for window, key, count in answer["windows"])
    assert answer["ledger"] == []


# --- receivers on the executors ----------------------------------------------------------------------------


PUSHED_SCHEMA = pa.schema([("item", pa.int64())])


def committed(place: Place) -> int:
    """The last batch that Spark has committed; -1: none."""
    return max((int(one.name) for one in (place.checkpoint / "commits").glob("[0-9]*")), default=-1)


def pushed(
    driver: Driver, place: Place, tolerance: list[object], kills: int, *, lost: bool = False
) -> tuple[int, dict[str, Any]]:
    """How many items a query was sent, and what it says of them. So often the executor of the first host is killed,
    each time after two more batches; with ``lost`` all that the host had beside the store goes with it.
    """
    answers: list[dict[str, Any]] = []
    running = Thread(target=lambda: answers.append(driver.run(place, tolerance, push=True)))
    running.start()
    address = place.root / "address"
    deadline = time.monotonic() + 300

    def still_runs() -> bool:
        return running.is_alive() and time.monotonic() < deadline

    while not address.exists():
        assert still_runs(), answers
        time.sleep(0.1)
    producers = [Producer(address.read_text(), f"p{number}", PUSHED_SCHEMA, give_up=120) for number in range(4)]
    rows = 0

    def send(pause: float) -> None:
        nonlocal rows
        batch = pa.record_batch({"item": list(range(rows, rows + 1_000))}, schema=PUSHED_SCHEMA)
        producers[rows // 1_000 % 4].send(batch)
        rows += 1_000
        time.sleep(pause)

    for _ in range(kills):
        before = committed(place)
        while committed(place) < before + 2:
            assert still_runs(), answers
            send(0.25)
        if lost:
            lose_host(HOSTS[0], place.segments / HOSTS[0])
        else:
            for pid in executors(HOSTS[0]):
                os.kill(pid, signal.SIGKILL)
        for _ in range(20):
            send(0.05)
    for producer in producers:
        producer.close()
    (place.root / "stop").touch()
    running.join(180)
    (answer,) = answers
    return rows, answer


def test_an_executor_with_a_receiver_dies(driver: Driver, place: Place) -> None:
    """Its items in waiting are lost within the limit, its worker's state is not; producers find the next receiver."""
    limit = 4_000
    rows, answer = pushed(driver, place, ["approximate", 0, limit, 4_000], 1)
    assert set(answer["counts"].values()) == {1}
    missing = rows - len(answer["counts"])
    assert missing == answer["lost"] <= limit
    # A receiver has died: what it may have held is told, whether a producer misses it or not.
    assert missing <= answer["bound"] <= limit


@pytest.mark.thorough
@pytest.mark.parametrize("lost", [False, True], ids=["executor", "host"])
def test_snapshots_and_a_host_with_a_receiver(driver: Driver, place: Place, lost: bool) -> None:
    """Under snapshots nothing is lost with a receiver, nor with the state of its worker: producers send it again."""
    rows, answer = pushed(driver, place, ["snapshot"], 2, lost=lost)
    assert set(answer["counts"].values()) == {1} and len(answer["counts"]) == rows
    assert answer["lost"] == 0 and answer["bound"] == 0
    assert {entry["worker"] for entry in answer["ledger"]} == ({0} if lost else set())


# --- barrier snapshots -------------------------------------------------------------------------------------

SNAPSHOT_BATCHES = 7
_CALM: dict[bool, dict[str, str]] = {}


@pytest.fixture
def calm(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], dict[str, str]]:
    """The sums of a query to which nothing happens."""

    def sums(keyed: bool) -> dict[str, str]:
        if keyed not in _CALM:
            place = Place(tmp_path_factory.mktemp("calm"))
            truth = write_text(place.input, 4 * SNAPSHOT_BATCHES)
            answer = driver.run(place, snapshots=True, keyed=keyed)
            assert answer["ledger"] == [] and again(place) == set()
            merged: Counter[str] = Counter()
            for cell, found in answer["sums"].items():
                merged[cell.split()[1]] += float.fromhex(found)  # type: ignore[assignment]
            assert merged == pytest.approx({word: count * weight(word) for word, count in truth.items()})
            _CALM[keyed] = answer["sums"]
        return _CALM[keyed]

    return sums


def again(place: Place) -> set[tuple[int, int]]:
    """Who has begun which batch more than once: (worker, batch)."""
    begun = Counter(tuple(map(int, line.split())) for line in (place.root / APPLIED).read_text().splitlines())
    return {(worker, batch) for (worker, batch), times in begun.items() if times > 1}


def replayed(answer: dict[str, Any]) -> dict[int, int]:
    """How many batches each lost worker has applied again, as the ledger says."""
    assert all(entry["covered"] for entry in answer["ledger"]), answer["ledger"]
    return {entry["worker"]: entry["replayed_batches"] for entry in answer["ledger"]}


Calm = Callable[[bool], dict[str, str]]
either = pytest.mark.parametrize(
    "keyed", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["shares", "keyed"]
)


@either
def test_snapshots_and_an_executor_killed_in_a_batch(driver: Driver, place: Place, calm: Calm, keyed: bool) -> None:
    expected = calm(keyed)
    write_text(place.input, 4 * SNAPSHOT_BATCHES)
    answer = driver.run(place, snapshots=True, keyed=keyed, kill_in=3)
    assert answer["sums"] == expected and answer["ledger"] == [] and answer["bound"] == 0
    assert again(place) == {(1, 3)}, "state outlives processes: nobody has to replay anything"


@pytest.mark.thorough
@either
def test_snapshots_and_a_host_lost_right_after_a_barrier(driver: Driver, place: Place, calm: Calm, keyed: bool) -> None:
    """Its part of the snapshot is gone, or nobody knows whether the store has it: the one before counts."""
    expected = calm(keyed)
    write_text(place.input, 4 * SNAPSHOT_BATCHES)
    answer = driver.run(place, snapshots=True, keyed=keyed, lose=HOSTS[0])
    assert answer["sums"] == expected and answer["bound"] == 0 and answer["homes"] == list(HOSTS)
    (lost,) = answer["lost"]
    stages = {entry["barrier"]: entry["stage"] for entry in answer["snapshots"]}
    assert stages[lost] == "abandoned" and "complete" in [stages.get(batch) for batch in range(lost + 1, 7)]
    complete = max(batch for batch, stage in stages.items() if batch < lost and stage == "complete")
    assert replayed(answer) == {0: lost - complete}
    assert again(place) == {(0, batch) for batch in range(complete + 1, lost + 1)}


@pytest.mark.thorough
@either
def test_snapshots_and_a_host_lost_in_an_upload(driver: Driver, place: Place, calm: Calm, keyed: bool) -> None:
    expected = calm(keyed)
    write_text(place.input, 4 * SNAPSHOT_BATCHES)
    answer = driver.run(place, snapshots=True, keyed=keyed, lose=HOSTS[1], uploading=True, bytes_per_second=10_000)
    assert answer["sums"] == expected and answer["bound"] == 0
    (lost,) = answer["lost"]
    ((worker, batches),) = replayed(answer).items()
    assert worker == 1 and batches >= 1
    assert again(place) == {(1, lost - back) for back in range(batches)}


@either
def test_snapshots_and_a_driver_killed_before_its_record_and_a_host(
    driver: Driver, machines: LoopbackCluster, place: Place, calm: Calm, keyed: bool
) -> None:
    expected = calm(keyed)
    write_text(place.input, 4 * SNAPSHOT_BATCHES)
    assert driver.run(place, snapshots=True, keyed=keyed, die_before_record=4) == {}
    machines.kill(HOSTS[1])
    shutil.rmtree(place.segments / HOSTS[1])
    done = committed(place)
    covered = max(int(one.name.split("-")[0]) for one in place.checkpoint.glob("afspark/epochs/*/records/*"))
    answer = driver.run(place, snapshots=True, keyed=keyed, grace=1, hosts=1)
    assert answer["sums"] == expected and answer["bound"] == 0 and answer["homes"] == [HOSTS[0]] * 2
    past = {(1, batch) for batch in range(covered + 1, done + 1)}
    assert past and replayed(answer) == {1: len(past)}
    # The batch that Spark had not committed is applied once more, and is no replay.
    assert past <= again(place) <= past | {(worker, done + 1) for worker in (0, 1)}


# --- workers that train one model --------------------------------------------------------------------------

_CALM_MODEL: dict[str, Any] = {}


@pytest.fixture
def calm_model(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The model of a query to which nothing happens."""
    if not _CALM_MODEL:
        _CALM_MODEL.update(driver.run(Place(tmp_path_factory.mktemp("calm")), ["minibatch"], training=True))
        assert _CALM_MODEL["items"] == ITEMS and _CALM_MODEL["ledger"] == [] and _CALM_MODEL["held"]
    return _CALM_MODEL


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("tolerance", "strikes"),
    [
        ("snapshot", "host"),
        *(
            pytest.param(*one, marks=pytest.mark.thorough)
            for one in (
                ("minibatch", "servers"),
                ("minibatch", "executor"),
                ("minibatch", "host"),
                ("snapshot", "servers"),
                ("snapshot", "executor"),
            )
        ),
    ],
)
def test_in_rounds_the_model_is_bit_for_bit_the_same_after_real_kills(
    driver: Driver, place: Place, calm_model: dict[str, Any], tolerance: str, strikes: str
) -> None:
    """In the middle of a step: kill -9 of the model server, or of an executor, and the loss of a host."""
    answer = driver.run(place, [tolerance], training=True, strike=[2, strikes])
    assert answer["struck"]
    assert answer["weights"] == calm_model["weights"]
    assert answer["merged"] == calm_model["merged"] == [ITEMS // 4] * 4
    assert answer["items"] == ITEMS
    assert bool(answer["ledger"]) == (strikes == "host")


@pytest.mark.thorough
def test_a_model_server_on_an_executor_is_killed(driver: Driver, place: Place, calm_model: dict[str, Any]) -> None:
    answer = driver.run(place, ["minibatch"], training=True, strike=[2, "servers"], servers="executors")
    assert answer["struck"] and set(answer["servers"]) <= set(HOSTS)
    assert answer["weights"] == calm_model["weights"]
    assert answer["merged"] == calm_model["merged"]


@pytest.mark.thorough
@pytest.mark.parametrize("strikes", ["host", "servers"])
def test_training_goes_on_within_its_threshold_after_real_kills(
    driver: Driver, place: Place, calm_model: dict[str, Any], strikes: str
) -> None:
    answer = driver.run(place, ["approximate"], training=True, consistency="asp", strike=[2, strikes])
    assert answer["struck"] and answer["held"]
    assert answer["merged"] == [ITEMS // 4] * 4, "nothing is merged twice or lost"
    assert answer["log_loss"] == pytest.approx(calm_model["log_loss"], abs=0.05)


@pytest.mark.thorough
@pytest.mark.parametrize("lost", ["nothing", "everything"])
def test_snapshots_and_a_driver_killed_before_its_record(driver: Driver, place: Place, calm: Calm, lost: str) -> None:
    """While the hosts keep their state nobody replays anything; if all of it is gone, everybody does."""
    expected = calm(False)
    write_text(place.input, 4 * SNAPSHOT_BATCHES)
    assert driver.run(place, snapshots=True, die_before_record=4) == {}
    done = committed(place)
    covered = max(int(one.name.split("-")[0]) for one in place.checkpoint.glob("afspark/epochs/*/records/*"))
    for host in HOSTS if lost == "everything" else ():
        lose_host(host, place.segments / host)
    answer = driver.run(place, snapshots=True)
    assert answer["sums"] == expected and answer["bound"] == 0
    past = {(worker, batch) for worker in (0, 1) for batch in range(covered + 1, done + 1)}
    assert past
    # The batch that Spark had not committed may be applied once more, and is no replay.
    allowed = {(worker, done + 1) for worker in (0, 1)}
    if lost == "everything":
        assert past <= again(place) <= past | allowed and set(replayed(answer)) == {0, 1}
    else:
        assert again(place) <= allowed and answer["ledger"] == []
