"""Advice names a policy for each operator, with its figures, and the policies run together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import afspark as af
from afspark import testing
from afspark.api.assembly import assemble
from afspark.api.stream import Inflow
from afspark.coordinator.run_options import DEFAULT_BATCH_BYTES
from afspark.errors import UsageError
from afspark.lab.advice import AdviceRules, ProtectionNeed, advise, apply_advice, bearable_loss, outage_length
from afspark.lab.metrics import measure
from afspark.lab.study_result import AssessedEdge, AssessedNode, NodeKind, Placement, StudyResult, StudySettings
from afspark.policies import ActiveStandby, Approximate, BarrierSnapshot, MiniBatch, Nothing, UpstreamBackup
from afspark.sources.given_items import GivenItems
from tests.unit.lab.bargain_study import LENGTH, bargain_study, observed

RESTART, CHECKPOINT, REPLICATE = ProtectionNeed


def test_the_papers_operators_get_the_papers_advice() -> None:
    advice = advise(bargain_study())
    assert {one.operator: one.need for one in advice.operators} == {
        "Source": REPLICATE,
        "TradeQuote": REPLICATE,
        "TradeFilter": REPLICATE,
        "QuoteFilter": RESTART,
        "Aggregator": REPLICATE,
        "VWAP": REPLICATE,
        "BargainIndex": CHECKPOINT,
    }
    assert advice.unknown == ()
    assert advice.summary() == (
        "QuoteFilter: a restart is enough; BargainIndex: a checkpoint and a restart are enough;"
        " Source, TradeQuote, TradeFilter, Aggregator and VWAP: replicate."
    )


def test_each_line_has_the_figures_that_speak_for_it() -> None:
    study = bargain_study()
    text = advise(study).text()
    found = measure(study.observations["TradeFilter"], study.settings)
    (line,) = [line for line in text.splitlines() if line.startswith("TradeFilter and Aggregator: replicate (")]
    assert f"{found.local.recovery} sections" in line and f"I = {found.local.impact:.2f}" in line
    assert "it depends on the data which are hit" in line
    # The state of the aggregator changes by 2 for an item at most, and 220 items may be lost.
    assert "Θ at most 440" in line and "0.5 s at the peak rate" in line
    assert line.endswith("; policy: ActiveStandby().")
    # A source has no policy, and what behaves like it has.
    (line,) = [line for line in text.splitlines() if line.startswith("Source and TradeQuote: replicate (")]
    assert line.endswith("; policies: ActiveStandby() for TradeQuote.")
    (line,) = [line for line in text.splitlines() if line.startswith("QuoteFilter: a restart")][1:]
    assert "the longer the outage, the lower the score" in line


def test_operators_under_advice_may_stand_in_one_pipeline() -> None:
    tolerances = advise(bargain_study()).tolerances()
    assert set(tolerances) == {"TradeQuote", "TradeFilter", "QuoteFilter", "Aggregator", "VWAP", "BargainIndex"}
    assert {type(tolerances[name]) for name in ("TradeFilter", "Aggregator", "VWAP")} == {ActiveStandby}
    # Nothing() would stand in the way of a replay.
    assert isinstance(tolerances["QuoteFilter"], BarrierSnapshot)
    assert isinstance(tolerances["BargainIndex"], BarrierSnapshot)


def test_advice_is_json() -> None:
    document = json.loads(json.dumps(advise(bargain_study()).to_json(), allow_nan=False))
    assert document["operators"]["Aggregator"]["behaves_like"] == "TradeFilter"
    assert document["operators"]["Aggregator"]["policy"] == "ActiveStandby"
    assert document["operators"]["QuoteFilter"]["figures"]["rlq"] == 7
    assert document["operators"]["Source"]["tolerance"] is None


def study_of(target: str, **node: Any) -> StudyResult:
    """One source and one operator, whose faults do what they do at a target of Bargain Discovery."""
    return StudyResult(
        application="one",
        nodes=(
            AssessedNode(name="source", kind=NodeKind.SOURCE, **{k: node.pop(k) for k in ("pushed",) if k in node}),
            AssessedNode(name=target, **{"kind": NodeKind.STATEFUL, **node}),
        ),
        edges=(AssessedEdge("source", target),),
        placements=(Placement(target, target, "as a test says"),),
        observations={target: observed(target)},
        settings=StudySettings(score="count"),
        outage_sections={target: LENGTH},
    )


@pytest.mark.parametrize(
    ("target", "node", "expected"),
    [
        ("QuoteFilter", {"kind": NodeKind.STATELESS}, Nothing()),
        ("QuoteFilter", {}, BarrierSnapshot()),
        ("QuoteFilter", {"alpha": 0.5}, Approximate(theta=0.5 * 2 * 2200 * 0.8)),
        ("QuoteFilter", {"alpha": 0.5, "approximable": False}, BarrierSnapshot()),
        ("QuoteFilter", {"pushed": True}, MiniBatch()),
        ("TradeFilter", {}, ActiveStandby()),
        ("TradeFilter", {"pushed": True}, UpstreamBackup()),
    ],
)
def test_policies_by_what_an_operator_is(target: str, node: dict[str, Any], expected: af.Tolerance) -> None:
    assert advise(study_of(target, **dict(node))).tolerances() == {target: expected}


def test_what_is_no_operator_gets_no_policy_and_replays_nobody() -> None:
    study = study_of("QuoteFilter", kind=NodeKind.STATELESS)
    place = replace(observed("TradeFilter"), target="QuoteFilter.source")
    advice = advise(
        replace(
            study,
            nodes=(*study.nodes, AssessedNode(name=place.target, kind=NodeKind.PLACE)),
            placements=(*study.placements, Placement(place.target, place.target, "as a test says")),
            observations={**study.observations, place.target: place},
            outage_sections={**study.outage_sections, place.target: LENGTH},
        )
    )
    assert {one.operator: one.need for one in advice.operators}[place.target] is REPLICATE
    assert advice.tolerances() == {"QuoteFilter": Nothing()}


def test_an_error_that_lasts_to_the_end_is_told_and_is_a_reason_to_replicate() -> None:
    study = study_of("QuoteFilter")
    seen = study.observations["QuoteFilter"]
    local = np.broadcast_to(seen.golden_local, seen.local.shape).copy()
    for offset, begin in enumerate(seen.begins):
        # As in a running sum: little, but for ever.
        local[offset, :, :, begin:] *= 1.04
    (advised,) = advise(replace(study, observations={"QuoteFilter": replace(seen, local=local)})).operators
    assert advised.need is REPLICATE
    assert "the error lasts to the end of the stream" in advised.reason
    assert "lasts to the end" not in advise(study_of("TradeFilter")).text()


def test_without_any_effect_a_restart_is_enough() -> None:
    study = study_of("QuoteFilter", kind=NodeKind.STATELESS)
    seen = study.observations["QuoteFilter"]
    same = replace(seen, local=np.broadcast_to(seen.golden_local, seen.local.shape))
    advice = advise(replace(study, observations={"QuoteFilter": same}))
    assert advice.operators[0].need is RESTART
    assert "no section is more than 3% off" in advice.operators[0].reason
    assert advice.unknown == ("source",)
    assert advice.text().splitlines()[-1] == "source: no fault was injected, so that nothing is known."


def test_without_sections_nothing_is_taken_for_harmless() -> None:
    study = study_of("QuoteFilter", kind=NodeKind.STATELESS)
    seen = study.observations["QuoteFilter"]
    bare = replace(seen, local=seen.local[..., :0], golden_local=seen.golden_local[:, :0])
    (one,) = advise(replace(study, observations={"QuoteFilter": bare})).operators
    assert one.need is CHECKPOINT and "not known how long" in one.reason


def test_a_bearable_loss_is_the_largest_outage_of_which_no_smaller_one_is_worse() -> None:
    study = study_of("TradeFilter")
    seen = study.observations["TradeFilter"]
    impacts = {
        outage.items: measure(
            replace(seen, outages=(outage,), scores=seen.scores[:, [j]], local=seen.local[:, [j]]), study.settings
        ).local.impact
        for j, outage in enumerate(seen.outages)
    }
    for most in (0.5, 1.0, 10.0, 1e9):
        found = bearable_loss(seen, study.settings, most)
        fit = [items for items in sorted(impacts) if all((impacts[i] or 0) <= most for i in impacts if i <= items)]
        assert found.items == (fit[-1] if fit else 0)
    assert bearable_loss(seen, study.settings, 0.0).outage is None
    (one,) = advise(study, rules=AdviceRules(bearable=0.0)).operators
    assert one.alternative.startswith("even the shortest outage")


def test_a_study_that_does_not_say_how_long_the_outage_is_takes_the_soonest_recovery() -> None:
    study = replace(bargain_study(), outage_sections={})
    assert outage_length(study, "TradeFilter") == 7.0
    assert outage_length(bargain_study(), "TradeFilter") == pytest.approx(LENGTH)


LINES = pa.schema({"value": pa.large_string()})


class Passed(af.Operator):
    """Sends words on, all but "a"; it has no state."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        found = pc.list_flatten(pc.utf8_split_whitespace(items.column("value")))
        return pa.record_batch({"word": found.filter(pc.not_equal(found, "a"))})


