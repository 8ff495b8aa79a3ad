"""Generated trades and quotes, and real ones of files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest

from afspark.errors import InputError, UsageError
from afspark.sources import MarketEvents, source_from_json
from afspark.sources.bursts import Bursts
from afspark.sources.chunks import NumberedChunk
from afspark.sources.generated_market import EVENTS, PEAK_RATE, RATE, stocks_of
from afspark.sources.market_files import load_events, write_events
from tests.unit.sources.conftest import DictStore


def rows(source: MarketEvents) -> pa.Table:
    planner = source.planner(DictStore())
    chunks = planner.chunks(planner.initial(), planner.discover())
    return pa.Table.from_batches([batch for chunk in chunks for batch in source.read(chunk)], EVENTS)


@pytest.fixture(scope="module")
def events() -> pa.Table:
    return rows(MarketEvents(200_000, seed=4, symbols=1000))


def test_a_chunk_depends_on_settings_and_number_only() -> None:
    chunk = NumberedChunk(index=1, units=32_768, bytes=0)
    source = MarketEvents(100_000, seed=5)
    (one,), (again,), (other,) = (
        made.read(chunk) for made in (source, source_from_json(source.to_json()), MarketEvents(100_000, seed=6))
    )
    assert one.equals(again) and not one.equals(other) and one.schema == EVENTS
    assert one.column("key").to_pylist()[:2] == [32_768, 32_769]


def test_events_come_at_the_rates_of_the_paper(events: pa.Table) -> None:
    times = events.column("time").to_numpy()
    assert (np.diff(times) >= 0).all() and times[-1] == pytest.approx(len(events) / RATE, rel=0.01)
    assert np.array_equal(events.column("key").to_numpy(), np.arange(len(events)))
    a_second = np.histogram(times, np.arange(0, times[-1]))[0]
    assert a_second.mean() == pytest.approx(RATE, rel=0.02) and a_second.max() == pytest.approx(PEAK_RATE, rel=0.05)


@pytest.mark.parametrize("seed", range(20))
def test_the_highest_peak_is_as_high_as_asked(seed: int) -> None:
    rates = Bursts(seed, 4.4).rates(np.linspace(0, 1, 9_000, endpoint=False))
    assert rates.max() == pytest.approx(4.4, rel=0.01) and rates.min() > 0


def test_four_fifths_are_quotes_and_the_columns_of_others_are_empty(events: pa.Table) -> None:
    trade = np.array(events.column("type").to_pylist()) == "trade"
    assert trade.mean() == pytest.approx(0.2, abs=0.005)
    for names, there in ((("price", "volume"), trade), (("ask_price", "ask_size"), ~trade)):
        for name in names:
            assert np.array_equal(events.column(name).is_valid().to_numpy(), there)
            assert (events.column(name).drop_null().to_numpy() > 0).all()


def test_symbols_follow_zipf(events: pa.Table) -> None:
    counts = {row["values"]: row["counts"] for row in events.column("ticker").value_counts().to_pylist()}
    tickers = stocks_of(4, 1000).tickers.to_pylist()
    harmonic = (1 / np.arange(1, 1001)).sum()
    for rank in (1, 2, 10, 50):
        assert counts[tickers[rank - 1]] / len(events) == pytest.approx(1 / rank / harmonic, rel=0.1)
    assert len(set(tickers)) == 1000 and counts.keys() <= set(tickers)


def test_prices_move_and_stay_near_each_other(events: pa.Table) -> None:
    stocks = stocks_of(4, 1000)
    busiest = events.filter(pa.compute.equal(events.column("ticker"), stocks.tickers[0]))
    paid, asked = (busiest.column(name).drop_null().to_numpy() for name in ("price", "ask_price"))
    moved = 20 * stocks.base[0] * stocks.volatility[0]
    assert moved / 4 < paid.std() < 4 * moved
    # In whole cents; and who asks wants more than was paid on average.
    assert np.array_equal(paid, np.rint(paid * 100) / 100) and asked.mean() > paid.mean()


@pytest.mark.parametrize("settings", [{"rows": -1}, {"rows": 10**10}, {"rows": 1, "symbols": 0}])
def test_what_cannot_be_generated_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        MarketEvents(**settings)


def test_events_are_the_same_from_parquet_and_from_csv(events: pa.Table, tmp_path: Path) -> None:
    some = events.slice(0, 3_000)
    assert write_events(some, tmp_path / "a.parquet") == 3_000
    pv.write_csv(some, tmp_path / "a.csv")
    for name in ("a.parquet", "a.csv"):
        loaded = load_events(str(tmp_path / name))
        assert loaded.schema == EVENTS
        assert loaded.combine_chunks().equals(some.combine_chunks())


def test_generated_events_are_written_whole(tmp_path: Path) -> None:
    source = MarketEvents(40_000, seed=2, symbols=10)
    assert write_events(source, tmp_path / "a.parquet") == 40_000
    assert pq.read_table(tmp_path / "a.parquet").combine_chunks().equals(rows(source).combine_chunks())
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    with pytest.raises(UsageError, match="cannot be written"):
        write_events(source, tmp_path / "nowhere" / "a.parquet")


REAL = """SYMBOL;DATE;kind;PRICE;SIZE;ask;asksize
IBM;2005-12-01 09:30:00;T;88.93;300;;
IBM;2005-12-01 09:30:01;q;;;88.95;500
BAC; 2005-12-01 09:30:01;Quote;;;46.11;100
"""
NAMES = {
    "ticker": "SYMBOL",
    "time": "DATE",
    "type": "kind",
    "price": "PRICE",
    "volume": "SIZE",
    "ask_price": "ask",
    "ask_size": "asksize",
}


def test_real_events_are_renamed_and_numbered_in_the_order_of_files(tmp_path: Path) -> None:
    (tmp_path / "2.csv").write_text(REAL.replace("12-01", "12-02").replace("; 2005", ";2005"))
    (tmp_path / "1.csv").write_text(REAL.replace("; 2005", ";2005"))
    loaded = load_events(str(tmp_path), columns=NAMES, delimiter=";")
    assert loaded.column("key").to_pylist() == list(range(6))
    assert loaded.column("type").to_pylist() == ["trade", "quote", "quote"] * 2
    seconds = loaded.column("time").to_pylist()
    assert [one - seconds[0] for one in seconds] == [0, 1, 1, 86_400, 86_401, 86_401]
    assert loaded.slice(1, 1).to_pylist()[0] | {"time": 0} == {
        "key": 1,
        "time": 0,
        "ticker": "IBM",
        "type": "quote",
        "price": None,
        "volume": None,
        "ask_price": 88.95,
        "ask_size": 500,
    }


HEAD = "key,time,ticker,type,price,volume,ask_price,ask_size\n"
SOUND = "1,1.5,A,trade,10,100,,\n"


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [
        (HEAD.replace("ticker", "symbol") + SOUND, UsageError, "no column 'ticker'"),
        (HEAD + "1,soon,A,trade,10,100,,\n", UsageError, "'time'"),
        (HEAD + "1,1.5,A,trade,ten,100,,\n", UsageError, "'price'"),
        (HEAD + "1,1.5,A,trade,10,1.5,,\n", UsageError, "'volume'"),
        (HEAD + SOUND + "2,1.5,A,split,10,100,,\n", InputError, "Event 2 .* 'type'"),
        (HEAD + SOUND + "2,1.5,A,trade,,100,,\n", InputError, "Event 2 .* 'price'"),
        (HEAD + SOUND + "2,1.5,A,trade,0,100,,\n", InputError, "Event 2 .* 'price'"),
        (HEAD + SOUND + "2,1.5,A,quote,10,100,,5\n", InputError, "Event 2 .* 'ask_price'"),
        (HEAD + SOUND + "2,1.5,A,quote,10,100,5,0\n", InputError, "Event 2 .* 'ask_size'"),
        (HEAD + SOUND + "1,1.5,A,trade,10,100,,\n", InputError, "Event 2 .* larger key"),
        (HEAD + SOUND + ",1.5,A,trade,10,100,,\n", UsageError, "Some events have a key"),
        (HEAD + SOUND + "2,1.5\n", InputError, "cannot be read"),
        (HEAD.removeprefix("key,") + "1.5,A,trade,10,100,,\n1.4,A,trade,10,100,,\n", InputError, "Event 2 .* before"),
    ],
)
def test_files_that_do_not_fit(text: str, kind: type[Exception], part: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(kind, match=part):
        load_events(str(tmp_path))


def test_names_that_no_event_has_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEAD + SOUND)
    with pytest.raises(UsageError, match="'symbol'"):
        load_events(str(tmp_path), columns={"symbol": "ticker"})
    with pytest.raises(UsageError, match="does not exist"):
        load_events(str(tmp_path / "nowhere"))
