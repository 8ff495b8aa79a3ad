"""What differs between the pipeline that something was made with, and the one at hand. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_MOST_SHOWN = 3
_LONGEST = 60
_NOT_SET = object()

SAME_PIPELINE = (
    "Use the pipeline that it was made with: its sources, and its operators with their names, parameters, windows and"
    " numbers of workers; tolerances may differ."
)


def what_differs(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The first differences between two pipelines' settings in words; empty if there are none.

    >>> what_differs({"operators": {"counts": {"workers": 2}}}, {"operators": {"wordcount": {"workers": 2}}})
    "operators are 'counts' there and 'wordcount' here"
    >>> what_differs({"operators": {"counts": {"workers": 2}}}, {"operators": {"counts": {"workers": 4}}})
    'operators.counts.workers is 2 there and 4 here'
    """
    found = list(_differences((), there, here))
    more = f", and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return "; ".join(found[:_MOST_SHOWN]) + more


def _differences(path: tuple[str, ...], there: Any, here: Any) -> Iterator[str]:
    if not (isinstance(there, Mapping) and isinstance(here, Mapping)):
        if there != here:
            yield f"{'.'.join(path)} is {_text(there)} there and {_text(here)} here"
    elif path == ("operators",) and there.keys() != here.keys():
        yield f"operators are {_names(there)} there and {_names(here)} here"
    else:
        for key in sorted({*there, *here}):
            # A single source has no name.
            name = key or "source"
            yield from _differences((*path, name), there.get(key, _NOT_SET), here.get(key, _NOT_SET))


def _names(operators: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, sorted(operators)))


def _text(value: Any) -> str:
    if value is _NOT_SET:
        return "not set"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
