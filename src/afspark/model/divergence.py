"""How far a state may be from its last durable backup, as one number.

All three distances are sums or maxima over cells of the difference between present value and shadow (the
value in the last acknowledged backup, 0 if there is none). Sums are kept as *power sums* (of absolute
differences, or of their squares), because those can be corrected cell by cell; ``norm`` turns a power sum
into the distance.
"""

from __future__ import annotations

import enum
import math
import sys

from afspark.errors import UsageError


class Divergence(enum.StrEnum):
    """The distance between a state and its last durable backup.

    ``MAX``: largest absolute difference of a cell. ``MANHATTAN``: sum of absolute differences. ``EUCLIDEAN``:
    square root of the sum of squared differences. The text forms ("max" ...) are accepted wherever one is
    expected.
    """

    MAX = "max"
    MANHATTAN = "manhattan"
    EUCLIDEAN = "euclidean"

    @classmethod
    def parse(cls, name: Divergence | str) -> Divergence:
        """The divergence of that name; ``UsageError`` lists what is allowed."""
        try:
            return cls(name)
        except ValueError:
            allowed = [member.value for member in cls]
            raise UsageError(
                f"Unknown divergence {name!r}.",
                remedy=f"Use one of {', '.join(allowed)}.",
                got=name,
                allowed=allowed,
            ) from None

    @property
    def power(self) -> int:
        """Exponent of a cell's difference inside the power sum: 2 for the euclidean distance, else 1."""
        return 2 if self is Divergence.EUCLIDEAN else 1

    def raised(self, distance: float) -> float:
        """The power sum that corresponds to a finite distance, at most the largest float64."""
        return min(distance * distance, sys.float_info.max) if self is Divergence.EUCLIDEAN else distance

    def norm(self, power_sum: float) -> float:
        """The distance that corresponds to a power sum."""
        return math.sqrt(power_sum) if self is Divergence.EUCLIDEAN else power_sum
