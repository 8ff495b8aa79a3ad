"""Savepoints: what a query started from one comes to, who is not disturbed by it, and what is refused."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from afspark.algorithms import WordCount
from afspark.api.inspection import inspect
from afspark.api.savepoints import answer_requests, found_savepoints, held_record, save, savepoint_of
from afspark.cluster.local.processes import in_process
from afspark.control import Quantity
from afspark.coordinator.savepoint_contents import refuse_what_cannot_be_saved
from afspark.coordinator.savepoint_copying import make_savepoint, start_from_savepoint
from afspark.errors import AfsparkError, CheckpointError, ObjectMissing, StoreFull, UsageError
from afspark.graph.pipeline import Pipeline
from afspark.model.windows import Hopping
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Nothing, Tolerance
from afspark.sources import Pushed
from afspark.store import identify, open_store
from afspark.store.base import not_writable
from afspark.store.control_log import CONTROL
from afspark.store.effect_log import EFFECTS
from afspark.store.local import LocalStore
from afspark.store.naming import FOLDER
from afspark.store.savepoint import LIST, read_savepoint
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig
from tests.unit.runtime.sparkless import Hosts, Rig, die
from tests.unit.runtime.test_barrier_snapshot import SCHEMA
from tests.unit.runtime.test_replay_of_pipelines import TIMES, line

EXACT: list[Tolerance] = [MiniBatch(), BarrierSnapshot(batches=2)]


def saved(rig: Rig, name: str = "saved") -> Path:
    """A savepoint of a query at work; where it is."""
    place = rig.root / name
    with held_record(rig.driver) as record:
        assert record is not None
        save(rig.driver, record, str(place))
    return place


def begun(rig: Rig, place: Path, name: str) -> Rig:
    """Another query, begun from a savepoint. It lives on the same hosts, where the first one has its state."""
    made = Rig(rig.root / name, Hosts(processes=in_process), **rig.settings)
    made.segments = rig.segments
    start_from_savepoint(open_store(place), open_store(made.checkpoint), rig.pipeline)
    return made


@pytest.mark.some(2)
@pytest.mark.parametrize("keyed", [False, True], ids=["local", "keyed"])
@pytest.mark.parametrize("lag", list(Lag))
@pytest.mark.parametrize("tolerance", EXACT, ids=lambda one: one.name)
def test_two_queries_from_one_savepoint_and_the_first_one_come_to_the_same(
    make_rig: MakeRig, tolerance: Tolerance, lag: Lag, keyed: bool
) -> None:
    one = LaggingRig(make_rig, lag, tolerance=tolerance, keyed=keyed)
    first = one.rig
    first.go(3)
    place = saved(first)
    second, third = (begun(first, place, name) for name in ("second", "third"))
    # In turns: each finds its own state where the others have theirs.
    for _ in range(8):
        for rig in (first, second, third):
            rig.go(1)
    for rig in (first, second, third):
        assert rig.committed == 5 and rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    for run in second.driver.runs:
        assert second.cells(run.name) == third.cells(run.name) == first.cells(run.name)
    assert len({rig.driver.identity.query_id for rig in (first, second, third)}) == 3
    assert [entry.loss.counted for entry in second.ledger] == [False, False]
    assert {entry.loss.cause for entry in second.ledger} == {"the query was started from a savepoint"}


@pytest.mark.parametrize("tolerance", EXACT, ids=lambda one: one.name)
def test_windows_feedback_and_connected_operators(make_rig: MakeRig, tolerance: Tolerance) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, pipeline=line(tolerance, Hopping(10, by="processing")))
    first = one.rig
    one.go(*TIMES[:4])
    place = saved(first)
    second = begun(first, place, "second")
    done = read_savepoint(open_store(place)).batch
    assert second.committed == done >= 2
    for second.now in TIMES[done + 1 :]:
        second.go(1)
    one.go(*TIMES[4:])
    one.assert_as_calm(*TIMES)
    for run in first.driver.runs:
        assert second.cells(run.name) == first.cells(run.name), run.name
        assert second.windows(5, run.name) == first.windows(5, run.name) if run.node.window else True


def test_what_was_lost_before_is_told_and_what_is_lost_afterwards_is_not(make_rig: MakeRig) -> None:
    rig, truth = make_rig(tolerance=Approximate(50.0))
    rig.go(2)
    rig.lose(0)
    rig.go(1)
    place = rig.root / "saved"
    with held_record(rig.driver) as record:
        assert record is not None
        rig.lose(1)
        rig.go()
        assert len(rig.ledger) == 2
        save(rig.driver, record, str(place))
    second = begun(rig, place, "second")
    second.go()
    assert [entry.loss.batch for entry in second.ledger] == [2, 3, 3], "one loss of the first query, and its own start"
    assert {entry.loss.cause for entry in second.ledger[1:]} == {"the query was started from a savepoint"}
    assert [entry.loss.counted for entry in second.ledger] == [True, True, True], "its backups are not all of the state"
    missing = truth - second.counts()
    assert 0 <= max(missing.values(), default=0) <= second.bound() <= 50.0


def test_of_a_stopped_query_whose_records_are_behind(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.BACKUPS, tolerance=BarrierSnapshot(batches=2))
    rig = one.rig

    def driven() -> None:
        rig.go(5)
        die()

    rig.drive_and_die(driven)
    assert savepoint_of(rig.checkpoint, rig.root / "elsewhere")[0] == str(rig.root / "elsewhere")
    place, savepoint = savepoint_of(rig.checkpoint, "before-upgrade")
    assert savepoint.batch == 0 and Path(place) == rig.checkpoint / "savepoints" / "before-upgrade"
    second = begun(rig, Path(place), "second")
    assert second.committed == 0
    second.go()
    assert second.counts() == one.truth and second.bound() == 0
    (found,) = found_savepoints(open_store(rig.checkpoint))
    assert (found.name, found.batch, found.trouble) == ("before-upgrade", 0, "") and found.bytes > 0
    rig.hosts.lag = Lag.NOTHING
    rig.start()
    rig.go()
    one.assert_as_calm()


def test_savepoints_of_a_checkpoint_below_the_home_folder_are_in_it(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, _ = make_rig(tolerance=MiniBatch())

    def driven() -> None:
        rig.go(1)
        die()

    rig.drive_and_die(driven)
    monkeypatch.setenv("HOME", str(rig.root))
    place, _ = savepoint_of(f"~/{rig.checkpoint.name}", "early")
    assert Path(place) == rig.checkpoint / "savepoints" / "early"


def test_a_savepoint_is_a_checkpoint_that_can_be_looked_into_and_not_run(make_rig: MakeRig) -> None:
    rig, _ = make_rig(tolerance=BarrierSnapshot(batches=2))
    rig.go(4)
    place = saved(rig)
    found = inspect(place, verify=True, segments=rig.root)
    assert not found.damaged and found.query_id != rig.driver.identity.query_id
    assert [entry.barrier for entry in found.snapshots] == [found.batch]
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    second = Rig(rig.root / "second", Hosts(), **rig.settings)
    second.checkpoint = place
    with pytest.raises(CheckpointError):
        second.start()
    assert before == {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_batches_go_on_while_it_is_copied_and_nothing_of_it_is_deleted(make_rig: MakeRig) -> None:
    one = LaggingRig(
        make_rig,
        Lag.NOTHING,
        batches=10,
        tolerance=BarrierSnapshot(batches=1, full_every=1, keep=2, asynchronous=False),
    )
    rig = one.rig
    rig.go(2)
    with held_record(rig.driver) as record:
        assert record is not None
        names = record.references()
        rig.go(6)
        assert len(rig.records()) == 2
        save(rig.driver, record, str(rig.root / "saved"))
    assert (rig.checkpoint / FOLDER / EFFECTS).exists()
    assert not (rig.root / "saved" / FOLDER / EFFECTS).exists(), "they are of batches after the savepoint"
    rig.go()
    present = {str(path.relative_to(rig.checkpoint / FOLDER)) for path in rig.objects()}
    assert names.isdisjoint(present), "nobody needs it any more"
    second = begun(rig, rig.root / "saved", "second")
    second.go()
    assert second.counts() == one.truth


class Dying(LocalStore):
    """Dies with its process when so many objects were put, in the middle of the last one."""

    left = 0

    def put(self, name: str, data: bytes) -> None:
        if name.startswith("probe-"):
            return super().put(name, data)
        self.left -= 1
        if not self.left:
            super().put(name, data[: len(data) // 2])
            die()
        return super().put(name, data)


def dying(path: Path, puts: int) -> Dying:
    store = Dying(str(path))
    store.left = puts
    return store


def test_whoever_dies_while_making_one_leaves_nothing_that_looks_complete(make_rig: MakeRig) -> None:
    rig, truth = make_rig()
    rig.go(3)
    engine, place = rig.driver, rig.root / "saved"
    record = engine.log.newest()
    assert record is not None
    whole = len(make_savepoint(engine.checkpoint, open_store(rig.root / "other"), record, engine.identity).objects)
    # The beginning, every fifth object, the identity and the list of objects.
    for puts in [1, *range(2, whole + 2, 5), whole + 2, whole + 3]:
        script = partial(make_savepoint, engine.checkpoint, dying(place, puts), record, engine.identity)
        rig.drive_and_die(script)
        with pytest.raises((CheckpointError, UsageError)):
            read_savepoint(open_store(place))
        with pytest.raises((CheckpointError, UsageError)):
            start_from_savepoint(open_store(place), open_store(rig.root / "new"), engine.pipeline)
        assert not any((rig.root / "new").rglob("*"))
    rig.engine = engine
    second = begun(rig, saved(rig), "second")
    second.go()
    assert second.counts() == truth


class Overtaken(LocalStore):
    """Somebody else makes a savepoint in the same place, from beginning to end, while this one is being made."""

    other: Callable[[], object] | None = None
    begun = False

    def put(self, name: str, data: bytes) -> None:
        super().put(name, data)
        if self.begun and self.other is not None:
            other, self.other = self.other, None
            other()
        self.begun = self.begun or name == LIST


def test_whoever_is_overtaken_while_making_one_removes_nothing_of_the_others(make_rig: MakeRig) -> None:
    rig, truth = make_rig()
    rig.go(3)
    engine, place = rig.driver, rig.root / "saved"
    record = engine.log.newest()
    assert record is not None
    store = Overtaken(str(place))
    store.other = partial(make_savepoint, engine.checkpoint, open_store(place), record, engine.identity)
    with pytest.raises(AfsparkError):
        make_savepoint(engine.checkpoint, store, record, engine.identity)
    second = begun(rig, place, "second")
    second.go()
    assert second.counts() == truth


def test_whoever_dies_while_starting_from_one_may_try_again(make_rig: MakeRig) -> None:
    rig, truth = make_rig()
    rig.go(3)
    engine, place, new = rig.driver, saved(rig), rig.root / "second" / "checkpoint"
    whole = len(read_savepoint(open_store(place)).objects)
    for puts in (1, 2, whole // 2, whole + 2, whole + 3):
        rig.drive_and_die(partial(start_from_savepoint, open_store(place), dying(new, puts), engine.pipeline))
        second = Rig(rig.root / "second", Hosts(processes=in_process), **rig.settings)
        with pytest.raises(CheckpointError):
            second.start()
    rig.engine = engine
    second = begun(rig, place, "second")
    second.go()
    assert second.counts() == truth


def test_a_probe_that_found_no_room_or_was_killed_is_in_nobodys_way(make_rig: MakeRig) -> None:
    rig, truth = make_rig(tolerance=MiniBatch())
    rig.go(3)
    place, checkpoint = rig.root / "saved", rig.root / "second" / "checkpoint"
    for folder in (place, checkpoint):
        with pytest.raises(StoreFull):
            Full(str(folder)).check_writable()
        assert open_store(folder).list("") == []
        (folder / "probe-0123456789abcdef").touch()
    second = begun(rig, saved(rig), "second")
    second.go()
    assert second.counts() == truth
    # What somebody else has there is.
    (rig.root / "taken").mkdir()
    (rig.root / "taken" / "probe-of-mine").touch()
    with pytest.raises(UsageError):
        saved(rig, "taken")


class Full(LocalStore):
    """There is room for the name of an object, and for nothing of it."""

    def put(self, name: str, data: bytes) -> None:
        super().put(name, b"")
        raise not_writable(self.path, OSError(errno.ENOSPC, "No space left on device"))


def test_any_damage_is_noticed_before_anything_runs(make_rig: MakeRig) -> None:
    rig, _ = make_rig()
    rig.go(2)
    place, new, pipeline = saved(rig), rig.root / "new", rig.driver.pipeline
    files = [place / one.name for one in read_savepoint(open_store(place)).objects] + [place / LIST]
    assert len(files) > 10
    for file in files:
        sound = file.read_bytes()
        for damaged in (sound[:-1], bytes([sound[0] ^ 1]) + sound[1:], None):
            if damaged is None:
                file.unlink()
            else:
                file.write_bytes(damaged)
            with pytest.raises((CheckpointError, UsageError)) as caught:
                start_from_savepoint(open_store(place), open_store(new), pipeline)
            assert str(place) in str(caught.value) and "\n" not in str(caught.value)
            assert not [path for path in new.rglob("*") if path.is_file()]
            file.write_bytes(sound)
    start_from_savepoint(open_store(place), open_store(new), pipeline)
    assert identify(open_store(new).below(FOLDER)) is not None


def test_what_is_refused(make_rig: MakeRig) -> None:
    rig, _ = make_rig()
    with pytest.raises(UsageError):
        savepoint_of(rig.checkpoint, "early")
    rig.go(2)
    place, new = saved(rig), open_store(rig.root / "new")
    pipeline = rig.driver.pipeline
    with pytest.raises(UsageError) as caught:
        start_from_savepoint(open_store(rig.root / "unknown"), new, pipeline)
    assert caught.value.path == str(rig.root / "unknown")
    with pytest.raises(UsageError) as caught:
        start_from_savepoint(open_store(place), open_store(rig.checkpoint), pipeline)
    assert caught.value.path == str(rig.checkpoint)
    other = replace(pipeline, nodes=(replace(pipeline.nodes[0], keyed=True),))
    with pytest.raises(CheckpointError) as mismatch:
        start_from_savepoint(open_store(place), new, other)
    assert mismatch.value.found == pipeline.fingerprint() and not new.list("")
    assert mismatch.value.differs.startswith("'operator' has keyed true instead of false, and ")
    for taken in (str(place), str(rig.root)):
        with pytest.raises(UsageError):
            saved(rig, taken)
    for nowhere in (" ", "", 3, None):
        with pytest.raises(UsageError):
            savepoint_of(rig.checkpoint, nowhere)  # type: ignore[arg-type]
    rig.end()
    with pytest.raises(UsageError):
        saved(rig, "ended")


def test_a_query_without_records_has_no_savepoints(make_rig: MakeRig) -> None:
    rig, _ = make_rig(tolerance=Nothing())
    rig.go(2)
    with pytest.raises(UsageError), held_record(rig.driver):
        pass


def test_pushed_items_cannot_be_sent_again(make_rig: MakeRig, tmp_path: Path) -> None:
    from tests.unit.runtime.test_graph import Counter

    pipeline = Pipeline.single(
        source=Pushed.of(SCHEMA, lanes=2), operator=Counter(), tolerance=MiniBatch(), workers=2, keyed=False
    )
    rig = Rig(tmp_path, Hosts(processes=in_process), pipeline=pipeline)
    rig.start()
    with pytest.raises(UsageError) as caught, held_record(rig.driver):
        pass
    assert "pushed" in str(caught.value)


def test_what_was_measured_is_in_it(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, _ = make_rig(batches=8, tolerance=BarrierSnapshot(batches=2))
    rig.go(5)
    rig.driver.control.close()
    made = begun(rig, saved(rig), "again")
    made.start().ready()
    known = made.driver.control.meters.situation(made.run_of(), 0, 0.0).history
    assert known.of(Quantity.CHECKPOINT_SIZE) and known.of(Quantity.PROCESSED)

    def replaced(store: LocalStore, name: str) -> bytes:
        if f"{CONTROL}/" in name:
            raise ObjectMissing(name)
        return get(store, name)

    get = LocalStore.get
    monkeypatch.setattr(LocalStore, "get", replaced)
    assert not [one.name for one in read_savepoint(open_store(saved(rig, "less"))).objects if CONTROL in one.name]


def test_a_damaged_backup_is_not_saved(make_rig: MakeRig) -> None:
    rig, _ = make_rig()
    rig.go(2)
    victim = rig.objects()[0]
    victim.write_bytes(victim.read_bytes()[:-3])
    with pytest.raises(AfsparkError):
        saved(rig)
    assert not [path for path in (rig.root / "saved").rglob("*") if path.is_file()]


def test_a_driver_at_work_is_asked_and_answers(make_rig: MakeRig) -> None:
    """The driver lives in this process, so nobody else may make a savepoint of its checkpoint."""
    rig, truth = make_rig()
    rig.go(2)
    outcome: list[Any] = []

    def ask(place: str) -> None:
        try:
            outcome.append(savepoint_of(rig.checkpoint, place))
        except AfsparkError as error:
            outcome.append(error)

    def answered(place: str, make: Callable[[str], Any]) -> Any:
        outcome.clear()
        asking = threading.Thread(target=ask, args=(place,))
        asking.start()
        while asking.is_alive():
            answer_requests(rig.driver.store, make)
            asking.join(0.05)
        return outcome[0]

    place, savepoint = answered(str(rig.root / "asked"), lambda place: saved(rig, place))
    assert savepoint.batch == 1 and Path(place) == rig.root / "asked"
    refused = answered(str(rig.root / "asked"), lambda place: saved(rig, place))
    assert isinstance(refused, UsageError) and refused.path == place
    assert rig.driver.store.list("requests") == []
    second = begun(rig, Path(place), "second")
    second.go()
    assert second.counts() == truth


def test_a_driver_that_ends_instead_of_answering_is_not_waited_for(make_rig: MakeRig) -> None:
    rig, _ = make_rig()
    rig.go(2)
    outcome: list[Any] = []
    asking = threading.Thread(target=lambda: outcome.append(savepoint_of(rig.checkpoint, "late")))
    asking.start()
    while not rig.driver.store.list("requests") and asking.is_alive():
        asking.join(0.01)
    rig.driver.close()
    asking.join()
    assert outcome[0][1].batch == 1 and rig.driver.store.list("requests") == []


class Renamed(WordCount):
    """The same word count under another name."""


def test_a_changed_pipeline_starts_from_a_savepoint_as_from_a_checkpoint(make_rig: MakeRig) -> None:
    rig, truth = make_rig()
    rig.go(2)
    place = saved(rig)
    made = Rig(rig.root / "changed", Hosts(processes=in_process), **{**rig.settings, "operator": Renamed()})
    start_from_savepoint(open_store(place), open_store(made.checkpoint), made.pipeline)
    made.go()
    assert made.counts() == truth and made.driver.identity.settings == made.pipeline.settings()
    with held_record(made.driver) as record:
        assert record is not None
    wider = replace(made.pipeline, nodes=(replace(made.pipeline.nodes[0], keyed=True),))
    other = open_store(rig.root / "other")
    with pytest.raises(CheckpointError):
        start_from_savepoint(open_store(place), other, wider)
    start_from_savepoint(open_store(place), other, wider, {"operator"})
    assert identify(other.below(FOLDER)) is not None


def test_no_savepoint_is_made_of_what_a_changed_pipeline_has_given_up(make_rig: MakeRig) -> None:
    rig, _ = make_rig()
    rig.go(2)
    identity = rig.driver.identity
    record = refuse_what_cannot_be_saved(identity, rig.driver.commits.settle(), "here")
    changed = replace(identity, anew={"operator": rig.driver.log.epoch_number + 1})
    with pytest.raises(UsageError) as refused:
        refuse_what_cannot_be_saved(changed, record, "here")
    assert "changed" in refused.value.message
