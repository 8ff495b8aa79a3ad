"""A study from recorded input to observations, its shortcuts, and what bad use gets."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pytest

import afspark as af
from afspark.cli.assess_command import load_module
from afspark.errors import AfsparkError, UsageError
from afspark.lab.campaign_folder import sole_study
from afspark.lab.campaign_units import TRIALS, CampaignUnit, golden_of, unit_trial
from afspark.lab.findings import findings_of
from afspark.lab.metrics import data_dependency, measure, quality
from afspark.lab.real_queries import sampled_units
from afspark.lab.sections import AffectedRange, AffectedRows
from afspark.lab.spreading import ForkedProcesses
from afspark.lab.study import Study
from afspark.lab.trial_query import trial_query
from tests.unit.lab.small_pipelines import SMALL_STUDY, Pass, Sums, diamond, rows, two_operators

pytestmark = pytest.mark.some(3)

SMALL: dict[str, Any] = SMALL_STUDY | {"repetitions": 2, "failover": None}


#: One trial.
FEW: dict[str, Any] = SMALL | {"repetitions": 1, "offsets": [800], "outages": [40]}


def study(pipeline=two_operators, count: int = 2_400, **changed: Any) -> Study:
    return Study(pipeline, rows(count), **SMALL | changed)


def test_a_study_of_two_operators(tmp_path: Path) -> None:
    result = study(work=tmp_path).run()
    assert result.targets == ("source",)
    seen = result.observations["source"]
    assert seen.offsets == (800, 1_600)
    assert seen.scores.shape == (2, 2, 2) and seen.golden_scores.shape == (2, 2)
    assert seen.local.shape == (2, 2, 2, 24) and seen.golden_local.shape == (2, 24)
    assert seen.begins == (8, 16)
    # What is lost shows nowhere in the output, and nothing of it was right before the first fault.
    assert (quality(seen)[:, 1] < quality(seen)[:, 0]).all()
    assert np.array_equal(seen.local[0, :, 0, :8], np.broadcast_to(seen.golden_local[0, :8], (2, 8)))
    metrics = measure(seen)
    assert metrics.coq.value == pytest.approx(-1.0)
    assert metrics.local.recovery is not None and 1 <= metrics.local.recovery <= 4
    assert findings_of(result).advice.operators


class Odd(Pass):
    """Sends columns that Arrow cannot group by, and NaN."""

    def process(self, items, states):
        ids = items.column("id").to_pylist()
        return pa.record_batch(
            {
                "id": items.column("id"),
                "before": items.column("amount"),
                "list": pa.array([[one] for one in ids]),
                "words": pa.array([f"x{one // 50}" for one in ids]).dictionary_encode(),
                "none": pa.array(np.full(len(ids), np.nan)),
            }
        )


def test_columns_of_any_type_can_be_in_the_output(tmp_path: Path) -> None:
    def odd(stream):
        return stream.apply(Odd(), name="odd", workers=1)

    result = study(odd, work=tmp_path, **FEW).run()
    assert quality(result.observations["source"]).tolist() == [[0.0]]


class Clock(Pass):
    """Gives rows the time at which they came, in one form or another."""

    def __init__(self, start: float) -> None:
        self.start = start

    def process(self, items, states):
        seconds = self.start + items.column("id").to_numpy() / 1_000
        return pa.record_batch({"id": pa.array(seconds), "before": items.column("amount")})


@pytest.mark.parametrize("start", [0.0, 1_750_000_000.0, -500.0])
def test_sections_begin_with_the_output(tmp_path: Path, start: float) -> None:
    def clocked(stream):
        return stream.apply(Clock(start), name="clock", workers=1)

    for number, sections in enumerate((None, "time:id:0.1", "keys:id:0.1")):
        work = tmp_path / str(number)
        seen = study(clocked, work=work, **FEW | {"sections": sections, "outages": [400]}).run()
        found = seen.observations["source"].golden_local.shape[1]
        # Floats near 2^31 are a little off.
        assert abs(found - (24 if sections else 200)) <= 1
        assert seen.outage_sections["source"] == pytest.approx(4 if sections else 33, abs=2)


@pytest.mark.parametrize("jitter", [0, 8])
def test_items_that_change_places_do_not_make_a_recovery_longer(tmp_path: Path, jitter: int) -> None:
    """A fault at the border of a section begins with the next one, whatever jitter carries over the border."""
    made = study(work=tmp_path, jitter=jitter, sections="keys:id:400", outages=[500], repetitions=1)
    result = made.run()
    plan, _ = made._planned(tmp_path)
    golden = golden_of(plan, 0)
    after = golden.output["id"].slice(golden.rows_before(plan.interleaving(0).batch_of(800)))
    assert (pc.min(after).as_py() < 800) == bool(jitter)
    seen = result.observations["source"]
    assert seen.begins == (2, 4)
    assert measure(seen).local.recovery == 2
    assert result.outage_sections["source"] == 1


@pytest.mark.thorough
def test_a_trial_from_the_golden_state_gives_what_a_whole_run_gives(tmp_path: Path) -> None:
    made = study(
        diamond, targets=["source", "sums", "seen", "latest", "latest.even", "even+seen", "latest>"], work=tmp_path
    )
    plan, _ = made._planned(tmp_path)
    application, golden = plan.application(0), golden_of(plan, 0)
    ended_early = 0
    for target in range(len(plan.targets)):
        unit = CampaignUnit(0, target, 0)
        short, whole = (unit_trial(plan, unit, application, golden, 90, whole=one) for one in (False, True))
        assert short.first == 4 and whole.first == 0
        assert short.whole().equals(whole.whole())
        ended_early += short.last < golden.batches
    # What a state that adds up has lost it never gets back; what reads from it alone recovers.
    assert 0 < ended_early < len(plan.targets)


def test_a_study_that_was_cut_short_goes_on_and_finds_the_same(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    expected = study(work=whole).run()
    study(work=cut).run()
    results = sorted((cut / TRIALS).iterdir())
    for path in results[::2]:
        path.unlink()
    (cut / "repetition-1" / "golden.json").unlink()
    again = study(work=cut).run()
    assert any("went on" in note for note in again.notes)
    for one in ("scores", "golden_scores", "local", "golden_local"):
        assert np.array_equal(getattr(again.observations["source"], one), getattr(expected.observations["source"], one))


@pytest.mark.thorough
def test_processes_find_what_one_process_finds(tmp_path: Path) -> None:
    one, two = (study(work=tmp_path / str(count), processes=count).run() for count in (1, 2))
    assert np.array_equal(one.observations["source"].local, two.observations["source"].local)
    assert np.array_equal(one.observations["source"].scores, two.observations["source"].scores)


def test_trials_that_were_killed_leave_nothing(tmp_path: Path) -> None:
    def killed(_: int) -> None:
        application = study()._trial_build(tmp_path, [rows(10)])
        with trial_query(application.instrumented({}), application.output, application.mode):
            mine = f"afspark-lab-{os.getpid()}-*"
            assert list(Path("/dev/shm").glob(mine))
            (tmp_path / "mine").write_text(mine)
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(AfsparkError):
        ForkedProcesses(1).run(killed, [1], lambda: None)
    # Tests beside this one have trials of their own.
    assert not list(Path("/dev/shm").glob((tmp_path / "mine").read_text()))


def test_results_of_another_study_are_refused(tmp_path: Path) -> None:
    study(work=tmp_path, repetitions=1, offsets=[800], outages=[40]).run()
    with pytest.raises(UsageError, match="another study"):
        study(work=tmp_path, repetitions=1, offsets=[900], outages=[40]).run()


def test_another_input_is_another_study(tmp_path: Path) -> None:
    def assess(value: float) -> None:
        items = rows(2_400).to_pydict()
        items["amount"][1_200] = value
        pacsv.write_csv(pa.table(items), tmp_path / "items.csv")
        Study(two_operators, tmp_path / "items.csv", work=tmp_path / "work", **FEW).run()

    assess(1.0)
    assess(1.0)
    with pytest.raises(UsageError, match="another study"):
        assess(2.0)


def test_a_pipeline_whose_file_was_changed_is_another_study(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    code = "import tests.unit.lab.small_pipelines as small\n\ndef pipeline(items): return small.two_operators(items)\n"
    file.write_text(code)
    study(load_module(file).pipeline, work=tmp_path / "work", **FEW).run()
    file.write_text(f"{code}# Another one.\n")
    with pytest.raises(UsageError, match="another study"):
        study(load_module(file).pipeline, work=tmp_path / "work", **FEW).run()


def scored(factor: float) -> Any:
    def own(table: pa.Table) -> float:
        return factor * table.num_rows

    return own


class Scale(Pass):
    """Sends every amount so many times as large."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def process(self, items, states):
        return pa.record_batch({"id": items.column("id"), "before": pc.multiply(items.column("amount"), self.factor)})


