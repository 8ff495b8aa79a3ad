"""What becomes of the state in a checkpoint when another pipeline is started on it: field by field, and why. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from afspark.store.address_schemes import redact
from afspark.store.pipeline_description import Fields, OperatorDescription, PipelineDescription

DISCARD = "discardState"
"""The option that names operators whose state may be given up."""

WORKERS = "workers"
"""The field of a finding about the number of workers."""

_MOST_TOLD = 3
_LONGEST = 60
_ABSENT = object()
#: Parameters of a window that decide when it closes and where times are found, not which items belong together.
_FREE_OF_WINDOWS = frozenset({"delay", "column"})


class ChangeVerdict(StrEnum):
    """What becomes of something that is compared."""

    KEPT = "kept"
    CHANGED = "changed"  # it is different from the next batch on, and the state is kept
    ANEW = "anew"  # an operator starts with an empty state
    DROPPED = "dropped"  # the state of an operator that is not there any more is given up
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class ChangeFinding:
    """One thing that was compared. ``operator``: the id of an operator; None if it is about a source."""

    verdict: ChangeVerdict
    field: str
    text: str
    remedy: str = ""
    operator: str | None = None

    @property
    def line(self) -> str:
        """The finding in one line."""
        return f"{self.verdict}: {self.text}{f' {self.remedy}' if self.remedy else ''}"

    @property
    def is_structural(self) -> bool:
        """Whether batches flow in another way than before."""
        return self.verdict in (ChangeVerdict.ANEW, ChangeVerdict.DROPPED) or (
            self.field == "inputs" and self.verdict is ChangeVerdict.CHANGED
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": str(self.verdict),
            "operator": self.operator,
            "field": self.field,
            "text": self.text,
            "remedy": self.remedy,
        }


def compared(
    there: PipelineDescription, here: PipelineDescription, discard: Collection[str] = ()
) -> list[ChangeFinding]:
    """What the pipeline ``here`` makes of what a checkpoint has of the one ``there``: sources first, then operators.

    ``discard`` names operators, by id or name, whose state the user gives up where it cannot be kept. Every operator
    that goes on has a finding; fields that have not changed have none.
    """
    found = list(_sources(there, here))
    for operator in here.operators.values():
        before = there.operators.get(operator.id)
        if before is None:
            found.append(_added(operator))
        else:
            found += _operator(before, operator, gives_up=not _names(before, operator).isdisjoint(discard))
    renamed = [one for one in here.operators.values() if one.id not in there.operators]
    for before in there.operators.values():
        if before.id not in here.operators:
            found.append(_removed(before, renamed, gives_up=not _names(before).isdisjoint(discard)))
    return _one_by_one([_possible(one, here) for one in found])


def changed_only(findings: Sequence[ChangeFinding]) -> list[ChangeFinding]:
    """What there is to tell: nothing if all is as it was."""
    return list(findings) if any(one.verdict is not ChangeVerdict.KEPT for one in findings) else []


def refusals(findings: Sequence[ChangeFinding]) -> list[ChangeFinding]:
    """Those for which the pipeline cannot start on the checkpoint."""
    return [one for one in findings if one.verdict is ChangeVerdict.REFUSED]


def summed_up(refused: Sequence[ChangeFinding]) -> str:
    """Refusals as the part of a sentence.

    >>> summed_up([ChangeFinding(verdict=ChangeVerdict.REFUSED, field="source", text="The source is new.")])
    'the source is new'
    """
    texts = [f"{one.text[:1].lower()}{one.text[1:].rstrip('.')}" for one in refused[:_MOST_TOLD]]
    more = len(refused) - _MOST_TOLD
    return "; ".join(texts) + (f"; and {more} more, which afspark plan shows" if more > 0 else "")


def _rescaled(there: OperatorDescription, here: OperatorDescription) -> Iterator[ChangeFinding]:
    if there.workers != here.workers:
        former = f"{there.workers} worker{'s' if there.workers != 1 else ''}"
        yield _changed(here, WORKERS, f"{here.name!r} is rescaled from {former} to {here.workers}.")


def _one_by_one(found: list[ChangeFinding]) -> list[ChangeFinding]:
    """The findings; those about numbers of workers are refused beside others with which batches flow in another way."""
    if not any(one.is_structural for one in found):
        return found
    return [
        replace(
            one,
            verdict=ChangeVerdict.REFUSED,
            text=f"{one.text.rstrip('.')}, and that cannot be done together with other changes of the operators.",
            remedy="Change the number of workers at another start.",
        )
        if one.field == WORKERS and one.verdict is ChangeVerdict.CHANGED
        else one
        for one in found
    ]


# --- sources ------------------------------------------------------------------------------------------------


def _sources(there: PipelineDescription, here: PipelineDescription) -> Iterator[ChangeFinding]:
    for name in sorted({*there.sources, *here.sources}):
        old, new = there.sources.get(name), here.sources.get(name)
        called = f"The source {name!r}" if name else "The source"
        if old is None or new is None:
            text = f"{called} is {'new' if old is None else 'not in the pipeline any more'}, and the offsets in the"
            yield _of_source(f"{text} checkpoint are those of the sources it was made with.", "source")
            continue
        for field, before, now in _differences(old, new):
            yield _of_source(
                f"{called} has another {field}, {_text(now)} instead of {_text(before)}, and the offsets in the"
                " checkpoint say nothing of that one.",
                f"source.{field}",
            )


def _of_source(text: str, field: str) -> ChangeFinding:
    remedy = "Read the sources that the checkpoint was made with, or use a new checkpoint folder."
    return ChangeFinding(verdict=ChangeVerdict.REFUSED, field=field, text=text, remedy=remedy)


# --- operators ----------------------------------------------------------------------------------------------


def _added(operator: OperatorDescription) -> ChangeFinding:
    text = f"{operator.name!r} is new, and starts with an empty state."
    return ChangeFinding(verdict=ChangeVerdict.ANEW, field="operator", text=text, operator=operator.id)


def _removed(before: OperatorDescription, added: Sequence[OperatorDescription], *, gives_up: bool) -> ChangeFinding:
    if gives_up:
        text = f"{before.name!r} is not in the pipeline any more, and its state is given up."
        return ChangeFinding(verdict=ChangeVerdict.DROPPED, field="operator", text=text, operator=before.id)
    alike = [one.name for one in added if one.states == before.states and one.window == before.window]
    likely = f" (as {alike[0]!r} seems to be)" if alike else ""
    return ChangeFinding(
        verdict=ChangeVerdict.REFUSED,
        field="operator",
        text=f"{before.name!r} is not in the pipeline any more, and its state would be lost.",
        remedy=f"If it has another name now{likely}, write apply(..., id={before.id!r}); to give its state up,"
        f" option({DISCARD!r}, {before.id!r}).",
        operator=before.id,
    )


def _operator(before: OperatorDescription, now: OperatorDescription, *, gives_up: bool) -> Iterator[ChangeFinding]:
    refused = list(_bound(before, now))
    if gives_up and refused:
        why = "; ".join(one.text.rstrip(".").partition(", and ")[0] for one in refused)
        text = f"{now.name!r} starts with an empty state, and what it had is given up: {why}."
        yield ChangeFinding(verdict=ChangeVerdict.ANEW, field=refused[0].field, text=text, operator=now.id)
    elif refused:
        yield from refused
    else:
        text = f"{now.name!r} keeps its state."
        yield ChangeFinding(verdict=ChangeVerdict.KEPT, field="state", text=text, operator=now.id)
    yield from _free(before, now)


def _bound(there: OperatorDescription, here: OperatorDescription) -> Iterator[ChangeFinding]:
    """Differences with which the state cannot be kept."""
    for state in sorted({*there.states, *here.states}):
        before, now = there.states.get(state), here.states.get(state)
        field = f"states.{state}"
        if before is None or now is None:
            yield _refused(here, field, _shape(before), _shape(now), "what is stored has other states")
            continue
        for name, old, new in _differences(before, now):
            if name != "class":
                yield _refused(here, f"{field}.{name}", old, new, "what is stored cannot be read as that")
    for name, old, new in _differences(there.parameters, here.parameters):
        yield _refused(here, name, old, new, "the operator says that its state depends on it")
    if there.keyed != here.keyed:
        why = "its state would have to be divided anew among the workers"
        yield _refused(here, "keyed", there.keyed, here.keyed, why)
    elif there.key is not None and here.key is not None and there.key != here.key:
        why = "its state is divided among the workers by the key it had"
        yield _refused(here, "key", list(there.key), list(here.key), why)
    for field, old, new in _windows(there.window, here.window):
        yield _refused(here, field, old, new, "windows that are open cannot be cut in another way")
    if there.feeds_back != here.feeds_back:
        why = "feedback that is under way would not arrive"
        yield _refused(here, "feeds_back", list(there.feeds_back), list(here.feeds_back), why)


def _free(there: OperatorDescription, here: OperatorDescription) -> Iterator[ChangeFinding]:
    """Differences with which the state is kept."""
    yield from _rescaled(there, here)
    if there.name != here.name:
        text = f"The operator {here.id!r} is called {here.name!r} now, and was called {there.name!r}."
        yield _changed(here, "name", text)
    if there.class_name and there.class_name != here.class_name:
        yield _changed(here, "class", f"{here.name!r} is of class {here.class_name} now, not {there.class_name}.")
    for state in sorted({*there.states} & {*here.states}):
        old, new = there.states[state].get("class"), here.states[state].get("class")
        if old != new and there.states[state].keys() == here.states[state].keys():
            yield _changed(here, f"states.{state}.class", f"{here.name!r} has the state {state!r} read by {new} now.")
    for field, old, new in _tolerances(there.tolerance, here.tolerance):
        text = f"{here.name!r} has {field} {_text(new)} from the next batch on, instead of {_text(old)}."
        yield _changed(here, field, text)
    if there.inputs != here.inputs:
        text = f"{here.name!r} reads from {_inputs(here)} now, instead of {_inputs(there)}."
        yield _changed(here, "inputs", text)
    if not list(_windows(there.window, here.window)):
        for name, old, new in _differences(there.window or {}, here.window or {}):
            yield _changed(
                here, f"window.{name}", f"{here.name!r} has window.{name} {_text(new)} now, not {_text(old)}."
            )


def _possible(finding: ChangeFinding, here: PipelineDescription) -> ChangeFinding:
    """The finding, or why that cannot be done with this pipeline."""
    if not finding.is_structural:
        return finding
    if here.is_pushed:
        why = "pushed items that are under way belong to the operators there were"
    elif finding.verdict is ChangeVerdict.ANEW and not here.recorded:
        why = "without commit records nobody would know of it later"
    else:
        return finding
    return ChangeFinding(
        verdict=ChangeVerdict.REFUSED,
        field=finding.field,
        text=f"{finding.text.rstrip('.')}: that cannot be done here, because {why}.",
        remedy="Use a new checkpoint folder.",
        operator=finding.operator,
    )


# --- words --------------------------------------------------------------------------------------------------


def _refused(operator: OperatorDescription, field: str, old: object, new: object, why: str) -> ChangeFinding:
    return ChangeFinding(
        verdict=ChangeVerdict.REFUSED,
        field=field,
        text=f"{operator.name!r} has {field} {_text(new)} instead of {_text(old)}, and {why}.",
        remedy=f"Leave it as it was; or let {operator.name!r} start with an empty state, option({DISCARD!r},"
        f" {operator.id!r}); or use a new checkpoint folder.",
        operator=operator.id,
    )


def _changed(operator: OperatorDescription, field: str, text: str) -> ChangeFinding:
    return ChangeFinding(verdict=ChangeVerdict.CHANGED, field=field, text=text, operator=operator.id)


def _differences(old: Fields, new: Fields) -> Iterator[tuple[str, object, object]]:
    for name in sorted({*old, *new}):
        before, now = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if before != now:
            yield name, before, now


def _windows(old: Fields | None, new: Fields | None) -> Iterator[tuple[str, object, object]]:
    """Differences in what decides which items a window has."""
    before, now = ({} if one is None else one for one in (old, new))
    if before.get("kind") != now.get("kind"):
        yield "window", before.get("kind", _ABSENT), now.get("kind", _ABSENT)
        return
    for name, was, is_now in _differences(before, now):
        if name not in _FREE_OF_WINDOWS:
            yield f"window.{name}", was, is_now


def _tolerances(old: Fields | None, new: Fields | None) -> Iterator[tuple[str, object, object]]:
    """Differences between two policies; none where the checkpoint does not say which there was."""
    if old is None or new is None:
        return
    if old.get("name") != new.get("name"):
        yield "tolerance", old.get("name"), new.get("name")
        return
    yield from _differences(old, new)


def _shape(state: Mapping[str, Any] | None) -> object:
    return _ABSENT if state is None else dict(state)


def _names(*operators: OperatorDescription) -> set[str]:
    return {name for one in operators for name in (one.id, one.name)}


def _inputs(operator: OperatorDescription) -> str:
    return ", ".join(repr(name) if name else "the source" for name in operator.inputs)


def _text(value: object) -> str:
    if value is _ABSENT:
        return "none"
    text = redact(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
