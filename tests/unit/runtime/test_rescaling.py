"""Another number of workers at a restart: state is divided anew, nothing is lost, and bounds carry over."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.coordinator.committer import Committer
from afspark.coordinator.recovery.error_budget import CountedFailures
from afspark.coordinator.rescaling import redivided
from afspark.errors import CheckpointError, UsageError
from afspark.store import CommitRecord, CountedFailure

pytestmark = pytest.mark.some(2)

ITEMS = pa.schema({"word": pa.string(), "amount": pa.float64()})
WORDS = [f"word{number}" for number in range(40)]
WINDOWS: dict[str, Any] = {
    "none": None,
    "hopping": af.Hopping(10, by="processing"),
    "sliding": af.Sliding(10, 5, by="processing"),
    "decaying": af.Decaying(0.5, 5, by="processing"),
}
POLICIES: dict[str, Any] = {
    "exact": af.MiniBatch(),
    "loose": af.Approximate(theta=1e9),
    "approximate": af.Approximate(theta=40),
    "snapshot": af.BarrierSnapshot(batches=3),
}


class Amounts(af.Operator):
    """Sums by word. Amounts are whole, and decays by halves, so that no order of additions can be told from another."""

    key = ("word",)
    alpha = 8.0

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"sums": af.HashTable(key="string", value="float64", operator_key=True)}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["sums"].add(items.column("word"), items.column("amount"))


def summing(**settings: Any) -> Any:
    def pipeline(stream: af.Stream) -> Any:
        return stream.apply(Amounts(), name="sums", **settings)

    return pipeline


def drawn(seed: int, rows: int = 60) -> dict[str, list[Any]]:
    chosen = random.Random(seed)
    return {
        "word": [chosen.choice(WORDS) for _ in range(rows)],
        "amount": [float(chosen.randint(1, 8)) for _ in range(rows)],
    }


def truth(*seeds: int) -> dict[str, float]:
    total: Counter[str] = Counter()
    for seed in seeds:
        given = drawn(seed)
        for word, amount in zip(given["word"], given["amount"], strict=True):
            total[word] += amount
    return dict(total)


def sums(table: pa.Table | None) -> dict[str, float]:
    """A table of keys and values, added up by key."""
    found: Counter[str] = Counter()
    if table is None:
        return {}
    *_, keys, values = table.itercolumns()
    for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
        found[key.decode() if isinstance(key, bytes) else key] += value
    return dict(found)


def assert_nothing_was_counted(query: testing.LocalQuery) -> None:
    assert not any(entry["counted"] for entry in query.ledger())
    assert set(query.bounds().values()) == {0.0}


@pytest.mark.some(10)
@pytest.mark.parametrize("numbers", [(1, 3), (3, 2), (2, 5), (4, 1)], ids=str)
@pytest.mark.parametrize("planned", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "local"])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("policy", POLICIES)
def test_rescaled_is_as_never_rescaled(
    policy: str, window: str, keyed: bool, planned: bool, numbers: tuple[int, int]
) -> None:
    first, second = numbers
    settings = {"tolerance": POLICIES[policy], "window": WINDOWS[window], "keyed": keyed}
    times = (1.0, 3.0, 6.0, 12.0, 13.0, 14.0, 22.0, 23.0)
    with (
        testing.run(summing(workers=first, **settings), ITEMS) as query,
        testing.run(summing(workers=first, **settings), ITEMS) as calm,
    ):
        for place, time in enumerate(times):
            if place == 3:
                query.restart_driver(workers={"sums": second}, planned=planned)
                assert len(query.shares()) == second
            if place == 6:
                query.restart_driver(workers={"sums": first}, planned=planned)
            for one in (query, calm):
                one.batch(drawn(place), at=time)
            assert sums(query.results()) == sums(calm.results())
            if WINDOWS[window] is not None and WINDOWS[window].has_panes:
                assert sums(query.windows()) == sums(calm.windows())
        assert len(query.homes()) == first
        assert_nothing_was_counted(query)
        for one in (query, calm):
            one.end()
        if WINDOWS[window] is not None and WINDOWS[window].has_panes:
            assert sums(query.windows()) == sums(calm.windows())


class WithNull(Amounts):
    """Null is a word of its own."""

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"sums": af.HashTable(key="string", value="float64", operator_key=True, null_key=True)}


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "local"])
def test_the_null_key_goes_along(keyed: bool) -> None:
    items = {"word": [None, "one", None, "two"], "amount": [1.0, 2.0, 3.0, 4.0]}
    with testing.run(lambda stream: stream.apply(WithNull(), name="sums", workers=1, keyed=keyed), ITEMS) as query:
        for number, workers in enumerate((3, 2, 1), 1):
            query.batch(items)
            query.restart_driver(workers={"sums": workers}, planned=True)
            assert sums(query.results()) == {None: 4.0 * number, "one": 2.0 * number, "two": 4.0 * number}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("planned", [True, False], ids=["stopped", "killed"])
def test_hosts_may_be_others_as_well(policy: str, planned: bool) -> None:
    with testing.run(summing(tolerance=POLICIES[policy], keyed=True), ITEMS) as query:
        query.batch(drawn(0))
        query.batch(drawn(1))
        if planned:
            query.restart_driver(planned=True)
        query.lose_host()
        query.lose_host()
        query.restart_driver(workers={"sums": 3})
        query.batch(drawn(2))
        bound = query.bounds()["sums"]
        assert bound == 0 if planned or policy in ("exact", "snapshot") else bound > 0
        exact, found = truth(0, 1, 2), sums(query.results())
        assert all(exact[word] - bound <= found.get(word, 0) <= exact[word] for word in exact)


def test_rows_of_the_next_batch_are_those_it_changed() -> None:
    def pipeline(stream: af.Stream) -> Any:
        return summing(workers=2)(stream).writeStream.outputMode("update")

    with testing.run(pipeline, ITEMS) as query:
        query.batch(drawn(0))
        query.restart_driver(workers={"sums": 3})
        word = min(truth(0))
        query.batch({"word": [word], "amount": [2.0]})
        assert sums(query.rows()) == {word: truth(0)[word] + 2}


# --- pipelines of several operators -------------------------------------------------------------------------


class Gate(af.Operator):
    """Passes on what it gets, and counts it; remembers what comes back."""

    rescalable = True
    alpha = 1.0

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"passed": af.Numeric(), "returned": af.HashTable(key="string", value="float64", operator_key=False)}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        states["passed"].add(items.num_rows)
        return items

    def on_feedback(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        if self.context.worker == 0:
            states["returned"].add(items.column("word"), items.column("amount"))

    def results(self, shares: Any) -> pa.Table:
        found: Counter[str] = Counter()
        for share in shares:
            cells = share.cells["returned"]
            for key, value in zip(cells.column("key").to_pylist(), cells.column("value").to_pylist(), strict=True):
                found[key.decode()] += value
        passed = sum(share.cells["passed"].column("value").to_numpy().sum() for share in shares)
        return pa.table({"key": ["", *found], "value": [float(passed), *found.values()]})


class Returning(Amounts):
    """Sends back what it has got."""

    def begin(self, states: Mapping[str, Any], context: af.WorkerContext) -> None:
        self.context = context

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        super().process(items, states)
        self.context.outbox.feed_back(items, to="gate")
        return items


def graph(tolerance: Any, window: Any = None) -> Any:
    def pipeline(stream: af.Stream) -> Any:
        gate = stream.apply(Gate(), name="gate", workers=2, tolerance=tolerance)
        back = gate.apply(Returning(), name="back", workers=2, keyed=True, tolerance=tolerance, feeds_back=["gate"])
        return back.apply(Amounts(), name="sums", workers=2, keyed=True, tolerance=tolerance, window=window)

    return pipeline


@pytest.mark.parametrize("window", ["none", "hopping", "decaying"])
@pytest.mark.parametrize("planned", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("policy", ["exact", "loose", "snapshot"])
def test_feedback_and_everything_downstream_go_along(policy: str, planned: bool, window: str) -> None:
    tolerance = af.Approximate(theta=1e9, items=1000) if policy == "loose" else POLICIES[policy]
    changes: list[dict[str, int]] = [
        {"back": 3},
        {"gate": 3, "sums": 1},
        {"gate": 1, "back": 1, "sums": 4},
        {"gate": 2, "back": 4},
    ]
    with (
        testing.run(graph(tolerance, WINDOWS[window]), ITEMS) as query,
        testing.run(graph(tolerance, WINDOWS[window]), ITEMS) as calm,
    ):
        for place in range(9):
            if place % 2 and place // 2 < len(changes):
                query.restart_driver(workers=changes[place // 2], planned=planned)
            for one in (query, calm):
                one.batch(drawn(place), at=3.0 * place)
            for name in ("gate", "back", "sums"):
                assert sums(query.results(name)) == sums(calm.results(name)), (place, name)
        for name in ("gate", "back", "sums"):
            assert set(query.bounds(name).values()) == {0.0}


# --- bounds -------------------------------------------------------------------------------------------------


class Spread(Amounts):
    """Sums whose distance is that of all words together."""

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"sums": af.HashTable(key="string", value="float64", divergence="manhattan", operator_key=True)}


def schedule(seed: int, operator: type[Amounts], keyed: bool, steps: int = 14) -> Counter[str]:
    """Batches, losses and changes of number in an order that the seed decides; observed <= told <= promised after each.

    Returns how often what happened.
    """
    chosen, seen = random.Random(seed), Counter[str]()
    theta = chosen.choice([0.0, 40.0, 400.0])

    def pipeline(stream: af.Stream) -> Any:
        tolerance = af.Approximate(theta=theta)
        return stream.apply(operator(), name="sums", workers=chosen.randint(1, 3), keyed=keyed, tolerance=tolerance)

    batches: list[int] = []
    told = 0.0
    with testing.run(pipeline, ITEMS) as query:
        for step in range(steps):
            match chosen.choice(["batch", "batch", "loss", "restart", "rescale", "rescale"]):
                case "loss":
                    query.lose_host()
                case "restart":
                    query.restart_driver(planned=chosen.random() < 0.5)
                case "rescale":
                    planned = chosen.random() < 0.5
                    if planned and chosen.random() < 0.5:
                        query.restart_driver(planned=True)
                        query.lose_host()
                        planned = False
                    query.restart_driver(workers={"sums": chosen.randint(1, 4)}, planned=planned)
                    seen["rescaled"] += 1
            batches.append(100 * seed + step)
            query.batch(drawn(batches[-1]))
            exact, found, bound = truth(*batches), sums(query.results()), query.bounds()["sums"]
            missing = [exact[word] - found.get(word, 0.0) for word in exact]
            assert all(one >= 0 for one in missing), "something counts twice"
            observed = max(missing) if operator is Amounts else sum(missing)
            assert observed <= bound <= theta, (step, observed, bound, theta)
            assert bound >= told, "a loss is forgotten"
            told = bound
            seen["lost"] += observed > 0
    return seen


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "local"])
@pytest.mark.parametrize("operator", [Amounts, Spread])
def test_observed_is_within_told_is_within_promised(operator: type[Amounts], keyed: bool) -> None:
    seen = Counter[str]()
    for seed in range(8):
        seen += schedule(seed, operator, keyed)
    assert seen["rescaled"] > 20 and seen["lost"] > 10


def forgotten(*_: Any, **__: Any) -> list[tuple[CountedFailure, ...]]:
    return [() for _ in range(9)]


def every_time(per_worker: list[CountedFailures]) -> list[CountedFailures]:
    return list(per_worker)


def unflushed(self: Committer, seconds: float) -> CommitRecord | None:
    """As if nothing were resident that no backup has."""
    found = self.newest_found
    return None if found is None else replace(found, epoch=self._log.epoch)


def found_in(seeds: range, operator: type[Amounts], keyed: bool) -> bool:
    for seed in seeds:
        try:
            schedule(seed, operator, keyed)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("mistake", ["forgotten", "every time"])
def test_planted_mistakes_are_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    match mistake:
        case "forgotten":
            monkeypatch.setattr(redivided, "inherited", forgotten)
        case "every time":
            monkeypatch.setattr("afspark.coordinator.recovery.error_budget.once", every_time)
    assert found_in(range(20), Spread, keyed=True)


def test_what_is_resident_alone_would_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Committer, "at_rest", unflushed)
    with testing.run(summing(workers=2, keyed=True, tolerance=POLICIES["loose"]), ITEMS) as query:
        query.batch(drawn(0))
        query.restart_driver(workers={"sums": 3})
        query.batch(drawn(1))
        assert sums(query.results()) != truth(0, 1) and query.bounds() == {"sums": 0.0}


# --- what cannot be -----------------------------------------------------------------------------------------


class Untold(Amounts):
    def states(self) -> Mapping[str, af.StateSpec]:
        return {"sums": af.HashTable(key="string", value="float64")}


class Keys(Untold):
    def keys_of(self, state: str, cells: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"word": cells.column("key")})


class WrongKeys(Untold):
    def keys_of(self, state: str, cells: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"word": pa.array([f"{key}!" for key in cells.column("key").to_pylist()])})


class Several(Untold):
    def states(self) -> Mapping[str, af.StateSpec]:
        return {"sums": af.HashTable(key="string", value="float64"), "items": af.Numeric()}

    def results(self, shares: Any) -> pa.Table:
        return pa.table({"key": ["all"], "value": [float(len(shares))]})


class KeysApart(Several):
    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        super().process(items, states)
        states["items"].add(items.num_rows)

    def keys_of(self, state: str, cells: pa.RecordBatch) -> pa.RecordBatch | None:
        return None if state == "items" else pa.record_batch({"word": cells.column("key")})

    def results(self, shares: Any) -> pa.Table:
        items = sum(int(share.cells["items"].column("value").to_numpy().sum()) for share in shares)
        return pa.table({"key": ["items"], "value": [float(items)]})


class Greatest(Amounts):
    """The greatest amount of each word, wherever it came from: shares that are added up would give another one."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        words, amounts = items.column("word"), items.column("amount")
        greatest = pa.table([words, amounts], names=["word", "amount"]).group_by("word").aggregate([("amount", "max")])
        known = states["sums"].get(greatest["word"].combine_chunks())
        states["sums"].put(greatest["word"].combine_chunks(), np.maximum(known, greatest["amount_max"].to_numpy()))

    def results(self, shares: Any) -> pa.Table:
        cells = pa.concat_tables(pa.Table.from_batches([share.cells["sums"]]) for share in shares)
        found = cells.group_by("key").aggregate([("value", "max")])
        return pa.table({"key": found["key"], "value": found["value_max"]})


