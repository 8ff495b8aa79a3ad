"""The order in which an operator meets punctuation and items within a batch. Pure.

Every operator has a *punctuation plan* for a batch: the punctuations it will meet, one step each. First come the
ends of its own windows, which the batches before have fixed; then the punctuations of the operators it reads from, in
their order, each after the items that were sent before it. What an operator sends is tagged with the step it was
sent in, so that the next one can tell which items belong before which punctuation; items after the last step carry
the number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from afspark.model.windows import Punctuation


@dataclass(frozen=True)
class Step:
    """A punctuation, and per operator upstream the last tag whose items must be processed before it."""

    punctuation: Punctuation
    own: bool
    after: Mapping[str, int] = field(default_factory=dict)


PunctuationPlan = tuple[Step, ...]


def punctuation_plans(
    inputs: Mapping[str, Sequence[str]], closings: Mapping[str, Sequence[Punctuation]]
) -> dict[str, PunctuationPlan]:
    """The punctuation plan of every operator. ``inputs``: the operators each one reads from, in topological order.

    >>> end = Punctuation(operator="a", window=7, start=70.0, end=80.0)
    >>> made = punctuation_plans({"a": [], "b": ["a"]}, {"a": [end]})
    >>> [(step.own, dict(step.after)) for step in made["a"] + made["b"]]
    [(True, {}), (False, {'a': 0})]
    """
    made: dict[str, PunctuationPlan] = {}
    for name, origins in inputs.items():
        steps = {punctuation: Step(punctuation, own=True) for punctuation in closings.get(name, ())}
        for origin in origins:
            for number, step in enumerate(made[origin]):
                met = steps.get(step.punctuation, Step(step.punctuation, own=False))
                steps[step.punctuation] = Step(met.punctuation, met.own, {**met.after, origin: number})
        made[name] = tuple(steps.values())
    return made
