"""Numbers as people read them."""

from __future__ import annotations

import math

_DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB")


def bytes_text(count: float) -> str:
    """Bytes in decimal units.

    >>> bytes_text(512), bytes_text(40_000_000), bytes_text(1_234_567_890)
    ('512 B', '40.0 MB', '1.23 GB')
    """
    unit = 0
    value = float(count)
    while abs(value) >= 999.5 and unit < len(_DECIMAL) - 1:
        value /= 1000
        unit += 1
    if unit == 0:
        return f"{int(count)} B"
    return (
        f"{value:.2f} {_DECIMAL[unit]}" if value < 9.995 else f"{value:.{1 if value < 99.95 else 0}f} {_DECIMAL[unit]}"
    )


def number_text(value: float | None) -> str:
    """A count or measure with thousands apart; "–" for nothing, "∞" where there is no limit.

    >>> number_text(1234567), number_text(2500.0), number_text(0.125), number_text(None)
    ('1,234,567', '2,500', '0.125', '–')
    """
    if value is None:
        return "–"
    if math.isinf(value):
        return "∞"
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """So many of something; ``many`` is what more than one are called, by default with an s.

    >>> counted(1, "batch", "batches"), counted(1200, "object")
    ('1 batch', '1,200 objects')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def seconds_text(seconds: float | None) -> str:
    """A duration.

    >>> seconds_text(0.0234), seconds_text(7.26), seconds_text(125)
    ('23 ms', '7.3 s', '2 min 5 s')
    """
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
