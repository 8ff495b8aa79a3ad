"""What users give to policies, as plain numbers: those of numpy and fractions would not survive JSON."""

from __future__ import annotations

import math
import reprlib
from numbers import Integral, Real
from typing import Any

from afspark.errors import UsageError

LARGEST_COUNT = 2**63 - 1


def limit(name: str, value: Any, remedy: str = "") -> float:
    """A number from 0 to infinity.

    >>> limit("theta", 10), limit("theta", math.inf)
    (10, inf)
    """
    number = _plain(value)
    # NaN is not >= 0 either.
    if number is None or not number >= 0:
        raise _refused(name, "a number >= 0", value, remedy)
    return number


def finite(name: str, value: Any, remedy: str = "", *, most: float = math.inf) -> float:
    """A number from 0 on, but not infinity, and at most ``most``."""
    number = _plain(value)
    if number is None or not 0 <= number < math.inf or number > most:
        limited = "" if math.isinf(most) else f" and at most {most:g}"
        raise _refused(name, f"a finite number >= 0{limited}", value, remedy)
    return number


def seconds(name: str, value: Any, remedy: str = "") -> float:
    """A finite number above 0."""
    number = _plain(value)
    if number is None or not 0 < number < math.inf:
        raise _refused(name, "a number above 0", value, remedy)
    return number


def count(name: str, value: Any, remedy: str = "", *, least: int = 1) -> int:
    """A whole number of at least ``least``."""
    number = _plain(value)
    if not isinstance(number, int) or number < least:
        most = f" and at most {LARGEST_COUNT}" if isinstance(value, Integral) and int(value) > LARGEST_COUNT else ""
        raise _refused(name, f"a whole number of at least {least}{most}", value, remedy)
    return number


def choice(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} is True or False, not {shown(value)}.", got=value)
    return value


def is_one_of(value: Any, *words: str) -> bool:
    """Whether it is one of these words; arrays among other things cannot be compared with any."""
    return isinstance(value, str) and value in words


def _plain(value: Any) -> int | float | None:
    """An int or a float, which it is above what anybody counts; None for what is no number that a float can be."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, Integral) and abs(int(value)) <= LARGEST_COUNT:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return None


def _refused(name: str, wanted: str, value: Any, remedy: str) -> UsageError:
    return UsageError(f"{name} must be {wanted}, not {shown(value)}.", remedy=remedy, **{name: value})


def shown(value: Any) -> str:
    """A value in an error, in a few characters."""
    try:
        return reprlib.repr(value)
    except ValueError:  # a number of too many digits
        return "one of thousands of digits"
