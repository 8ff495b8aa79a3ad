"""Logistic regression: a local worker alone, what it sends, and what the global worker makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.algorithms import Features, GlobalRegression, LocalRegression
from afspark.algorithms.logistic_regression import open_model, pack_model
from afspark.algorithms.progressive import Progress
from afspark.errors import UsageError
from afspark.model.kernels.logistic import Lesson
from afspark.model.operator import Outbox, WorkerContext
from afspark.model.preconditions import Flaw, check_operator
from afspark.model.states import Own
from afspark.model.states.conformance import check_all
from afspark.policies import Approximate, MiniBatch, Nothing, refuse_if_unfit
from afspark.sources import Clicks, Higgs, Source
from tests.twins import logistic_twin as twin
from tests.unit.algorithms.alone import Alone
from tests.unit.sources.conftest import DictStore

SMALL = Features(categorical=("a", "b"), slots=50)


def rows(source: Source) -> list[pa.RecordBatch]:
    planner = source.planner(DictStore())
    return [batch for chunk in planner.chunks(planner.initial(), planner.discover()) for batch in source.read(chunk)]


def fitted(schema: pa.Schema | None, features: Features | None = None, **settings: Any) -> LocalRegression:
    operator = LocalRegression(features, **settings)
    operator.check(schema)
    return operator


def result(alone: Alone) -> dict[str, Any]:
    (row,) = alone.operator.results([alone.share()]).to_pylist()
    return row


def words(seed: int, count: int) -> pa.RecordBatch:
    draw = np.random.default_rng(seed)
    a, b = draw.integers(0, 5, count), draw.integers(0, 9, count)
    texts = [f"w{value}" for value in b]
    return pa.record_batch({"label": ((a + b) % 3 == 0).astype(int), "a": a, "b": texts})


# --- one worker --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "margin"), [(Clicks(120_000, seed=5), 0.05), (Higgs(60_000, seed=5), 0.1)], ids=str)
def test_it_predicts_generated_items_better_than_the_base_rate(source: Source, margin: float) -> None:
    alone = Alone(fitted(source.schema()), Nothing())
    for batch in rows(source):
        alone.apply([batch])
    found = result(alone)
    assert found["items"] == source.rows and found["skipped"] == 0
    assert found["prediction_rate"] > found["base_rate"] + margin
    assert found["log_loss"] < 0.65


@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_a_worker_learns_what_the_definition_says(seed: int, sizes: list[int]) -> None:
    """Integers are placed by their own hash, so the plain twin finds the same cells."""
    operator = fitted(None, Features(categorical=("a", "b"), slots=50))
    alone, plain, t = Alone(operator, MiniBatch()), {}, 0
    draw = np.random.default_rng(seed)
    for size in sizes:
        values, labels = draw.integers(0, 20, (size, 2)), draw.integers(0, 2, size)
        alone.apply([pa.record_batch({"label": labels, "a": values[:, 0], "b": values[:, 1]})])
        items = [
            (int(y), [(twin.place(int(v), k, 50, 1), 1.0) for k, v in enumerate(row)])
            for y, row in zip(labels, values, strict=True)
        ]
        twin.learn(plain, items, t=t)
        t += size
    expected = [plain.get(cell, 0.0) for cell in range(51)]
    assert alone.states["model"].values == pytest.approx(np.array(expected), rel=1e-9, abs=1e-12)
    assert result(alone)["items"] == t


@pytest.mark.parametrize("layout", ["ones", "dense", "sparse", "mixed"])
def test_batches_of_any_size_teach_the_same(layout: str) -> None:
    items = words(3, 400)
    features = Features(categorical=("a", "b"), slots=50)
    if layout == "dense":
        draw = np.random.default_rng(2)
        items = pa.record_batch(
            {"label": draw.integers(0, 2, 400), "x": draw.normal(size=400), "n": pa.array(range(400))}
        )
        features = Features()
    elif layout == "mixed":
        features = Features(numeric=("a",), categorical=("b",), slots=50)
    elif layout == "sparse":
        index = pa.array([[i % 7, 100 + i % 11] for i in range(400)], pa.list_(pa.int32()))
        value = pa.array([[1.0, -0.5]] * 400)
        items = pa.record_batch({"label": items.column("label"), "index": index, "value": value})
        features = Features(slots=64)
    whole, parts = (
        Alone(fitted(items.schema, features), MiniBatch()),
        Alone(fitted(items.schema, features), MiniBatch()),
    )
    whole.apply([items])
    for start in range(0, 400, 37):
        parts.apply([items.slice(start, 37)])
    assert whole.states["model"].values == pytest.approx(parts.states["model"].values, rel=1e-12)
    assert result(whole) == pytest.approx(result(parts))


# --- rows that are no good ---------------------------------------------------------------------------------------


def broken() -> pa.RecordBatch:
    return pa.record_batch(
        {
            "label": pa.array([1.0, 0.0, None, 2.0, 1.0, -1.0, 1.0]),
            "x": pa.array([1.0, None, 1.0, 1.0, float("nan"), 0.5, 2.0]),
            "c": pa.array(["a", "b", "c", "d", "e", "f", None]),
        }
    )


@pytest.mark.parametrize(
    ("features", "good"), [(Features(numeric=("x",)), 3), (Features(numeric=("x",), categorical=("c",), slots=9), 2)]
)
def test_rows_with_missing_or_unknown_values_are_skipped_and_counted(features: Features, good: int) -> None:
    alone = Alone(fitted(broken().schema, features), MiniBatch())
    alone.apply([broken()])
    assert (result(alone)["items"], result(alone)["skipped"]) == (good, 7 - good)


def test_or_they_stop_the_query() -> None:
    alone = Alone(fitted(broken().schema, Features(numeric=("x",)), on_bad="stop"), MiniBatch())
    with pytest.raises(UsageError) as caught:
        alone.apply([broken()])
    assert caught.value.rows == 4


def test_lists_with_holes_are_skipped() -> None:
    fixed = pa.record_batch(
        {"label": [1, 0, 1], "features": pa.array([[1.0, 2.0], [None, 1.0], None], pa.list_(pa.float64(), 2))}
    )
    index = pa.array([[1], [1, 2], [None], [3]], pa.list_(pa.int32()))
    sparse = pa.record_batch({"label": [1, 0, 1, 0], "index": index, "value": [[1.0], [1.0], [1.0], [2.0]]})
    for items, good in ((fixed, 1), (sparse, 2)):
        alone = Alone(fitted(items.schema, Features(slots=9)), MiniBatch())
        alone.apply([items])
        assert result(alone)["items"] == good


@pytest.mark.parametrize(
    "labels", [[1, 0, 1], [1, -1, 1], [True, False, True], [1.0, 0.0, 1.0], pa.array([1, 0, 1], pa.uint8())]
)
def test_labels_of_several_kinds(labels: Any) -> None:
    items = pa.record_batch({"label": labels, "x": [1.0, 2.0, 3.0]})
    assert Features(numeric=("x",)).labels(Features(numeric=("x",)).sound(items)).tolist() == [1, 0, 1]


def test_a_label_can_be_named() -> None:
    items = pa.record_batch({"kind": ["spam", "ham", None], "x": [1.0, 2.0, 3.0]})
    features = Features(label="kind", positive="spam", numeric=("x",))
    assert features.labels(features.sound(items)).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("schema", "features", "column"),
    [
        ({"x": pa.float64()}, Features(), "label"),
        ({"label": pa.int8(), "x": pa.string()}, Features(), "x"),
        ({"label": pa.string(), "x": pa.float64()}, Features(), "label"),
        ({"label": pa.int8(), "x": pa.float64()}, Features(positive="spam"), "label"),
        ({"label": pa.int8(), "x": pa.float64()}, Features(numeric=("y",)), "y"),
        ({"label": pa.int8(), "x": pa.list_(pa.float64(), 3)}, Features(categorical=("x",)), "x"),
        ({"label": pa.int8(), "index": pa.list_(pa.string()), "value": pa.list_(pa.float64())}, Features(), "index"),
    ],
    ids=str,
)
def test_columns_that_do_not_fit_are_refused(schema: dict[str, Any], features: Features, column: str) -> None:
    with pytest.raises(UsageError) as caught:
        LocalRegression(features).check(pa.schema(schema))
    assert caught.value.column == column and "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [
    lambda: LocalRegression(rate=0), lambda: LocalRegression(merge_every=0), lambda: LocalRegression(on_bad="hide"),
    lambda: Features(slots=0), lambda: Features(norm=float("inf")), lambda: Features(numeric=("label",)),
    lambda: Features(sparse=("i", "v"), numeric=("x",)), lambda: LocalRegression().check(None),
])  # fmt: skip
def test_settings_that_mean_nothing_are_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


# --- what approximate recovery needs of it -----------------------------------------------------------------------


@pytest.mark.parametrize("source", [Clicks(300, seed=1), Higgs(300, seed=1)], ids=["clicks", "higgs"])
def test_alpha_is_true_and_gradient_descent_is_known_to_expand_at_most(source: Source) -> None:
    """No item moves a state by more than alpha. Two models may move apart, which is why no final state is promised."""
    (batch,) = rows(source)
    found = check_operator(fitted(source.schema(), Features(slots=500)), [batch], steps=60)
    assert found.flaws <= {Flaw.EXPANSIVE}
    assert 0 < found.observed["model"] <= fitted(source.schema(), Features(slots=500)).alpha


def test_both_operators_are_accepted_with_items_that_may_be_lost() -> None:
    local = fitted(None, SMALL)
    for operator in (local, GlobalRegression(local.features)):
        refuse_if_unfit(operator, Approximate(theta=10, items=1000))


def test_progress_is_a_sound_state() -> None:
    def update(state: Any, random: np.random.Generator) -> None:
        state.own.learned(int(random.integers(1, 9)), Lesson(1, int(random.integers(0, 9)), float(random.random()), 0))

    check_all(Own(Progress), update)


def test_counts_are_backed_up_when_a_share_of_them_is_new_and_together() -> None:
    """A threshold of 1 is a tenth of the items; what is restored fits together."""
    alone = Alone(fitted(None, SMALL), Approximate(theta=2.0))
    for number in range(60):
        alone.apply([words(number, 50)])
    backups = len(alone.backups["progress"])
    assert 10 < backups < 40
    before = result(alone)
    alone.fail()
    after = result(alone)
    assert 0.9 * before["items"] <= after["items"] <= before["items"]
    assert after["prediction_rate"] == pytest.approx(before["prediction_rate"], abs=0.05)


def test_a_model_within_the_threshold_is_not_backed_up() -> None:
    alone = Alone(fitted(None, SMALL), Approximate(theta=1e6))
    alone.apply([words(1, 500)])
    assert not alone.backups["model"]
    exact = Alone(fitted(None, SMALL), MiniBatch())
    exact.apply([words(1, 500)])
    kept = exact.states["model"].values.copy()
    exact.fail()
    assert exact.states["model"].values.tolist() == kept.tolist()


# --- models on their way -----------------------------------------------------------------------------------------


class Post(Outbox):
    def __init__(self) -> None:
        self.fed: list[pa.RecordBatch] = []

    def feed_back(self, items: pa.RecordBatch, *, to: str) -> None:
        self.fed.append(items)


class LoneOperator:
    """An operator on its own, batch by batch, with what it sends."""

    def __init__(self, operator: Any) -> None:
        self.alone = Alone(operator, MiniBatch())
        self.post = Post()
        self.batch = 0

    def run(self, items: Sequence[pa.RecordBatch], feedback: Sequence[pa.RecordBatch] = (), **lost: Any) -> Any:
        operator, states = self.alone.operator, self.alone.states
        operator.__dict__.update(_recovered=False, _whole=False)
        context = WorkerContext(worker=0, workers=1, batch=self.batch, outbox=self.post, **lost)
        operator.context = context
        for state in states.values():
            state.acknowledge()
            state.begin()
        if lost:
            operator.on_recover(states, context)
        for one in feedback:
            operator.on_feedback(one, states)
        operator.begin(states, context)
        for one in items:
            operator.process(one, states)
        sent = operator.finish(states)
        for state in states.values():
            state.update_drift()
        self.batch += 1
        return sent

    @property
    def model(self) -> np.ndarray[Any, Any]:
        return np.array(self.alone.states["model"].values)


def pair(**settings: Any) -> tuple[LoneOperator, LoneOperator]:
    local = fitted(None, Features(categorical=("a", "b"), slots=1000), **settings)
    return LoneOperator(local), LoneOperator(GlobalRegression(local.features))


def test_only_cells_that_changed_are_sent_and_fed_back() -> None:
    local, merger = pair()
    sent = local.run([words(1, 20)])
    cells, values = open_model(sent)
    assert len(cells) <= 15 and sent.num_rows == 1
    assert values.tolist() == local.model[cells].tolist()
    curve = merger.run([sent])
    assert curve.to_pylist()[0]["items"] == 20 and 0 <= curve.to_pylist()[0]["prediction_rate"] <= 1
    assert merger.model.tolist() == local.model.tolist(), "the average of one model"
    (back,) = merger.post.fed
    assert back.num_rows == 1 and open_model(back)[0].tolist() == cells.tolist()


def test_a_model_of_which_most_has_changed_travels_without_indices() -> None:
    values = np.arange(9.0)
    many, few = np.arange(8, dtype=np.uint32), np.arange(2, dtype=np.uint32)
    dense, sparse = (pack_model(cells, values[cells], values, items=1) for cells in (many, few))
    assert len(dense.column("index")[0]) == 0 and len(sparse.column("index")[0]) == 2
    assert [part.tolist() for part in open_model(dense)] == [list(range(9)), values.tolist()]
    assert [part.tolist() for part in open_model(sparse)] == [[0, 1], [0.0, 1.0]]


def test_two_models_are_averaged_and_replace_the_local_ones() -> None:
    first, merger = pair()
    second, _ = pair()
    base = np.zeros(1001)
    for number in range(4):
        fed = merger.post.fed[-1:]
        sent = [first.run([words(number, 30)], fed), second.run([words(100 + number, 10)], fed)]
        models = [(30, first.model), (10, second.model)]
        base = sum(items / 40 * model for items, model in models)
        merger.run(sent)
        assert merger.model == pytest.approx(base, rel=1e-12)
    for local in (first, second):
        local.run([], merger.post.fed[-1:])
        assert local.model == pytest.approx(base, rel=1e-12)


def test_a_worker_without_items_sends_nothing_and_weighs_nothing() -> None:
    first, merger = pair()
    assert first.run([]) is None
    assert merger.run([]) is None and not merger.post.fed


def test_a_model_is_sent_every_so_many_items_and_then_whole() -> None:
    local, merger = pair(merge_every=50)
    assert local.run([words(1, 20)]) is None and local.run([words(2, 20)]) is None
    sent = local.run([words(3, 20)])
    assert sent.column("items")[0].as_py() == 60
    merger.run([sent])
    assert merger.model.tolist() == local.model.tolist()
    assert local.run([words(4, 20)]) is None


def test_what_was_not_sent_yet_keeps_its_part() -> None:
    local, _ = pair(merge_every=1000)
    local.run([words(1, 30)])
    before = local.model
    merged = pack_model(np.arange(1001, dtype=np.uint32), np.ones(1001), np.ones(1001), items=90)
    local.run([], [merged])
    assert local.model == pytest.approx(0.25 * before + 0.75)


def test_a_worker_that_lost_its_model_is_given_the_whole_one() -> None:
    local, merger = pair()
    merger.run([local.run([words(1, 200)])])
    fresh, _ = pair()
    merger.run([fresh.run([], lost={"model": 1.0})])
    fresh.run([], merger.post.fed[-1:])
    assert fresh.model.tolist() == merger.model.tolist() != [0.0] * 1001


def test_feedback_that_was_lost_is_made_good_by_the_whole_model() -> None:
    local, merger = pair()
    merger.run([local.run([words(1, 200)])])
    merger.post.fed.clear()
    merger.run([], lost={"model": 0.0}, lost_items=1)
    other, _ = pair()
    other.run([], merger.post.fed)
    assert other.model.tolist() == merger.model.tolist()


def test_the_model_has_the_names_of_its_features() -> None:
    items = pa.record_batch({"label": [1, 0], "age": [1.0, 2.0], "height": [3.0, -1.0]})
    local = fitted(items.schema)
    learner, merger = LoneOperator(local), LoneOperator(GlobalRegression(local.features))
    merger.run([learner.run([items])])
    table = merger.alone.operator.results([merger.alone.share()])
    assert table.column("feature").to_pylist() == ["bias", "age", "height"]
    assert table.column("weight").to_pylist() == merger.model.tolist()
    hashed, merger = pair()
    merger.run([hashed.run([words(1, 5)])])
    assert merger.alone.operator.results([merger.alone.share()]).column("feature").to_pylist()[:2] == ["bias", None]
