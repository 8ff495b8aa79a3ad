"""How far a state may be from its last durable backup, as one number.

All distances are sums or maxima over cells of a difference between present value and shadow (the value in
the last acknowledged backup, 0 if there is none). Sums are kept as *power sums* (of absolute differences, of
their squares, or of ones where a key came or went), because those can be corrected cell by cell; ``norm``
turns a power sum into the distance.
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Iterable

from afspark.errors import UsageError

_SMALLEST_TRACED = 2.0**-490
"""Its square is far above all that underflow can add up to (`afspark.model.states.books.UNSEEN`)."""


class Divergence(enum.StrEnum):
    """The distance between a state and its last durable backup.

    ``MAX``: largest absolute difference of a cell. ``MANHATTAN``: sum of absolute differences. ``EUCLIDEAN``:
    square root of the sum of squared differences. ``KEYS``: number of keys that are in the table or set now
    but not in the backup, or the other way round. That is at least the difference of the two numbers of keys,
    and equal to it as long as no key is removed. The text forms ("max" ...) are accepted wherever one is
    expected.
    """

    MAX = "max"
    MANHATTAN = "manhattan"
    EUCLIDEAN = "euclidean"
    KEYS = "keys"

    @classmethod
    def parse(cls, name: Divergence | str, among: Iterable[Divergence] | None = None) -> Divergence:
        """The divergence of that name, if it is ``among`` the given ones; ``UsageError`` lists what is allowed."""
        allowed = [member.value for member in (cls if among is None else among)]
        if name not in allowed:
            raise UsageError(
                f"Unknown divergence {name!r}.",
                remedy=f"Use one of {', '.join(allowed)}.",
                got=name,
                allowed=allowed,
            )
        return cls(name)

    @property
    def power(self) -> int:
        """Exponent of a cell's difference inside the power sum: 2 for the euclidean distance, else 1."""
        return 2 if self is Divergence.EUCLIDEAN else 1

    def raised(self, distance: float) -> float:
        """The power sum that corresponds to a finite distance, at most the largest float64."""
        return min(distance * distance, sys.float_info.max) if self is Divergence.EUCLIDEAN else distance

    def is_traceless(self, distance: float) -> bool:
        """Whether differences of that size leave no trace in a power sum, or hardly one: their squares underflow."""
        return self is Divergence.EUCLIDEAN and distance < _SMALLEST_TRACED

    def norm(self, power_sum: float) -> float:
        """The distance that corresponds to a power sum."""
        return math.sqrt(power_sum) if self is Divergence.EUCLIDEAN else power_sum