class Counted(af.Operator):
    """Counts words."""

    key = ("word",)

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"counts": af.HashTable(key="string", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("word"), 1)


def two_operators(lines: af.Stream, tolerances: Mapping[str, af.Tolerance] | None = None) -> af.StatefulStream:
    given = tolerances or {}
    passed = lines.apply(Passed(), name="QuoteFilter", **_tolerance(given, "QuoteFilter"))
    return passed.apply(Counted(), name="TradeFilter", keyed=True, **_tolerance(given, "TradeFilter"))


def _tolerance(given: Mapping[str, af.Tolerance], name: str) -> dict[str, af.Tolerance]:
    return {"tolerance": given[name]} if name in given else {}


def study_of_two() -> StudyResult:
    return StudyResult(
        application="two",
        nodes=(
            AssessedNode(name="source", kind=NodeKind.SOURCE),
            AssessedNode(name="QuoteFilter", kind=NodeKind.STATELESS),
            AssessedNode(name="TradeFilter", kind=NodeKind.STATEFUL),
        ),
        edges=(AssessedEdge("source", "QuoteFilter"), AssessedEdge("QuoteFilter", "TradeFilter")),
        placements=tuple(Placement(name, name, "as a test says") for name in ("QuoteFilter", "TradeFilter")),
        observations={name: observed(name) for name in ("QuoteFilter", "TradeFilter")},
        settings=StudySettings(score="count"),
        outage_sections=dict.fromkeys(("QuoteFilter", "TradeFilter"), LENGTH),
    )