def scaling(factor: float, stream: Any) -> Any:
    return stream.apply(Scale(factor), name="scale", workers=1)


def scaled(factor: float) -> Any:
    return lambda stream: scaling(factor, stream)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"score": scored(1.0)}, {"score": scored(2.0)}),
        ({"affected": AffectedRange("id")}, {"affected": AffectedRange("id", 2.0)}),
        (
            {"affected": AffectedRows(lambda table, span: np.full(table.num_rows, True))},
            {"affected": AffectedRows(lambda table, span: pc.greater(table["id"], 100).to_numpy())},
        ),
        ({"time": "id"}, {"time": "amount"}),
        ({"pipeline": scaled(1.0)}, {"pipeline": scaled(2.0)}),
        ({"pipeline": partial(scaling, 1.0)}, {"pipeline": partial(scaling, 2.0)}),
    ],
)
def test_whatever_results_depend_on_makes_another_study(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    for _ in range(2):
        study(work=tmp_path, **FEW | before).run()
    with pytest.raises(UsageError, match="another study"):
        study(work=tmp_path, **FEW | after).run()


def test_a_study_that_failed_before_its_first_trial_does_not_keep_the_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs column"):
        study(work=tmp_path, **FEW | {"score": "sum:nothing"}).run()
    assert study(work=tmp_path, **FEW).run().notes == ()


def test_what_another_study_found_affected_is_not_taken_over(tmp_path: Path) -> None:
    def scores(work: Path) -> Any:
        return study(work=work, **FEW).run().observations["source"].golden_scores

    study(work=tmp_path / "cut", **FEW | {"outages": [10]}).run()
    # Cut short after the section was found, and before the first trial was scored.
    shutil.rmtree(tmp_path / "cut" / TRIALS)
    assert np.array_equal(scores(tmp_path / "cut"), scores(tmp_path / "whole"))


def test_a_folder_has_one_study_at_a_time(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with sole_study(tmp_path):
        child = os.fork()
        if not child:
            try:
                study(work=tmp_path, **FEW).run()
            except UsageError as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as said:
        assert "A study is running" in said.read()


def test_more_golden_runs_than_repetitions(tmp_path: Path) -> None:
    result = study(work=tmp_path, repetitions=1, golden_runs=3, offsets=[800], outages=[40]).run()
    assert result.observations["source"].golden_scores.shape == (1, 3)


def test_large_keys_have_no_sections_before_the_first(tmp_path: Path) -> None:
    table = rows(2_400)
    far = table.set_column(0, "id", pc.add(table["id"], 10**12))
    result = Study(two_operators, far, **FEW | {"work": tmp_path, "sections": "keys:id:100"}).run()
    assert result.observations["source"].golden_local.shape == (1, 24)


def test_seconds_become_items_at_the_rate_of_each_target(tmp_path: Path) -> None:
    table = rows(2_400).append_column("at", pa.array(np.arange(2_400) / 100))
    result = Study(
        two_operators, table, **SMALL | {"outages": (), "seconds": [1.0], "time": "at", "targets": ["source", "latest"]}
    ).run()
    items = {target: [outage.items for outage in seen.outages] for target, seen in result.observations.items()}
    assert items == {"source": [100, 100], "latest": [50, 50]}


@pytest.mark.parametrize(
    ("together", "alike", "items"),
    [
        ("sums+seen", "sums", 100),
        ("first+seen", "first", 100),
        ("seen+latest.even", "latest", 150),
        ("sums+even", "first", 200),
    ],
)
def test_operators_that_fail_together_lose_what_comes_in_the_same_seconds(
    together: str, alike: str, items: int
) -> None:
    """In a chain that is what the first of them loses, in parallel branches what each of them gets."""
    given = {"outages": (), "seconds": [1.0], "rate": (100, 100), "repetitions": 1, "targets": [together, alike]}
    result = study(lambda stream: diamond(stream, 1), **given).run()
    one, other = result.observations.values()
    assert one.outages[0].items == items
    assert np.array_equal(one.local, other.local)
    assert not np.array_equal(one.local[:, 0, 0], np.broadcast_to(one.golden_local[0], one.local[:, 0, 0].shape))


def test_an_outage_that_changes_nothing_leaves_the_other_offsets_their_metrics(tmp_path: Path) -> None:
    class Early(Pass):
        def process(self, items, states):
            return items.filter(pc.less(items.column("id"), 1_200))

    def early(stream):
        return stream.apply(Early(), name="early", workers=1)

    seen = study(early, work=tmp_path, score="count").run().observations["source"]
    assert quality(seen)[1].tolist() == [1.0, 1.0]
    assert data_dependency(seen).sigma == pytest.approx((1.0 - quality(seen)[0, 1]) / 2**0.5)


def test_a_study_needs_neither_outages_nor_a_key() -> None:
    given = {name: SMALL[name] for name in ("score", "offsets", "batch_items", "processes", "failover")}
    result = Study(two_operators, rows(2_400), repetitions=1, targets=["source", "latest"], **given).run()
    items = {target: [outage.items for outage in seen.outages] for target, seen in result.observations.items()}
    assert items == {"source": [2, 12, 48], "latest": [1, 6, 24]}
    assert result.settings.sections == "rows:6" and result.observations["source"].golden_local.shape[1] == 200
    assert measure(result.observations["source"]).local.recovery is not None
    (note,) = result.notes
    assert "Sections are of rows" in note


def test_the_output_of_the_last_operator_can_be_lost(tmp_path: Path) -> None:
    made = study(work=tmp_path, **FEW | {"score": "count", "targets": ["latest>", "even+latest>"]})
    result = made.run()
    output, both = result.observations.values()
    assert quality(output)[0, 0] == 0.0, "all rows that it changes are gone"
    assert (output.golden_local - output.local[0, 0]).sum() == 40
    assert (both.golden_local - both.local[0, 0]).sum() == 20, "of 40 items every other is even"
    plan, _ = made._planned(tmp_path)
    trial = unit_trial(plan, CampaignUnit(0, 0, 0), plan.application(0), golden_of(plan, 0), 40)
    assert trial.last == trial.first + 1, "no state has noticed"
    assert {unit.target for unit, _ in sampled_units(plan, [1, 1], 3)} == {1}


def test_results_after_every_item_can_be_scored(tmp_path: Path) -> None:
    def counting(stream):
        return stream.apply(Sums(), name="sums", workers=2).writeStream.outputMode("complete")

    result = Study(counting, rows(1_000), score="sum:value", offsets=[500], outages=[100], processes=1).run()
    assert quality(result.observations["source"])[0, 0] < 1


def test_two_inputs_and_windows(tmp_path: Path) -> None:
    def joined(left, right):
        both = left.union(right).apply(Pass(), name="both", workers=1)
        hitters = af.HeavyHitters(keys=("group",), weight="amount", threshold=1, value="float64")
        return both.apply(hitters, name="hitters", workers=1, window=af.Hopping(200, column="id", delay=400))

    result = Study(
        joined,
        [rows(1_000), rows(1_000)],
        score="sum:estimate",
        sections="rows:7",
        offsets=[1_000],
        outages=[300],
        repetitions=2,
        batch_items=200,
        processes=1,
    ).run()
    assert set(result.observations) >= {"source", "source2", "both"}
    assert quality(result.observations["both"])[0, 0] < 1


# --- bad use ------------------------------------------------------------------------------------------------


def broken_score(table: pa.Table) -> float:
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"score": broken_score}, "raised ValueError: no such thing"),
        ({"score": lambda table: float("nan")}, "is nan"),
        ({"other_scores": ["count", "sum:before"]}, "Two scores have the name 'sum:before'"),
        ({"score": lambda table: 1.0, "other_scores": [lambda table: 2.0]}, "Two scores have the name"),
        ({"score": "sum:nothing"}, "needs column 'nothing'"),
        ({"key": "nothing"}, "needs column 'nothing'"),
        ({"offsets": [5_000]}, "is not within the input"),
        ({"targets": ["nobody"]}, "There is no target 'nobody'"),
        ({"outages": [1.5]}, "whole number"),
        ({"outages": ["40"]}, "whole number"),
        ({"outages": (), "seconds": [1.0]}, "known rate"),
        ({"fault": "flood"}, "There is no fault 'flood'"),
        ({"offsets": [math.nan]}, "offsets must be a finite number"),
        ({"outages": (), "seconds": [-1.0], "rate": (10, 20)}, "seconds must be a number above 0"),
        ({"outages": (), "seconds": [1.0], "time": "nothing"}, "no event times in column 'nothing'"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"jitter": -1}, "jitter must be"),
        ({"batch_items": -5}, "batch_items must be"),
        ({"golden_runs": -1}, "golden_runs must be"),
        ({"processes": -1}, "processes must be"),
        ({"failover": math.nan}, "failover must be"),
        ({"sample": -1}, "sample must be"),
        ({"threshold": math.nan}, "threshold must be"),
        ({"percentile": 200}, "percentile must be at most 100"),
        ({"alpha": 2}, "alpha must be at most 1"),
        ({"sections": "keys:id:0.001"}, "divide the output into"),
    ],
)
def test_bad_use_is_told_in_one_line(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        study(count=1_900, **changed).run()
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_key_that_does_not_grow_is_told(tmp_path: Path) -> None:
    class Backwards(Pass):
        def process(self, items, states):
            return items.set_column(0, "id", pc.subtract(10_000, items.column("id")))

    def backwards(stream):
        return stream.apply(Backwards(), name="backwards", workers=1)

    told = study(backwards, work=tmp_path, **FEW | {"score": "count", "sections": None}).run()
    assert any("does not grow" in note for note in told.notes)


def test_an_outage_that_the_end_of_the_input_cuts_off_is_told(tmp_path: Path) -> None:
    result = study(work=tmp_path, **FEW | {"offsets": [800, 2_300], "outages": [40, 100, 160, 400]}).run()
    assert result.notes == (
        "source: only 100 items come after offset 2,300, so that the end of the input cuts off outages of 160 and 400"
        " items there.",
    )


def test_a_pipeline_without_output_is_told(tmp_path: Path) -> None:
    class Silent(Pass):
        def process(self, items, states):
            return None

    with pytest.raises(UsageError, match="gave nothing out"):
        study(lambda stream: stream.apply(Silent(), name="silent"), work=tmp_path).run()


def test_a_pipeline_that_reads_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not take 1 stream"):
        study(lambda one, two: one.apply(Pass())).run()
    with pytest.raises(UsageError, match="is no operator"):
        study(lambda stream: stream).run()


def test_observations_are_plain_json_on_disk(tmp_path: Path) -> None:
    study(work=tmp_path, repetitions=1, offsets=[800], outages=[40]).run()
    (trial,) = (path for path in (tmp_path / TRIALS).iterdir() if "golden" not in path.name)
    assert set(json.loads(trial.read_text())) == {"scores", "local", "batches", "seconds"}