class Never(Amounts):
    rescalable = "it is bound to them"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": (
        {"operator": Amounts(), "keyed": True, "tolerance": af.Nothing(), "window": af.Hopping(10, by="processing")},
        "Nothing",
    ),
    "count": ({"operator": Amounts(), "window": af.Hopping(12, by="count")}, "by count"),
    "unknown keys": ({"operator": Untold(), "keyed": True}, "keys_of"),
    "unknown shares": ({"operator": Several()}, "rescalable"),
    "results of its own": ({"operator": Greatest(), "keyed": False}, "rescalable"),
    "declared": ({"operator": Never(), "keyed": True}, "it is bound to them"),
    "wrong keys": ({"operator": WrongKeys(), "keyed": True}, "belongs to worker"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_divided_is_refused_and_goes_on(case: str) -> None:
    settings, words = REFUSED[case]
    operator = settings["operator"]
    rest = {name: value for name, value in settings.items() if name != "operator"}

    def pipeline(stream: af.Stream) -> Any:
        return stream.apply(operator, name="sums", workers=2, **rest)

    with testing.run(pipeline, ITEMS) as query:
        query.batch(drawn(0))
        with pytest.raises((CheckpointError, UsageError)) as refused:
            query.restart_driver(workers={"sums": 3}, planned=True)
        assert words in str(refused.value) and "\n" not in refused.value.message
        assert refused.value.remedy
        query.batch(drawn(1))
        assert len(query.homes()) == 2
        if case in ("unknown keys", "declared", "wrong keys"):
            assert sums(query.results()) == truth(0, 1)


def test_nothing_without_records_is_refused_as_well() -> None:
    with testing.run(summing(tolerance=af.Nothing()), ITEMS) as query:
        query.batch(drawn(0))
        query.restart_driver(workers={"sums": 3})
        with pytest.raises(CheckpointError, match="Nothing"):
            query.batch(drawn(1))


@pytest.mark.parametrize("planned", [True, False])
def test_keys_that_the_operator_tells(planned: bool) -> None:
    with testing.run(lambda stream: stream.apply(Keys(), name="sums", workers=2, keyed=True), ITEMS) as query:
        query.batch(drawn(0))
        query.restart_driver(workers={"sums": 3}, planned=planned)
        query.batch(drawn(1))
        assert sums(query.results()) == truth(0, 1)


def test_states_without_a_key_are_added_up() -> None:
    with testing.run(lambda stream: stream.apply(KeysApart(), name="sums", workers=3, keyed=True), ITEMS) as query:
        for place, workers in enumerate((2, 1, 4)):
            query.batch(drawn(place))
            query.restart_driver(workers={"sums": workers}, planned=True)
        query.batch(drawn(3))
        assert sums(query.results()) == {"items": 240.0}
        found: Counter[str] = Counter()
        for share in query.shares():
            cells = share.cells["sums"]
            for key, value in zip(cells.column("key").to_pylist(), cells.column("value").to_pylist(), strict=True):
                found[key.decode()] += value
        assert dict(found) == truth(0, 1, 2, 3)


def test_numbers_may_change_before_the_first_batch() -> None:
    with testing.run(summing(workers=2), ITEMS) as query:
        query.restart_driver(workers={"sums": 3})
        query.batch(drawn(0))
        query.restart_driver(workers={"sums": 2})
        assert sums(query.results()) == truth(0)
        assert np.array_equal(sorted(truth(0)), sorted(sums(query.results())))
