"""Lengths of time and numbers of items, as users write them."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from numbers import Integral, Real

from afspark.errors import UsageError

MOST = 2**62
"""Largest whole length: sums of a time and a length must fit int64."""


def amount(what: str, given: object, *, positive: bool = True) -> float:
    """A finite number above 0 (of at least 0, if not ``positive``); a timedelta counts in seconds.

    Whole numbers come back as int, so that the arithmetic of whole times is exact.

    >>> from datetime import timedelta
    >>> amount("length", timedelta(minutes=1)), amount("length", 2.0), amount("length", 0.5)
    (60, 2, 0.5)
    """
    number = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(number, Real) and not isinstance(number, bool):
        value = int(number) if isinstance(number, Integral) else float(number)
        if (value > 0 or (value == 0 and not positive)) and value <= MOST:
            return int(value) if float(value).is_integer() else value
    raise UsageError(
        f"{what} is a finite number {'above' if positive else 'of at least'} 0, got {given!r}.",
        remedy="Give a number or a timedelta.",
        parameter=what,
        got=given,
    )


def exact(number: float) -> Fraction:
    """The decimal number the user wrote: 0.1 is a tenth here, not the float next to it."""
    return Fraction(str(number))
