"""Where injectors are placed: the rules of section 4.2, and what the user adds or removes."""

from __future__ import annotations

from pathlib import Path

import pytest

import afspark as af
from afspark.errors import UsageError
from afspark.graph.graph import Graph
from afspark.graph.injector import Inlet
from afspark.lab.application import Application
from afspark.lab.targets import place_injectors, uneven_readers
from tests.unit.lab.small_pipelines import Pass, diamond, recorded, rows


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Application.built(diamond, [recorded(tmp_path, rows(10))]).graph


def test_bargain_discovery_has_the_targets_of_the_paper(tmp_path: Path) -> None:
    events = af.bargain_discovery
    table = rows(10)
    columns = dict.fromkeys(("price", "ask_price"), table["amount"])
    for name, value in (("key", "id"), ("time", "amount"), ("volume", "id"), ("ask_size", "id")):
        columns[name] = table[value]
    table = table.from_pydict({**columns, "ticker": ["A"] * 10, "type": ["trade"] * 10})
    graph = Application.built(events, [recorded(tmp_path, table)]).graph
    targets, placements = place_injectors(graph)
    assert [target.name for target in targets] == ["source", "TradeFilter", "QuoteFilter", "VWAP", "BargainIndex"]
    like = {placed.operator: placed.target for placed in placements}
    assert like["TradeQuote"] == "source"
    assert like["Aggregator"] == "TradeFilter"


def test_every_rule_gives_its_reason(graph: Graph) -> None:
    targets, placements = place_injectors(graph)
    reasons = {target.name: target.reason for target in targets}
    assert reasons == {
        "source": "it is a source",
        "sums": "first sends to 2 operators",
        "even": "first sends to 2 operators",
        "seen": "sums has a state",
        "latest": "it has 2 inputs",
    }
    assert {placed.operator: placed.target for placed in placements} == {name: name for name in reasons} | {
        "first": "source"
    }


def test_all_inputs_of_a_target_lose_together_and_all_readers_of_a_source_alike(graph: Graph) -> None:
    groups = {target.name: target.groups for target in place_injectors(graph)[0]}
    assert groups["latest"] == ((Inlet("latest", 0), Inlet("latest", 1)),)
    assert groups["source"] == ((Inlet("first", 0),),)
    (output,) = place_injectors(graph, only=["first>"])[0]
    assert output.groups == ((Inlet("sums", 0),), (Inlet("even", 0),))
    (last,) = place_injectors(graph, only=["latest>"])[0]
    assert last.groups == ((Inlet("latest", behind=True),),)


def test_the_user_adds_and_removes_targets(graph: Graph) -> None:
    targets, placements = place_injectors(graph, add=["first", "latest.even"], remove=["source", "seen"])
    assert [target.name for target in targets] == ["sums", "even", "latest", "first", "latest.even"]
    (one,) = (target for target in targets if target.name == "latest.even")
    assert one.inlets == (Inlet("latest", 1),)
    assert "first" in {placed.operator for placed in placements if placed.target == "first"}


def test_operators_that_fail_together_lose_what_comes_from_others(graph: Graph) -> None:
    names = ["sums+seen", "first+seen", "seen+latest.even", "latest+even", "source+latest", "latest+latest>"]
    groups = {target.name: target.groups for target in place_injectors(graph, only=names)[0]}
    assert groups == {
        "sums+seen": ((Inlet("sums"),),),
        "first+seen": ((Inlet("first"),),),
        "seen+latest.even": ((Inlet("seen"), Inlet("latest", 1)),),
        "latest+even": ((Inlet("latest"), Inlet("even")),),
        "source+latest": ((Inlet("first"),),),
        "latest+latest>": ((Inlet("latest", 0), Inlet("latest", 1)),),
    }


@pytest.mark.parametrize(
    "wrong", [{"only": ["nobody"]}, {"add": ["nobody"]}, {"remove": ["nobody"]}, {"only": ["sums+sums"]}, {"only": []}]
)
def test_a_target_that_does_not_exist_is_refused(graph: Graph, wrong: dict[str, list[str]]) -> None:
    with pytest.raises(UsageError):
        place_injectors(graph, **wrong)


def test_a_state_that_decides_nothing_makes_no_target(tmp_path: Path) -> None:
    class Counting(Pass):
        sends_by_state = False

        def states(self):
            return {"count": af.Numeric()}

    def pipeline(stream):
        return stream.apply(Counting(), name="counting").apply(Pass(), name="after")

    graph = Application.built(pipeline, [recorded(tmp_path, rows(10))]).graph
    assert [target.name for target in place_injectors(graph)[0]] == ["source"]


@pytest.mark.parametrize(("workers", "told"), [((1, 1), False), ((2, 2), False), ((1, 2), True)])
def test_readers_of_a_source_with_different_workers_are_told(
    tmp_path: Path, workers: tuple[int, int], told: bool
) -> None:
    def pipeline(stream):
        one, two = (stream.apply(Pass(), name=name, workers=count) for name, count in zip("ab", workers, strict=True))
        return one.union(two).apply(Pass(), name="c", workers=1)

    graph = Application.built(pipeline, [recorded(tmp_path, rows(10))]).graph
    found = {target.name: list(uneven_readers(graph, target)) for target in place_injectors(graph)[0]}
    assert [name for name, notes in found.items() if notes] == (["source"] if told else [])
    if told:
        assert "a, b have 1, 2 workers" in found["source"][0]
