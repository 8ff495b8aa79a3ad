"""Items that an operator cannot take: left out, counted and kept, or named when they stop the query."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from afspark.api.inspection import inspect
from afspark.coordinator.batch_progress import BatchProgress, Totals
from afspark.errors import AfsparkError, BadItems, OperatorFailed, UsageError
from afspark.graph.node import Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.model.operator import Combiner, Operator
from afspark.model.states import HashTable, StateSpec
from afspark.model.windows import Hopping
from afspark.policies import MiniBatch
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from afspark.sources import Pushed, Source, TextFiles
from afspark.store import open_store
from afspark.store.quarantine import BadItem, Quarantine
from tests.unit.runtime.sparkless import Hosts, Rig, die

pytestmark = pytest.mark.some(3)

BAD = "bad"


class Lines(Operator):
    """Counts lines, all of a batch at its end, and cannot take those that begin with "bad"."""

    key = ("value",)

    def __init__(self) -> None:
        self.waiting: list[pa.Array] = []

    def states(self) -> Mapping[str, StateSpec]:
        return {"counts": HashTable(key="string", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        self.waiting.append(items.column("value"))

    def finish(self, states: Mapping[str, Any]) -> None:
        for values in self.waiting:
            states["counts"].add(values, 1)
            refuse(values)
        self.waiting.clear()


class Combined(Lines):
    """The same with a combiner, which cannot take them either."""

    def combiner(self) -> Combiner:
        return Together()

    def finish(self, states: Mapping[str, Any]) -> None:
        self.waiting.clear()

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("value"), items.column("count"))


class Together(Combiner):
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, batch: pa.RecordBatch) -> None:
        for value in batch.column("value").to_pylist():
            self.counts[value] += 1
            self.items += 1
            refuse(pa.array([value]))

    def finish(self) -> pa.RecordBatch:
        return pa.record_batch({"value": list(self.counts), "count": list(self.counts.values())})


def refuse(values: pa.Array) -> None:
    bad = values.filter(pc.starts_with(values.cast(pa.string()), BAD))
    if len(bad):
        raise ValueError(f"cannot take {bad[0]}")


def check(items: pa.RecordBatch) -> pa.RecordBatch:
    """A stateless step that raises."""
    refuse(items.column("value"))
    return items


def write_lines(folder: Path, *, batches: int = 4, files: int = 4) -> tuple[Counter[str], list[str]]:
    """Files of 200 bytes; the good lines, and the bad ones, each of which is there once."""
    folder.mkdir()
    truth: Counter[str] = Counter()
    bad: list[str] = []
    for number in range(batches * files):
        lines = ["all"] * 5 + [f"mod{number % 3}"] * 4 + [f"file{number}"]
        truth.update(lines)
        if number % 3 == 1:
            bad += [f"{BAD}{number}a", f"{BAD}{number}b"]
            lines = [lines[0], bad[-2], *lines[1:], bad[-1]]
        filler = "." * (198 - len("\n".join(lines)))
        truth[filler] += 1
        (folder / f"{number:04d}.txt").write_text("\n".join([*lines, filler]) + "\n")
    return truth, bad


def plan(phase: FaultPhase, *batches: int) -> FaultPlan:
    return FaultPlan(frozenset(InjectedFailure(batch, phase) for batch in batches), "test")


class World:
    """A rig over lines, some of which are bad."""

    def __init__(self, root: Path, operator: Operator | None = None, **settings: Any):
        self.truth, self.bad = write_lines(root / "input")
        chosen: dict[str, Any] = {
            "source": TextFiles(str(root / "input"), blocks=False),
            "operator": operator or Lines(),
            "name": "lines",
            "tolerance": MiniBatch(),
            "workers": 2,
            "batch_bytes": 800,
        }
        if "pipeline" in settings:
            chosen = {"pipeline": settings.pop("pipeline")(chosen["source"]), "batch_bytes": 800}
        self.rig = Rig(root, Hosts({"a": 1, "b": 1}), **{**chosen, **settings})

    @property
    def kept(self) -> list[BadItem]:
        return Quarantine(open_store(str(self.rig.checkpoint)).below("afspark")).items()

    def check_exact(self) -> None:
        assert self.rig.counts("lines") == self.truth
        assert sorted(text(item.row["value"]) for item in self.kept) == sorted(self.bad)
        counted = [count.items for count in self.rig.run_of("lines").counters.bad]
        assert sum(counted) == len(self.bad)


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


MakeWorld = Callable[..., World]


@pytest.fixture
def world(warm_kernels: None, tmp_path: Path) -> MakeWorld:
    def make(**settings: Any) -> World:
        return World(tmp_path, **settings)

    return make


# --- input that can be read again ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "settings"),
    [
        (Lines(), {}),
        (Lines(), {"keyed": True}),
        (Combined(), {}),
        (Combined(), {"keyed": True}),
        (Lines(), {"transforms": (check,)}),
        (Lines(), {"transforms": (check,), "keyed": True}),
    ],
    ids=["shares", "keyed", "combiner", "keyed combiner", "step", "keyed step"],
)
def test_bad_items_are_left_out_once_and_all_others_are_counted_once(
    world: MakeWorld, operator: Operator, settings: dict[str, Any]
) -> None:
    made = world(operator=operator, on_bad="skip", **settings)
    made.rig.go()
    made.check_exact()
    assert {item.kind for item in made.kept} == {"ValueError"}
    assert all(f"cannot take {text(item.row['value'])}" in item.error for item in made.kept)
    named = [item for item in made.kept if item.place]
    # Over an exchange rows arrive without their places; before it and without one, they are known.
    assert len(named) == (0 if operator.__class__ is Lines and settings == {"keyed": True} else len(made.bad))
    assert all(".txt" in item.place and item.number in (1, 11) for item in named)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "phase", [FaultPhase.APPLYING, FaultPhase.BACKING_UP, FaultPhase.COMMITTING, FaultPhase.COMMITTED]
)
@pytest.mark.parametrize("keyed", [False, True], ids=["shares", "keyed"])
def test_minibatch_is_exact_and_nothing_is_kept_twice_after_failures(
    world: MakeWorld, phase: FaultPhase, keyed: bool
) -> None:
    made = world(on_bad="skip", keyed=keyed, faults=plan(phase, 1, 2))
    made.rig.go()
    assert made.rig.ledger
    made.check_exact()


def test_a_killed_driver_is_continued_and_what_it_left_behind_is_deleted(world: MakeWorld) -> None:
    made = world(on_bad="skip")
    rig = made.rig

    def script() -> None:
        rig.start()
        rig.go(deliver=lambda batch: die() if batch == 1 else None)

    rig.drive_and_die(script)
    rig.lose()
    rig.go()
    made.check_exact()
    rows = open_store(str(rig.checkpoint)).below("afspark").list("quarantine/rows")
    assert len(rows) == len({(item.batch, item.worker) for item in made.kept})


def test_a_bad_item_stops_the_query_by_default_and_is_named(world: MakeWorld) -> None:
    made = world()
    with pytest.raises(OperatorFailed) as raised:
        made.rig.go()
    error = raised.value
    assert error.row.startswith("{'value'") and BAD in error.row
    assert ".txt" in error.place and error.number == 1 and "ValueError" in error.trace
    assert made.kept == [] and made.rig.committed == -1
    # The choice may change when the query is started again.
    made.rig.start(on_bad="skip")
    made.rig.go()
    made.check_exact()


def test_the_error_of_a_state_keeps_its_class_when_the_item_is_named(world: MakeWorld) -> None:
    made = world(transforms=(as_null,), on_bad="stop")
    with pytest.raises(UsageError) as raised:
        made.rig.go()
    assert raised.value.nulls == 1 and raised.value.number == 1


def as_null(items: pa.RecordBatch) -> pa.RecordBatch:
    values = items.column("value").cast(pa.string())
    return pa.record_batch({"value": pc.if_else(pc.starts_with(values, BAD), pa.scalar(None, pa.string()), values)})


@pytest.mark.parametrize("keyed", [False, True], ids=["shares", "keyed"])
def test_null_keys_are_bad_items_or_a_group_of_their_own(world: MakeWorld, keyed: bool) -> None:
    made = world(operator=Grouped(), transforms=(as_null,), keyed=keyed, faults=plan(FaultPhase.BACKING_UP, 1))
    made.rig.go()
    assert made.rig.counts() == made.truth + Counter({None: len(made.bad)})
    assert made.kept == []


class Grouped(Lines):
    def states(self) -> Mapping[str, StateSpec]:
        return {"counts": HashTable(key="string", value="int64", null_key=True)}


@pytest.mark.parametrize("keyed", [False, True])
def test_null_keys_end_a_query_only_if_that_was_asked_for(world: MakeWorld, keyed: bool) -> None:
    """Of files, whose other bad items stop the query."""
    made = world(transforms=(as_null,), keyed=keyed)
    made.rig.go()
    assert made.rig.counts() == made.truth
    assert sum(count.items for count in made.rig.run_of().counters.bad) == len(made.bad)


def test_null_keys_of_an_exchange_are_left_out_whatever_their_number(world: MakeWorld) -> None:
    made = world(transforms=(as_null,), keyed=True, on_bad="skip", bad_limit=0)
    made.rig.go()
    assert made.rig.counts() == made.truth
    assert {(count.kind, count.items) for count in made.rig.run_of().counters.bad} == {("null key", len(made.bad))}


class Valued(Lines):
    """Null values, whose keys are there."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        values = items.column("value")
        states["counts"].add(pc.fill_null(values, "no"), pc.if_else(values.is_valid(), 1, None))


