"""Whether an operator may run under a tolerance, by what it declares of itself."""

from __future__ import annotations

import math

from afspark.errors import UsageError
from afspark.model.operator import Operator
from afspark.policies.adaptive import Adaptive
from afspark.policies.tolerance import Approximate, Tolerance


def refuse_if_unfit(operator: Operator, tolerance: Tolerance) -> None:
    """UsageError if ``tolerance`` could promise nothing for ``operator``, or would break it.

    What an operator declares can be put to the test with ``model.preconditions.check_operator``.
    """
    name, alpha = type(operator).__name__, operator.alpha
    if alpha is not None and not 0 <= alpha < math.inf:
        raise UsageError(
            f"{name} declares alpha = {alpha!r}, which is no finite number >= 0.",
            remedy="alpha is the most one item can change the divergence of a state; None if there is no such limit.",
            operator=name,
            alpha=alpha,
        )
    if isinstance(tolerance, Adaptive) and tolerance.approximation is not None:
        tolerance = tolerance.approximation
    if not isinstance(tolerance, Approximate) or not tolerance.approximates:
        return
    if operator.approximable is not True:
        reason = operator.approximable or "it declares approximable = False"
        raise UsageError(
            f"{name} would not survive approximate recovery: {reason}.",
            remedy="Use tolerance=MiniBatch(), which loses nothing.",
            operator=name,
            reason=reason,
        )
    if tolerance.items and alpha is None:
        raise UsageError(
            f"{name} declares no alpha, so the loss of {tolerance.items:g} items has no bound.",
            remedy="Declare `alpha`, the most one item can change a state, or leave items at 0, or use MiniBatch().",
            operator=name,
            items=tolerance.items,
        )
