"""The report of a study: its JSON, its plots, and a page that needs nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from afspark.errors import UsageError
from afspark.lab.findings import findings_of
from afspark.lab.metrics import measure
from afspark.lab.paper_table import PAPER
from afspark.lab.study_result import (
    AssessedEdge,
    AssessedNode,
    NodeKind,
    Placement,
    RealFaultTrial,
    SampledTrial,
    StudyResult,
)
from afspark.report.lab_graph import layout
from afspark.report.lab_page import page_text
from afspark.report.lab_plots import compared_outages
from afspark.report.lab_report import write_report
from tests.unit.lab.bargain_study import SHAPES, bargain_study, observed

PLOTS = {"graph", "quality-by-outage", "quality-by-offset", "local-quality", "local-quality-by-outage", "under-advice"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("study") / "a" / "report"
    write_report(bargain_study(), place)
    return place


@pytest.fixture(scope="module")
def document(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text())


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text()


def parsed(page: str) -> ElementTree.Element:
    assert page.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))


def table_after(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table after a heading."""
    body = parsed(page).find("body")
    assert body is not None
    children = list(body)
    (start,) = [at for at, child in enumerate(children) if child.tag == "h2" and child.text == heading]
    table = next(child for child in children[start:] if child.tag == "table")
    return [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]


def test_the_document_has_the_metrics_of_every_target(document: Any) -> None:
    study = bargain_study()
    assert set(document["targets"]) == set(SHAPES)
    for target, one in document["targets"].items():
        found = measure(study.observations[target], study.settings)
        assert one["coq"] == pytest.approx(found.coq.value)
        assert one["doq"] == [pytest.approx(found.doq.sigma), found.doq.verdict and found.doq.verdict.value]
        assert (one["rlq"], one["ilq"]) == (found.local.recovery, pytest.approx(found.local.impact))
        assert len(one["by_outage"]) == 12
    assert document["targets"]["QuoteFilter"]["doq"][1] is None
    assert document["targets"]["QuoteFilter"]["undefined"]


def test_the_document_has_trials_agreement_advice_orders_and_reruns(document: Any) -> None:
    assert document["trials"] == 1500
    assert (document["agreement"]["sampled"], document["agreement"]["agreeing"]) == (2, 2)
    assert document["advice"]["operators"]["Aggregator"]["need"] == "replicate"
    assert document["orders"]["sum:gain"]["ilq"][0] == "TradeFilter"
    assert document["orders"]["count"]["ilq"][-1] == "QuoteFilter"
    figures = document["orders"]["sum:gain"]["figures"]
    assert {target: (one["rlq"], one["ilq"]) for target, one in figures.items()} == {
        target: (one["rlq"], one["ilq"]) for target, one in document["targets"].items()
    }
    rerun = document["reruns"]["TradeFilter"]
    assert rerun["before"]["rlq"] > rerun["after"]["rlq"] and rerun["note"] == "active standby, 2 s"
    assert document["paper"]["TradeFilter"]["ilq"] == 48.7


def test_plots_are_beside_the_page(folder: Path) -> None:
    assert {path.stem for path in folder.glob("*.png")} == PLOTS
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))


def test_the_page_needs_nothing_but_itself(page: str) -> None:
    tree = parsed(page)
    images = [image.attrib["src"] for image in tree.iter("img")]
    assert len(images) == len(PLOTS)
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in images)
    without_images = re.sub(r'src="data:[^"]*"', "", page)
    assert not re.search(r"<script|<link|<iframe|https?:|src=|href=|url\(|@import", without_images)


def test_the_table_of_metrics_has_the_papers_beside(page: str, document: Any) -> None:
    head, *rows = table_after(page, "Metrics")
    assert head == ["target", "C", "D", "R", "I", "longest outage", "paper: C", "D", "R", "I"]
    shown = {row[0]: row[1:] for row in rows}
    assert list(shown) == list(PAPER)
    assert shown["TradeFilter"][5:] == ["0.97", "(0.76, R)", "340", "48.70"]
    assert shown["TradeFilter"][3] == f"{document['targets']['TradeFilter']['ilq']:.2f}"
    assert shown["QuoteFilter"][1] == "(0.00, undefined)"
    assert "QuoteFilter, D: no variance within the offsets" in page
    assert shown["Source"][4] == "16 s at the peak rate, 35,200 items"