def test_an_advised_pipeline_runs_and_loses_nothing_with_a_host() -> None:
    tolerances = advise(study_of_two()).tolerances()
    assert {name: type(one) for name, one in tolerances.items()} == {
        "QuoteFilter": BarrierSnapshot,
        "TradeFilter": ActiveStandby,
    }
    with testing.run(lambda lines: two_operators(lines, tolerances), LINES, hosts=3) as query:
        query.batch({"value": ["a b c", "b a"]})
        query.lose_host()
        query.batch({"value": ["c c a"]})
        assert counts_of(query.results("TradeFilter")) == {"b": 2, "c": 3}


class Forwarded(af.Operator):
    """Sends words on that begin with a letter; it has no state."""

    def __init__(self, letter: str) -> None:
        self.letter = letter

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        return items.filter(pc.starts_with(items.column("word"), self.letter))


class Remembered(Counted):
    """Counts words, and sends them on."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:  # type: ignore[override]
        super().process(items, states)
        return items


def test_a_graph_like_bargain_discovery_runs_under_its_advice() -> None:
    given = advise(bargain_study()).tolerances()

    def pipeline(lines: af.Stream) -> af.StatefulStream:
        events = lines.apply(Passed(), name="TradeQuote", tolerance=given["TradeQuote"])
        trades = events.apply(Forwarded("t"), name="TradeFilter", tolerance=given["TradeFilter"])
        sums = trades.apply(Remembered(), name="Aggregator", keyed=True, tolerance=given["Aggregator"])
        averages = sums.apply(Forwarded(""), name="VWAP", tolerance=given["VWAP"])
        quotes = events.apply(Forwarded("q"), name="QuoteFilter", tolerance=given["QuoteFilter"])
        both = averages.union(quotes)
        return both.apply(Counted(), name="BargainIndex", keyed=True, tolerance=given["BargainIndex"])

    with testing.run(pipeline, LINES, hosts=3) as query:
        query.batch({"value": ["t1 q1 a", "t1 q2 x"]})
        query.lose_host()
        query.batch({"value": ["t2 q1 q1"]})
        query.lose_host()
        query.batch({"value": ["t1 q3"]})
        assert counts_of(query.results("Aggregator")) == {"t1": 3, "t2": 1}
        assert counts_of(query.results("BargainIndex")) == {"t1": 3, "t2": 1, "q1": 3, "q2": 1, "q3": 1}


def counts_of(table: pa.Table) -> dict[str, int]:
    *_, words, counts = table.to_pydict().values()
    return {word.decode() if isinstance(word, bytes) else word: n for word, n in zip(words, counts, strict=True)}


def test_advice_is_set_on_a_pipeline_that_is_there_already() -> None:
    stream = af.Stream(None, (Inflow(GivenItems(0, LINES)),))
    pipeline = assemble([(two_operators(stream), None)], batch_bytes=DEFAULT_BATCH_BYTES)
    advised = apply_advice(pipeline, advise(study_of_two()).tolerances())
    assert [type(node.tolerance) for node in advised.nodes] == [BarrierSnapshot, ActiveStandby]
    assert [type(node.tolerance) for node in pipeline.nodes] == [MiniBatch, MiniBatch]
    with pytest.raises(UsageError, match="barrier snapshots"):
        apply_advice(pipeline, {"QuoteFilter": Nothing(), "TradeFilter": ActiveStandby()})
