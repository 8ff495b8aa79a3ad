"""Bargain Discovery as a whole pipeline without a JVM, with failures and gaps, against its plain twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.algorithms.bargain_index import AGGREGATOR, AVERAGES, BARGAIN_INDEX, NODES, TRADE_QUOTE
from afspark.api.assembly import composed
from afspark.api.stream import Inflow, Stream
from afspark.cli.planning import MemoryLog
from afspark.errors import AfsparkError, UsageError
from afspark.model.preconditions import check_operator
from afspark.sources import MarketEvents
from afspark.sources.generated_market import EVENTS
from tests.twins import market_twin as twin

SOURCE = MarketEvents(6_000, seed=3, symbols=40)
BATCHES = 6

Bargains = dict[int, dict[str, Any]]


@cache
def events() -> pa.Table:
    planner = SOURCE.planner(MemoryLog())
    chunks = planner.chunks(planner.initial(), planner.discover())
    return pa.Table.from_batches([batch for chunk in chunks for batch in SOURCE.read(chunk)])


def batches(table: pa.Table, many: int = BATCHES) -> Iterator[pa.Table]:
    size = -(-len(table) // many)
    for start in range(0, len(table), size):
        yield table.slice(start, size).combine_chunks()


def discovery(**settings: Any) -> Callable[[af.Stream], Any]:
    def pipeline(stream: af.Stream) -> Any:
        return af.bargain_discovery(stream, **settings).writeStream.outputMode("append")

    return pipeline


def one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(table.to_struct_array().combine_chunks())


def given_out(query: Any, table: pa.Table) -> Bargains:
    query.batch(one_batch(table))
    found = query.items()
    return {} if found is None else {row["key"]: row for row in found.to_pylist()}


def disturb(query: Any, number: int) -> None:
    """Hosts, processes with and without their state, and the driver fail, one after the other."""
    if number == 1:
        query.lose_host()
    elif number == 2:
        query.kill_worker(AGGREGATOR, 0)
        query.kill_worker(BARGAIN_INDEX, 1, "backing up", lose_state=True)
    elif number == 3:
        query.restart_driver()
        query.lose_host()


def bargains(table: pa.Table, many: int = BATCHES, *, failing: bool = False, **settings: Any) -> Bargains:
    found: Bargains = {}
    with testing.run(discovery(**settings), EVENTS) as query:
        for number, batch in enumerate(batches(table, many)):
            found |= given_out(query, batch)
            if failing:
                disturb(query, number)
        assert bool(query.ledger()) == failing
    return found


def gains(found: Bargains) -> dict[int, twin.Bargain]:
    return {key: twin.Bargain(row["ticker"], row["average"], row["gain"]) for key, row in found.items()}


@pytest.fixture(scope="module")
def exact() -> dict[int, twin.Bargain]:
    found = twin.bargains(events().to_pylist())
    assert len(found) > 300
    return found


@pytest.mark.parametrize(("many", "workers"), [(1, 1), (BATCHES, 1), (4, 2)])
def test_bargains_are_those_of_the_twin(many: int, workers: int, exact: dict[int, twin.Bargain]) -> None:
    assert gains(bargains(events(), many, workers=workers)) == exact


def test_rows_tell_what_was_asked(exact: dict[int, twin.Bargain]) -> None:
    (key, _), *_ = exact.items()
    quote = events().slice(key, 1).to_pylist()[0]
    row = bargains(events().slice(0, key + 1), 2)[key]
    assert list(row) == ["key", "time", "ticker", "ask_price", "ask_size", "average", "gain"]
    assert all(row[name] == quote[name] for name in ("key", "time", "ticker", "ask_price", "ask_size"))
    assert row["gain"] == row["ask_size"] * (row["average"] - row["ask_price"]) > 0


def test_the_order_within_a_batch_is_that_of_keys(exact: dict[int, twin.Bargain]) -> None:
    shuffled = [one.take(np.random.default_rng(1).permutation(len(one))) for one in batches(events())]
    assert gains(bargains(pa.concat_tables(shuffled))) == exact


def test_the_graph_is_that_of_the_paper() -> None:
    last = af.bargain_discovery(Stream(None, (Inflow(SOURCE),)))
    readers = {node.name: [edge.origin for edge in node.inputs] for node in composed([(last, "append")]).nodes}
    assert readers.keys() == set(NODES)
    assert readers == {
        "TradeQuote": [""],
        "TradeFilter": ["TradeQuote"],
        "Aggregator": ["TradeFilter"],
        "VWAP": ["Aggregator"],
        "QuoteFilter": ["TradeQuote"],
        "BargainIndex": ["VWAP", "QuoteFilter"],
    }


@pytest.mark.parametrize("tolerance", [af.MiniBatch(), af.BarrierSnapshot(interval=3)], ids=lambda one: one.name)
def test_bargains_are_exact_under_an_exact_policy(tolerance: af.Tolerance, exact: dict[int, twin.Bargain]) -> None:
    assert gains(bargains(events(), failing=True, tolerance=tolerance)) == exact


def test_no_gain_is_off_by_more_than_theta_for_each_share(exact: dict[int, twin.Bargain]) -> None:
    theta = 2.0
    found = bargains(events(), failing=True, tolerance=af.Approximate(theta=theta))
    sizes = events().column("ask_size").to_pylist()
    errors = {
        key: abs((found[key]["gain"] if key in found else 0.0) - (exact[key].gain if key in exact else 0.0))
        for key in found.keys() | exact.keys()
    }
    assert max(errors.values()) > 0
    assert all(error <= theta * sizes[key] + 1e-6 for key, error in errors.items())


def test_bounds_are_told_of_prices_and_averages() -> None:
    theta = 2.0
    known: dict[str, float] = {}
    twin.bargains(events().to_pylist(), known)
    with testing.run(discovery(tolerance=af.Approximate(theta=theta)), EVENTS) as query:
        for number, batch in enumerate(batches(events())):
            query.batch(one_batch(batch))
            disturb(query, number)
        rows = query.results().to_pylist()
        bound = query.bounds(AGGREGATOR)["price"] + query.bounds(BARGAIN_INDEX)[AVERAGES]
        assert query.bounds(AGGREGATOR)["volume"] == 0
        assert query.upstream_losses(BARGAIN_INDEX) == [AGGREGATOR]
    assert {row["ticker"] for row in rows} == known.keys()
    assert max(abs(row["average"] - known[row["ticker"]]) for row in rows) <= bound <= theta


def test_states_are_the_same_again_after_a_gap() -> None:
    """Trades are lost, and once five more of each symbol have come nothing tells of it."""

    def trade(key: int, ticker: str) -> dict[str, Any]:
        return {
            "key": key,
            "time": float(key),
            "ticker": ticker,
            "type": "trade",
            "price": 1.0 + key,
            "volume": 1 + key,
        }

    def states(query: Any) -> dict[str, Any]:
        shares = [(name, share) for name in (AGGREGATOR, BARGAIN_INDEX) for share in query.shares(name)]
        return {
            f"{name} {share.worker} {state}": sorted(zip(*cells.to_pydict().values(), strict=True))
            for name, share in shares
            for state, cells in share.cells.items()
        }

    def run(missing: set[int]) -> list[dict[str, Any]]:
        seen = []
        with testing.run(discovery(), EVENTS) as query:
            for number in range(10):
                rows = [trade(2 * number, "A"), trade(2 * number + 1, "B")]
                query.batch(pa.RecordBatch.from_pylist([] if number in missing else rows, EVENTS))
                seen.append(states(query))
        return seen

    whole, gap = run(set()), run({3})
    assert [one == other for one, other in zip(whole, gap, strict=True)] == [True] * 3 + [False] * 5 + [True] * 2


def test_results_tell_recent_trades_and_newest_averages() -> None:
    rows = [
        {"key": key, "time": 0.0, "ticker": "XYZ", "type": "trade", "price": float(key), "volume": 10 * key}
        for key in range(1, 8)
    ]
    with testing.run(discovery(), EVENTS) as query:
        query.batch(pa.RecordBatch.from_pylist(rows, EVENTS))
        recent = query.results(AGGREGATOR).to_pylist()
        assert recent == [
            {"ticker": "XYZ", "place": place, "price": 7.0 - place, "volume": 70 - 10 * place} for place in range(5)
        ]
        volumes = [row["volume"] for row in recent]
        average = sum(row["price"] * row["volume"] for row in recent) / sum(volumes)
        assert query.results().to_pylist() == [{"ticker": "XYZ", "average": average}]
        with pytest.raises(AfsparkError, match="keeps nothing"):
            query.results("TradeFilter")


BAD = [
    {"key": None},
    {"time": None},
    {"ticker": None},
    {"type": None},
    {"type": "split"},
    {"price": None},
    {"price": 0.0},
    {"price": -1.0},
    {"price": float("nan")},
    {"price": float("inf")},
    {"volume": None},
    {"volume": 0},
    {"type": "quote", "ask_size": 0},
    {"type": "quote", "ask_price": None},
]
GOOD = {
    "key": 1,
    "time": 1.0,
    "ticker": "A",
    "type": "trade",
    "price": 5.0,
    "volume": 10,
    "ask_price": 4.0,
    "ask_size": 3,
}
LOOSE = pa.schema([field.with_nullable(True) for field in EVENTS])


def test_unusable_events_are_skipped_and_counted() -> None:
    rows = [GOOD, *(GOOD | {"key": 2 + number} | one for number, one in enumerate(BAD)), GOOD | {"key": 99}]
    with testing.run(discovery(), LOOSE) as query:
        query.batch(pa.RecordBatch.from_pylist(rows, LOOSE))
        assert query.results(TRADE_QUOTE).to_pylist() == [{"skipped": len(BAD)}]
        assert query.results(AGGREGATOR).column("place").to_pylist() == [0, 1]


@pytest.mark.parametrize("bad", BAD[:6], ids=str)
def test_or_they_stop_the_query(bad: dict[str, Any]) -> None:
    with testing.run(discovery(on_bad="stop"), LOOSE) as query, pytest.raises(AfsparkError, match="neither a trade"):
        query.batch(pa.RecordBatch.from_pylist([GOOD | bad], LOOSE))


@pytest.mark.parametrize(
    ("column", "kind"),
    [("key", None), ("key", pa.string()), ("ticker", pa.int64()), ("price", pa.string()), ("time", pa.bool_())],
)
def test_columns_that_do_not_fit_are_refused(column: str, kind: pa.DataType | None) -> None:
    at = EVENTS.get_field_index(column)
    schema = EVENTS.remove(at) if kind is None else EVENTS.set(at, pa.field(column, kind))
    with pytest.raises(UsageError, match=column), testing.run(discovery(), schema):
        pass


def test_numbers_may_be_floating_as_csv_files_give_them(exact: dict[int, twin.Bargain]) -> None:
    table = events().slice(0, 2_000)
    floating = table.cast(
        pa.schema(
            [field.with_type(pa.float64()) if pa.types.is_integer(field.type) else field for field in table.schema]
        )
    )
    with testing.run(discovery(), floating.schema) as query:
        assert gains(given_out(query, floating)) == {key: one for key, one in exact.items() if key < 2_000}


def test_both_states_meet_the_precondition_of_approximate_recovery() -> None:
    trades = [
        pa.record_batch(
            {"key": [key], "time": [0.0], "ticker": ["AB"[key % 2]], "price": [1.0 + key % 7], "size": [key]}
        )
        for key in range(1, 60)
    ]
    check_operator(af.Aggregator(), trades).raise_if_broken()
    averages = [
        pa.record_batch({"key": [key], "time": [0.0], "ticker": ["AB"[key % 2]], "average": [1.0 + key % 7]})
        for key in range(1, 60)
    ]
    check_operator(af.BargainIndex(), averages).raise_if_broken()