def test_the_page_tells_advice_improvements_orders_and_agreement(page: str) -> None:
    advice = {row[0]: row for row in table_after(page, "Advice")[1:]}
    assert advice["TradeFilter"][1:3] == ["replicate", "ActiveStandby"]
    assert advice["Source"][2] == "–"
    assert "1,500 trials and 5 golden runs in " in page
    again = {row[0]: row for row in table_after(page, "Measured again under this advice")[1:]}
    assert again["Source"][-2:] == ["340 → 39", "21.23 → 1.05"]
    other = table_after(page, "Order by other scores")[2]
    assert other[0] == "count" and other[1].startswith("TradeFilter ") and other[1].endswith("QuoteFilter 7.00")
    assert "2 trials were run again as real streaming queries; all agree." in page
    assert "resumed after 700 trials" in page
    assert [row[0] for row in table_after(page, "Targets")[1:]] == [node.name for node in bargain_study().nodes]


def test_advice_without_alternatives_has_no_column_for_them() -> None:
    study = bargain_study()
    alone = {"QuoteFilter": study.observations["QuoteFilter"]}
    restart = replace(study, observations=alone, other_scores={}, reruns={}, samples=())
    head, *rows = table_after(page_text(findings_of(restart), {}), "Advice")
    assert head == ["operator", "need", "policy", "because"]
    assert {len(row) for row in rows} == {4}


def test_a_disagreement_is_told() -> None:
    study = bargain_study()
    wrong = replace(study.samples[0], agrees=False, detail="3 rows differ")
    text = page_text(findings_of(replace(study, samples=(wrong, study.samples[1]))), {})
    assert "2 trials were run again as real streaming queries; 1 of 2 agree." in text
    assert table_after(text, "Agreement with real queries")[1][-2:] == ["NO", "3 rows differ"]


def other_study() -> StudyResult:
    """A pipeline of a user's own, with names that HTML has to be told of, and without sections."""
    seen = observed("VWAP")
    bare = replace(seen, target="a<b&c", local=seen.local[..., :0], golden_local=seen.golden_local[:, :0])
    study = bargain_study()
    return replace(
        study,
        application="mine <b>",
        nodes=(AssessedNode(name="in", kind=NodeKind.SOURCE), AssessedNode(name="a<b&c", kind=NodeKind.STATEFUL)),
        edges=(AssessedEdge("in", "a<b&c"),),
        placements=(Placement("a<b&c", "a<b&c", 'it has "several" inputs'),),
        observations={"a<b&c": bare},
        outage_sections={},
        other_scores={},
        reruns={},
        samples=(),
    )


