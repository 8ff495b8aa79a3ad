"""What may stand behind an option, as argparse types: each says what it expects if it gets something else."""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable

_UNITS = {
    unit.lower(): factor
    for power, letter in enumerate(("", "k", "M", "G", "T", "P"))
    for unit, factor in (
        (letter, 1000**power),
        (f"{letter}B", 1000**power),
        (f"{letter}iB", 1024**power),
    )
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Z]*)\s*")
_LARGEST = 2**62
COSTS = ("cpu", "memory", "network", "hosts")
"""The resources that cost something."""


def size(text: str) -> int:
    """A number of bytes.

    >>> size("500MB"), size("1.5 GB"), size("64KiB"), size("4096")
    (500000000, 1500000000, 65536, 4096)
    """
    match = _SIZE.fullmatch(text)
    factor = _UNITS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ArgumentTypeError(f"{text!r} is no size; write one like 500MB, 2GB or 64KiB")
    value = int(float(match[1]) * factor) if "." in match[1] else int(match[1]) * factor
    if not 1 <= value <= _LARGEST:
        raise ArgumentTypeError(f"{text!r} must be at least one byte and at most {_LARGEST} bytes")
    return value


def count(text: str) -> int:
    """A whole number of at least 1."""
    return _whole(text, 1)


def count_or_zero(text: str) -> int:
    """A whole number of at least 0."""
    return _whole(text, 0)


def seed(text: str) -> int:
    """A seed: any whole number from 0 that fits into 63 bits."""
    return _whole(text, 0)


def amount(text: str) -> float:
    """A finite number of at least 0; whole numbers stay whole.

    >>> amount("1e4"), amount("0.5")
    (10000, 0.5)
    """
    return _finite(text, "of at least 0", lambda value: value >= 0)


def positive_amount(text: str) -> float:
    """A finite number above 0; whole numbers stay whole."""
    return _finite(text, "above 0", lambda value: value > 0)


def names(text: str) -> tuple[str, ...]:
    """Names with commas between.

    >>> names("src, dst")
    ('src', 'dst')
    """
    found = tuple(name.strip() for name in text.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise ArgumentTypeError(f"{text!r} must be different names with commas between, like src,dst")
    return found


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1 with commas between.

    >>> counts("1,5,15")
    (1, 5, 15)
    """
    return tuple(count(part) for part in names(text))


def costs(text: str) -> tuple[tuple[str, float], ...]:
    """What resources cost, as pairs of name and weight.

    >>> costs("cpu=2, hosts=0")
    (('cpu', 2), ('hosts', 0))
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        name, mark, value = (one.strip() for one in part.partition("="))
        if not mark or name in found:
            raise ArgumentTypeError(f"{text!r} must be different costs with commas between, like cpu=1,hosts=10")
        if name not in COSTS:
            raise ArgumentTypeError(f"unknown cost {name!r}; there are {', '.join(COSTS)}")
        found[name] = amount(value)
    return tuple(found.items())


def setting(text: str) -> tuple[str, str]:
    """A Spark setting.

    >>> setting("spark.driver.memory=4g")
    ('spark.driver.memory', '4g')
    """
    key, mark, value = text.partition("=")
    if not mark or not key.strip().startswith("spark."):
        raise ArgumentTypeError(f"{text!r} must be spark.KEY=VALUE")
    return key.strip(), value.strip()


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no whole number") from None
    if not least <= value < 2**63:
        raise ArgumentTypeError(f"{text} must be at least {least}" if value < least else f"{text} is too large")
    return value


def _finite(text: str, range_text: str, fits: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no number") from None
    if not (math.isfinite(value) and fits(value)):
        raise ArgumentTypeError(f"{text} must be a number {range_text}")
    if value.is_integer():
        return int(value)
    return value