def test_null_values_are_no_null_keys(world: MakeWorld) -> None:
    made = world(operator=Valued(), transforms=(as_null,), keyed=False)
    with pytest.raises(UsageError) as raised:
        made.rig.go()
    assert raised.value.nulls == 1 and not raised.value.keys
    assert made.kept == []


class Broken(Lines):
    """Raises whatever it gets."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        raise ValueError("broken")


def test_an_operator_that_raises_on_everything_does_not_leave_out_the_whole_stream(world: MakeWorld) -> None:
    made = world(operator=Broken(), on_bad="skip", bad_limit=3)
    with pytest.raises(BadItems) as raised:
        made.rig.go()
    assert raised.value.limit == 3 and "bad" not in raised.value.fields
    # Where no worker finds so many in one batch, the operator has left out more than it took after some.
    made.rig.start(bad_limit=40)
    with pytest.raises(BadItems) as raised:
        made.rig.go()
    assert raised.value.bad > 40 and raised.value.taken == 0


class Unfit(Lines):
    def finish(self, states: Mapping[str, Any]) -> None:
        raise ValueError("whatever came")


def test_what_is_raised_without_any_item_stops_the_query_under_every_choice(world: MakeWorld) -> None:
    made = world(operator=Unfit(), on_bad="skip")
    with pytest.raises(OperatorFailed, match="whatever came"):
        made.rig.go()
    assert made.kept == []


class Unlucky(Lines):
    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        raise FileNotFoundError("our own file")


def test_a_missing_file_is_nobodys_item(world: MakeWorld) -> None:
    made = world(operator=Unlucky(), on_bad="skip")
    with pytest.raises(AfsparkError, match="our own file"):
        made.rig.go()
    assert made.kept == []


def test_what_is_kept_is_limited_and_the_count_goes_on(world: MakeWorld) -> None:
    made = world(on_bad="skip", quarantine_bytes=10_000)
    made.rig.go()
    assert sum(count.items for count in made.rig.run_of().counters.bad) == len(made.bad)
    assert 0 < len(made.kept) < len(made.bad)
    assert made.rig.counts() == made.truth


def test_progress_and_inspection_tell_and_show_bad_items(world: MakeWorld) -> None:
    made = world(on_bad="skip")
    engine = made.rig.start()
    told: list[BatchProgress] = []
    run = engine.run

    def noting(*args: Any) -> BatchProgress:
        told.append(run(*args))
        return told[-1]

    engine.run = noting  # type: ignore[method-assign]
    made.rig.go()
    totals = Totals()
    for progress in told:
        totals.add(progress)
    assert totals.bad == len(made.bad)
    assert {(one["operator"], one["source"], one["kind"]) for progress in told for one in progress.bad} == {
        ("lines", "", "ValueError")
    }
    seen = inspect(made.rig.checkpoint, segments=made.rig.segments, bad=True)
    (count,) = seen.operator("lines").bad
    assert (count.source, count.kind, count.items) == ("", "ValueError", len(made.bad))
    assert len(seen.bad_items) == len(made.bad)
    assert inspect(made.rig.checkpoint, segments=made.rig.segments).bad_items == ()
    for path in made.rig.checkpoint.rglob("quarantine/rows/*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_items_between_operators_are_left_out_where_they_are_bad(world: MakeWorld) -> None:
    """The sender passes them on; the receiver cannot take them."""

    def pipeline(source: Source) -> Pipeline:
        return Pipeline(
            sources={"": source},
            nodes=(
                Node(name="pass", operator=Passing(), workers=2),
                Node(name="lines", operator=Lines(), inputs=(Edge("pass"),), keyed=True, on_bad="skip"),
            ),
        )

    made = world(pipeline=pipeline, faults=plan(FaultPhase.BACKING_UP, 1))
    made.rig.go()
    made.check_exact()
    assert {(item.operator, item.source) for item in made.kept} == {("lines", "pass")}


class Passing(Operator):
    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        return items


def test_a_bad_item_opens_no_window(world: MakeWorld) -> None:
    made = world(on_bad="skip", window=Hopping(10, column="time"), transforms=(timed,))
    made.rig.go()
    panes = {name for share in made.rig.cells() for name in share}
    assert panes == {"counts@0"}


def timed(items: pa.RecordBatch) -> pa.RecordBatch:
    bad = pc.starts_with(items.column("value").cast(pa.string()), BAD)
    return items.append_column("time", pc.if_else(bad, 1000, 1).cast(pa.int64()))


# --- who chooses --------------------------------------------------------------------------------------------


class Strict(Lines):
    on_bad = "stop"


SCHEMA = pa.schema([("value", pa.string())])


@pytest.mark.parametrize(
    ("source", "operator", "on_bad", "chosen"),
    [
        (Pushed.of(SCHEMA), Lines(), None, "skip"),
        (Pushed.of(SCHEMA, on_bad="stop"), Lines(), None, "stop"),
        (Pushed.of(SCHEMA), Strict(), None, "stop"),
        (Pushed.of(SCHEMA), Strict(), "skip", "skip"),
        (TextFiles("."), Lines(), None, "stop"),
        (TextFiles("."), Lines(), "skip", "skip"),
    ],
)
def test_the_operators_place_decides_before_itself_before_its_source(
    source: Source, operator: Operator, on_bad: Any, chosen: str
) -> None:
    first = Node(name="first", operator=Passing(), workers=1)
    second = Node(name="second", operator=operator, inputs=(Edge("first"),), workers=1, on_bad=on_bad)
    pipeline = Pipeline(sources={"": source}, nodes=(first, second))
    assert pipeline.on_bad(second) == {"first": chosen}


@pytest.mark.parametrize("settings", [{"on_bad": "ignore"}, {"bad_limit": -1}], ids=["choice", "limit"])
def test_choices_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Node(name="lines", operator=Lines(), **settings)
    with pytest.raises(UsageError):
        Pushed.of(SCHEMA, on_bad="keep")


def test_a_changed_choice_needs_no_new_checkpoint() -> None:
    def fingerprint(**settings: Any) -> str:
        return Pipeline.single(source=Pushed.of(SCHEMA), operator=Lines(), **settings).fingerprint()

    assert fingerprint() == fingerprint(on_bad="stop", bad_limit=7)