def test_a_pipeline_of_a_users_own_is_reported_without_the_paper_and_without_sections(tmp_path: Path) -> None:
    write_report(other_study(), tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert {path.stem for path in tmp_path.glob("*.png")} == {"graph", "quality-by-outage", "quality-by-offset"}
    head, row = table_after(text, "Metrics")
    assert head[-1] == "longest outage" and row[0] == "a<b&c" and row[3:5] == ["–", "–"]
    assert "No trial was run again" in text
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["targets"]["a<b&c"]["rlq"] is None and found["paper"] == {}


def test_what_is_no_number_is_null() -> None:
    study = bargain_study()
    seen = study.observations["VWAP"]
    golden = seen.golden_scores.copy()
    golden[0] = 0.0
    found = findings_of(
        replace(study, observations={**study.observations, "VWAP": replace(seen, golden_scores=golden)})
    )
    document = found.to_json()
    json.dumps(document, allow_nan=False)
    assert document["targets"]["VWAP"]["quality"]["scores"][0] == [None] * 12
    assert document["targets"]["VWAP"]["doq"] == [None, None]


def test_a_folder_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("a file")
    with pytest.raises(UsageError, match="The report cannot be written to") as caught:
        write_report(other_study(), tmp_path / "report")
    assert "\n" not in str(caught.value)


def test_no_two_operators_stand_at_the_same_place() -> None:
    places = layout(bargain_study())
    assert len(set(places.values())) == len(places)
    assert all(places[edge.origin][0] < places[edge.reader][0] for edge in bargain_study().edges)


def test_longer_outages_are_compared_at_one_rate() -> None:
    seen = bargain_study().observations["TradeFilter"]
    assert [seen.outages[at].seconds for at in compared_outages(seen)] == [2.0, 8.0, 16.0]
    assert {seen.outages[at].rate for at in compared_outages(seen)} == {"peak"}
    few = replace(seen, outages=seen.outages[:2])
    assert compared_outages(few) == [0, 1]


def test_a_result_that_names_a_strange_operator_is_refused() -> None:
    study = bargain_study()
    with pytest.raises(UsageError, match="There is no operator 'Filter' in the pipeline"):
        replace(study, placements=(*study.placements, Placement("Filter", None, "")))
    assert study.stands_for("TradeFilter") == ("TradeFilter", "Aggregator")


@pytest.mark.thorough
def test_operators_that_fail_together_are_a_target_of_their_own(tmp_path: Path) -> None:
    study = bargain_study()
    together = "TradeFilter + VWAP"
    seen = replace(study.observations["VWAP"], target=together)
    both = replace(
        study,
        nodes=(*study.nodes, AssessedNode(name=together, kind=NodeKind.PLACE)),
        observations={**study.observations, together: seen},
    )
    found = write_report(both, tmp_path)
    assert found.advice.unknown == ()
    assert together in found.to_json()["targets"]
    head, *rows = table_after((tmp_path / "report.html").read_text(), "Metrics")
    # The paper has no row for it.
    assert {len(row) for row in rows} == {len(head)} and rows[-1][-4:] == ["–"] * 4


def test_a_sample_is_json() -> None:
    sample = bargain_study().samples[0]
    assert isinstance(sample, SampledTrial)
    assert json.loads(json.dumps(sample.to_json()))["outage"] == {"items": 7040, "seconds": 16.0, "rate": "peak"}


def test_a_result_without_any_target_is_reported_as_such(tmp_path: Path) -> None:
    empty = replace(bargain_study(), observations={}, other_scores={}, reruns={}, samples=())
    found = write_report(empty, tmp_path)
    assert found.advice.operators == ()
    assert found.advice.text().splitlines()[0] == "Nothing is known of any operator."
    assert "no fault was injected" in found.advice.text()
    assert not list(tmp_path.glob("*.png"))


def test_real_faults_have_a_table_of_their_own_and_are_no_warnings() -> None:
    same = RealFaultTrial("VWAP", "host frozen", 40, "MiniBatch()", 1.0, True, 0, {}, 0.2, True)
    lost = RealFaultTrial("VWAP", "workers lost", 40, "Nothing()", 0.5, False, 7, {"VWAP": {"sums": 3.0}}, 0.3)
    more = replace(lost, within_bound=False)
    findings = findings_of(replace(bargain_study(), real_faults=(same, lost, more)))
    rows = table_after(page_text(findings, {}), "Real faults under the pipeline's own tolerances")
    assert rows[1] == ["VWAP", "host frozen", "40", "MiniBatch()", "the output is the same", "yes", "0.20"]
    assert rows[2][4] == "quality 0.5000, 7 keys have other rows; told: sums of VWAP by at most 3 off"
    assert [row[5] for row in rows[1:]] == ["yes", "–", "NO"]
    assert "which is MORE than what is told" in more.sentence()
    assert [one["unchanged"] for one in findings.to_json()["real_faults"]] == [True, False, False]
    assert [one["within_bound"] for one in findings.to_json()["real_faults"]] == [True, None, False]
