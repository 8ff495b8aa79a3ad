"""How the operators of a pipeline divide one budget among themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from afspark.errors import UsageError

#: What sums of weights such as 0.7 + 0.2 + 0.1 may be off by.
_ROUNDING = 1e-12


def weights(given: Sequence[float | None]) -> tuple[float, ...]:
    """The weight of each operator: those given, and equal parts of the rest for the others.

    Given weights are positive and sum to at most 1, with something left for operators that have none;
    otherwise UsageError.

    >>> weights([None] * 4)
    (0.25, 0.25, 0.25, 0.25)
    >>> weights([0.5, None, None])
    (0.5, 0.25, 0.25)
    """
    fixed = [weight for weight in given if weight is not None]
    for weight in fixed:
        if not 0 < weight <= 1:
            raise UsageError(
                f"A weight is a number above 0 and at most 1, not {weight!r}.",
                remedy="Give each operator its part of the error budget, such as 0.5, or no weight at all.",
                got=weight,
            )
    total, others = math.fsum(fixed), len(given) - len(fixed)
    if total > 1 + _ROUNDING or (others and total > 1 - _ROUNDING):
        raise UsageError(
            f"The weights {', '.join(f'{weight:g}' for weight in fixed)} sum to {total:g}"
            + (f" and leave nothing for {others} more." if others else ", which is more than 1."),
            remedy="Weights are parts of one budget: let them sum to at most 1.",
            total=total,
        )
    rest = (1 - total) / others if others else 0.0
    return tuple(rest if weight is None else weight for weight in given)
