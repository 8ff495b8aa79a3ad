"""Generated posts and readings: the same for a seed, sorted, and with bursts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afspark.errors import UsageError
from afspark.sources import Posts, SmartPlugs, Source, source_from_json
from afspark.sources.bursts import PEAKS, Bursts, bursts
from afspark.sources.chunks import NumberedChunk
from afspark.sources.generated_plugs import BEGINNING, plugs_of
from afspark.sources.generated_posts import SUBJECTS
from tests.unit.sources.conftest import DictStore

seeds = st.integers(0, 2**63 - 1)


def rows(source: Source) -> pa.Table:
    planner = source.planner(DictStore())
    chunks = planner.chunks(planner.initial(), planner.discover())
    return pa.Table.from_batches([batch for chunk in chunks for batch in source.read(chunk)], source.schema())


@given(seed=seeds, first=st.integers(0, 10**9), per_day=st.integers(1, 10**7))
def test_times_go_on_and_repeat(seed: int, first: int, per_day: int) -> None:
    one, again = Bursts(seed).times(first, 500, per_day), bursts(seed).times(first + 200, 300, per_day)
    assert (np.diff(one) >= 0).all() and np.array_equal(one[200:], again)
    assert first // per_day <= one[0] and one[-1] < (first + 499) // per_day + 1


@given(seed=seeds)
@settings(max_examples=50)
def test_every_day_has_peaks_of_several_times_the_usual(seed: int) -> None:
    day = Bursts(seed)
    traffic = np.histogram(day.times(0, 200_000, 200_000), bins=500, range=(0, 1))[0]
    usual = np.median(traffic)
    for peak in day.peaks:
        around = traffic[max(0, int(500 * (peak.at - peak.width))) : int(500 * (peak.at + peak.width)) + 1]
        assert around.max() > 2.5 * usual
    # Peaks are short: most of the day is quiet.
    assert np.mean(traffic > 2 * usual) < 0.3 and len(day.peaks) == PEAKS
    rates = day.rates(np.array([day.peaks[0].at, (day.peaks[0].at + day.peaks[1].at) / 2]))
    assert rates[0] > 2 * rates[1]


@given(seed=seeds)
@settings(max_examples=20)
def test_posts_depend_on_the_seed_alone(seed: int) -> None:
    source = Posts(40_000, seed=seed, seconds=300)
    chunk = NumberedChunk(index=1, units=16_384, bytes=0)
    (one,), (again,), (other,) = (
        made.read(chunk) for made in (source, Posts(40_000, seed, 300), Posts(40_000, seed ^ 1))
    )
    assert one.equals(again) and not one.equals(other)
    assert one.schema == source.schema() and one.num_rows == chunk.units


def test_posts_are_sorted_and_about_what_is_busy() -> None:
    source = Posts(60_000, seed=2, seconds=300)
    table = rows(source)
    times = table.column("time").to_numpy()
    assert len(table) == 60_000 and (np.diff(times) >= 0).all() and times[0] >= 0 and times[-1] < 300
    texts = table.column("text").to_pylist()
    for number, peak in enumerate(bursts(2).peaks):
        busy = [texts[at] for at in np.flatnonzero(np.abs(times / 300 - peak.at) < peak.width / 2)]
        named = np.mean([SUBJECTS[number % len(SUBJECTS)] in text for text in busy])
        assert named > 0.6
    named = np.mean([any(subject in text for subject in SUBJECTS) for text in texts])
    assert 0.6 < named < 0.95 and 0.2 < np.mean(["#" in text for text in texts]) < 0.6
    assert all(7 <= len(text.split()) <= 14 for text in texts[:1000])


@given(seed=seeds)
@settings(max_examples=20)
def test_readings_depend_on_the_seed_alone(seed: int) -> None:
    source = SmartPlugs(70_001, seed=seed)
    chunk = NumberedChunk(index=2, units=4_465, bytes=0)
    (one,), (again,), (other,) = (
        made.read(chunk) for made in (source, SmartPlugs(70_001, seed), SmartPlugs(70_001, seed ^ 1))
    )
    assert one.equals(again) and not one.equals(other) and one.schema == source.schema()
    assert one.column("id")[0].as_py() == 2 << 15


def test_readings_come_in_pairs_and_say_what_they_should() -> None:
    table = rows(SmartPlugs(100_001, seed=4, houses=5, days=3))
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    assert (np.diff(columns["timestamp"]) >= 0).all() and np.array_equal(columns["id"], np.arange(100_001))
    days = (columns["timestamp"] - BEGINNING) / 86_400
    assert days[0] >= 0 and 2.99 < days[-1] < 3
    assert np.array_equal(columns["property"], 1 - np.arange(100_001) % 2)
    for name in ("timestamp", "plug_id", "household_id", "house_id"):
        assert np.array_equal(columns[name][:-1:2], columns[name][1::2])
    loads, work = columns["value"][::2], columns["value"][1::2]
    assert loads.min() == 0 and 500 < loads.max() < 2048 * 1.1 and 0.05 < np.mean(loads == 0) < 0.2
    assert work.min() >= 0 and work.max() > 1
    plugs, _ = plugs_of(4, 5)
    seen = set(zip(*(columns[name].tolist() for name in ("plug_id", "household_id", "house_id")), strict=True))
    assert seen == set(map(tuple, plugs.tolist()))


def test_the_same_plug_draws_alike_at_the_same_time_of_day() -> None:
    table = rows(SmartPlugs(400_000, seed=1, houses=1, days=4))
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    chosen = (
        (columns["property"] == 1) & (columns["plug_id"] == 0) & (columns["household_id"] == 0) & (columns["value"] > 0)
    )
    hours = (columns["timestamp"][chosen] - BEGINNING) // 3600
    loads = columns["value"][chosen]
    means = {hour: loads[hours == hour].mean() for hour in np.unique(hours)}
    ratios = [means[hour] / means[hour + 24] for hour in means if hour + 24 in means]
    assert len(ratios) > 40 and all(0.8 < ratio < 1.25 for ratio in ratios)


@pytest.mark.parametrize("source", [Posts(10, seconds=5.5, authors=3), SmartPlugs(10, houses=2, days=1)], ids=str)
def test_settings(source: Source) -> None:
    assert source_from_json(source.to_json()) == source
    assert len(rows(source)) == 10
    assert len(rows(type(source)(0))) == 0


@pytest.mark.parametrize(
    "wrong", [lambda: Posts(-1), lambda: Posts(1, seconds=0), lambda: Posts(1, authors=0), lambda: SmartPlugs(-1)]
)
def test_what_cannot_be_generated(wrong: object) -> None:
    with pytest.raises(UsageError):
        wrong()  # type: ignore[operator]
    for settings_ in ({"houses": 0}, {"days": 0}):
        with pytest.raises(UsageError):
            SmartPlugs(1, **settings_)
