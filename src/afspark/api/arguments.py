"""What users give to the steps of a pipeline, looked at where they give it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from afspark.errors import UsageError
from afspark.model.operator import Operator
from afspark.model.states import StateSpec
from afspark.model.windows import Window
from afspark.policies import Tolerance, parameters
from afspark.policies.parameters import shown


def check_operator(operator: object) -> None:
    """UsageError unless it is an operator whose states and key can be used."""
    _require(operator, Operator, "operator", "Make one of a class derived from Operator: apply(Count()).")
    assert isinstance(operator, Operator)
    who = type(operator).__name__
    specs: Any = operator.states()
    if not isinstance(specs, Mapping):
        raise UsageError(
            f"{who}.states() returned {shown(specs)}, not a dictionary.",
            remedy="Return the states by name: {'counts': HashTable(key='string', value='int64')}.",
        )
    for name, spec in specs.items():
        if not isinstance(name, str):
            raise UsageError(f"{who}.states() has the name {shown(name)}.", remedy="Names of states are texts.")
        _require(spec, StateSpec, "state", "Declare one, such as HashTable(key='string', value='int64').")
    key: Any = operator.key
    if isinstance(key, str):
        raise UsageError(f"The key of {who} is a text: {key!r}.", remedy=f"Write a tuple of columns: key = ({key!r},).")
    if not isinstance(key, Sequence) or not all(isinstance(column, str) for column in key):
        raise UsageError(f"The key of {who} is {shown(key)}.", remedy="Write a tuple of columns: key = ('user',).")


def check_tolerance(tolerance: object) -> None:
    """UsageError unless it is a policy."""
    remedy = "Make one, such as MiniBatch() or Approximate(theta=100)."
    if isinstance(tolerance, Real) and not isinstance(tolerance, bool):
        remedy = f"If so much error is allowed, write tolerance=Approximate(theta={shown(tolerance)})."
    _require(tolerance, Tolerance, "tolerance", remedy)


def check_window(window: object) -> None:
    """UsageError unless it is a window."""
    _require(window, Window, "window", "Make one, such as Hopping(60, column='time').")


def check_settings(
    *, name: object, id: object, workers: object, keyed: object, weight: object, feeds_back: object, bad_limit: object
) -> None:
    """UsageError for what no operator can be given."""
    for what, text in (("name", name), ("id", id)):
        if text is not None and (not isinstance(text, str) or not text):
            raise UsageError(
                f"The {what} of an operator is a text, not {shown(text)}.", remedy=f"Write {what}='counts'."
            )
    parameters.count("workers", workers, "It is how many workers share the operator's state.")
    if keyed is not None:
        parameters.choice("keyed", keyed)
    if weight is not None:
        parameters.limit("weight", weight, "It is a part of the error budget, such as 0.5.")
    parameters.count("bad_limit", bad_limit, "It is how many bad items of a batch are left out.", least=0)
    if isinstance(feeds_back, str):
        raise UsageError(f"feeds_back is a text: {feeds_back!r}.", remedy=f"Write a list: feeds_back=[{feeds_back!r}].")
    if not isinstance(feeds_back, Sequence) or not all(isinstance(one, str) for one in feeds_back):
        raise UsageError(f"feeds_back is {shown(feeds_back)}.", remedy="Name operators upstream: feeds_back=['gate'].")


def check_function(function: object, who: str, example: str) -> None:
    """UsageError unless it can be called."""
    if not callable(function):
        raise UsageError(f"{shown(function)}, given to {who}, is no function.", remedy=example)


def _require(value: object, kind: type, word: str, remedy: str) -> None:
    if isinstance(value, kind):
        return
    if isinstance(value, type):
        meant = f"Write {value.__name__}(...)." if issubclass(value, kind) else remedy
        raise UsageError(f"{value.__name__} is a class, not {_an(word)}.", remedy=meant, got=value.__name__)
    raise UsageError(f"{shown(value)} is no {word}.", remedy=remedy, got=shown(value))


def _an(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"
