"""What becomes of each field of a pipeline that has changed, and what is said of it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from afspark.store.pipeline_changes import (
    ChangeFinding,
    ChangeVerdict,
    changed_only,
    compared,
    refusals,
    summed_up,
)
from afspark.store.pipeline_description import PipelineDescription

KEPT, CHANGED, ANEW, DROPPED, REFUSED = ChangeVerdict

TABLE = {"kind": "hash_table", "key": "string", "value": "int64", "divergence": "max"}
COUNTS: dict[str, Any] = {
    "operator": {"operator": "Counts", "states": {"counts": TABLE}, "column": "word"},
    "workers": 2,
    "keyed": False,
    "window": {"kind": "hopping", "length": 60, "column": "time", "by": "event", "delay": 5},
    "feeds_back": [],
    "inputs": [""],
    "name": "counts",
    "tolerance": {"name": "approximate", "theta": 10, "items": 0},
}
SETTINGS: dict[str, Any] = {
    "recorded": True,
    "sources": {"": {"kind": "text", "path": "in/", "blocks": False}},
    "operators": {"counts": COUNTS},
}


def changed(**fields: Any) -> dict[str, Any]:
    """The settings with other fields of their operator."""
    settings = deepcopy(SETTINGS)
    settings["operators"]["counts"] |= deepcopy(fields)
    return settings


def findings(here: dict[str, Any], *discard: str, there: dict[str, Any] | None = None) -> list[ChangeFinding]:
    described = PipelineDescription.from_json
    return compared(described(SETTINGS if there is None else there), described(here), discard)


def verdicts(here: dict[str, Any], *discard: str, there: dict[str, Any] | None = None) -> dict[str, ChangeVerdict]:
    return {one.field: one.verdict for one in findings(here, *discard, there=there)}


def with_states(**states: Any) -> dict[str, Any]:
    return changed(operator={**COUNTS["operator"], "states": states})


def test_what_has_not_changed_is_kept_and_there_is_nothing_to_tell() -> None:
    found = findings(deepcopy(SETTINGS))
    assert [(one.verdict, one.field, one.operator) for one in found] == [(KEPT, "state", "counts")]
    assert found[0].line == "kept: 'counts' keeps its state." and changed_only(found) == []


@pytest.mark.parametrize(
    ("here", "field", "words"),
    [
        (changed(operator={**COUNTS["operator"], "operator": "Words"}), "class", ("Words", "Counts")),
        (changed(name="words"), "name", ("'words'", "'counts'")),
        (changed(tolerance={**COUNTS["tolerance"], "theta": 99}), "theta", ("99", "10")),
        (changed(tolerance={"name": "mini-batch", "log_items": True}), "tolerance", ("mini-batch", "approximate")),
        (changed(window={**COUNTS["window"], "delay": 7}), "window.delay", ("7", "5")),
        (changed(window={**COUNTS["window"], "column": "at"}), "window.column", ("at", "time")),
        (changed(inputs=["source2"]), "inputs", ("'source2'", "the source")),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_the_state_does_not_depend_on_may_change(here: dict[str, Any], field: str, words: tuple[str, ...]) -> None:
    found = findings(here)
    assert {one.field: one.verdict for one in found} == {"state": KEPT, field: CHANGED}
    told = next(one for one in found if one.field == field)
    assert all(word in told.text for word in words) and told.operator == "counts" and "\n" not in told.line
    assert told.is_structural == (field == "inputs") and changed_only(found) == found


BOUND = [
    (with_states(counts={**TABLE, "value": "float64"}), "states.counts.value", ("float64", "int64")),
    (with_states(counts={**TABLE, "kind": "set"}), "states.counts.kind", ("set", "hash_table")),
    (with_states(counts=TABLE, sums=TABLE), "states.sums", ("hash_table", "none")),
    (with_states(), "states.counts", ("hash_table", "none")),
    (changed(operator={**COUNTS["operator"], "column": "term"}), "column", ("term", "word")),
    (changed(keyed=True), "keyed", ("true", "false")),
    (changed(window=None), "window", ("none", "hopping")),
    (changed(window={**COUNTS["window"], "length": 30}), "window.length", ("30", "60")),
    (changed(window={**COUNTS["window"], "by": "count"}), "window.by", ("count", "event")),
    (changed(window={"kind": "sliding", "length": 60, "slide": 30}), "window", ("sliding", "hopping")),
    (changed(feeds_back=["gate"]), "feeds_back", ("gate",)),
]


@pytest.mark.parametrize(("here", "field", "words"), BOUND, ids=[field for _, field, _ in BOUND])
def test_what_the_state_depends_on_is_refused_or_given_up(
    here: dict[str, Any], field: str, words: tuple[str, ...]
) -> None:
    (told,) = findings(here)
    assert (told.verdict, told.field, told.operator) == (REFUSED, field, "counts")
    assert all(word in told.text for word in words) and "discardState" in told.remedy and "\n" not in told.line
    for name in ("counts", "other"):
        expected = ANEW if name == "counts" else REFUSED
        (told,) = findings(here, name)
        assert (told.verdict, told.operator) == (expected, "counts")
    assert told.field == field


def test_another_key_is_refused_where_the_state_is_divided_by_it() -> None:
    """What an earlier release has not written is not known, and goes on."""
    there, here = changed(keyed=True, key=["word"]), changed(keyed=True, key=["user"])
    assert verdicts(here, there=there) == {"key": REFUSED}
    assert verdicts(there, there=there) == verdicts(here, there=changed(keyed=True)) == {"state": KEPT}


def test_another_number_of_workers_keeps_the_state_unless_operators_change_as_well() -> None:
    found = findings(changed(workers=3))
    assert [(one.verdict, one.field) for one in found] == [(KEPT, "state"), (CHANGED, "workers")]
    assert "from 2 workers to 3" in found[1].text and not found[1].is_structural
    both = added()
    both["operators"]["counts"]["workers"] = 3
    (refused,) = refusals(findings(both))
    assert refused.field == "workers" and "another start" in refused.remedy


def test_pushed_sources_keep_their_lanes() -> None:
    there, here = changed(), changed(workers=3)
    for settings, lanes in ((there, 2), (here, 3)):
        settings["sources"] = {"": {"kind": "pushed", "port": 7007, "lanes": lanes}}
    assert verdicts(here, there=there) == {"state": KEPT, "workers": CHANGED}


def test_a_class_of_a_state_may_have_another_name() -> None:
    own = {"kind": "own", "class": "a:Mine", "args": [3]}
    there, here = with_states(counts=own), with_states(counts={**own, "class": "b:Yours"})
    assert verdicts(here, there=there) == {"state": KEPT, "states.counts.class": CHANGED}
    here = with_states(counts={**own, "class": "b:Yours", "args": [4]})
    assert verdicts(here, there=there)["states.counts.args"] is REFUSED


def added(**fields: Any) -> dict[str, Any]:
    """The settings with a second operator behind the first one."""
    settings = deepcopy(SETTINGS)
    settings["operators"]["words"] = {**deepcopy(COUNTS), "name": "words", "inputs": ["counts"], **fields}
    return settings


def test_an_operator_that_is_added_starts_with_an_empty_state() -> None:
    found = findings(added())
    assert [(one.verdict, one.operator) for one in found] == [(KEPT, "counts"), (ANEW, "words")]
    assert found[1].is_structural


def test_an_operator_that_is_gone_is_refused_unless_it_is_given_up() -> None:
    assert [(one.verdict, one.operator) for one in findings(SETTINGS, there=added())] == [
        (KEPT, "counts"),
        (REFUSED, "words"),
    ]
    assert findings(SETTINGS, "words", there=added())[1].verdict is DROPPED


def test_one_that_was_renamed_without_its_id_is_recognised() -> None:
    here = deepcopy(SETTINGS)
    here["operators"] = {"words": {**COUNTS, "name": "words"}}
    (refused,) = refusals(findings(here))
    assert "apply(..., id='counts')" in refused.remedy and "'words'" in refused.remedy


@pytest.mark.parametrize("given", ["counts", "words"])
def test_who_is_given_up_may_be_named_by_the_id_or_either_name(given: str) -> None:
    there, here = changed(name="words"), changed(name="terms", keyed=True)
    assert ANEW in verdicts(here, given, there=there).values()
    assert ANEW in verdicts(here, "terms", there=there).values()


@pytest.mark.parametrize(
    ("sources", "field"),
    [
        ({"": {"kind": "text", "path": "elsewhere/", "blocks": False}}, "source.path"),
        ({"": {"kind": "parquet", "path": "in/", "blocks": False}}, "source.kind"),
        ({**SETTINGS["sources"], "source2": {"kind": "text", "path": "more/"}}, "source"),
        ({}, "source"),
    ],
)
def test_sources_are_those_of_the_checkpoint(sources: dict[str, Any], field: str) -> None:
    here = {**deepcopy(SETTINGS), "sources": sources}
    assert verdicts(here)[field] is REFUSED
    assert verdicts(here, "counts")[field] is REFUSED, "nothing that could be given up would help"


def test_what_pushed_items_are_on_their_way_to_cannot_be_changed() -> None:
    there, here = changed(), changed(keyed=True)
    for settings in (there, here):
        settings["sources"] = {"": {"kind": "pushed", "port": 7007}}
    (told,) = findings(here, "counts", there=there)
    assert told.verdict is REFUSED and "pushed" in told.text and told.remedy == "Use a new checkpoint folder."


def test_nothing_starts_anew_where_nobody_would_know_of_it_later() -> None:
    (told,) = findings({**changed(keyed=True), "recorded": False}, "counts")
    assert told.verdict is REFUSED and "commit records" in told.text


def test_a_checkpoint_of_an_earlier_release_says_less_and_is_kept() -> None:
    there = deepcopy(SETTINGS)
    del there["recorded"]
    for field in ("name", "tolerance"):
        del there["operators"]["counts"][field]
    assert verdicts(SETTINGS, there=there) == {"state": KEPT}
    assert verdicts(changed(keyed=True), there=there) == {"keyed": REFUSED}


def test_refusals_make_one_sentence() -> None:
    found = refusals(findings(with_states(a=TABLE, b=TABLE, c=TABLE)))
    told = summed_up(found)
    assert (
        len(found) == 4
        and told.startswith("'counts' has states.a")
        and told.endswith("1 more, which afspark plan shows")
    )
    assert summed_up(found[:1]).endswith("what is stored has other states")
