"""Whether what a real fault has left of the states is within the bounds that the query tells."""

from __future__ import annotations

import math
from collections.abc import Mapping

from afspark.model.distances import Cells, distance
from afspark.model.divergence import Divergence

#: By operator and state.
StateCells = Mapping[str, Mapping[str, Cells]]

_ROUNDING = 1e-9


def within_bounds(
    found: StateCells,
    golden: StateCells,
    told: Mapping[str, Mapping[str, float]],
    divergences: Mapping[str, Mapping[str, Divergence]],
) -> bool | None:
    """Whether no state that was found is farther from the golden one than it is told to be at most.

    What is not told of is to be golden. States of which no bound is known are left out; None if nothing else is there.

    >>> measured = {"sums": {"sums": Divergence.MANHATTAN}}
    >>> lost, golden = {"sums": {"sums": {"a": 4}}}, {"sums": {"sums": {"a": 5, "b": 1}}}
    >>> [within_bounds(lost, golden, {"sums": {"sums": bound}}, measured) for bound in (2.0, 1.0, math.inf)]
    [True, False, None]
    """
    verdicts = []
    for operator, states in found.items():
        for state, cells in states.items():
            bound = told.get(operator, {}).get(state, 0.0)
            apart = distance(divergences[operator][state], cells, golden[operator][state])
            if math.isfinite(bound) and not math.isnan(apart):
                verdicts.append(apart <= bound * (1 + _ROUNDING) + _ROUNDING)
    return all(verdicts) if verdicts else None
