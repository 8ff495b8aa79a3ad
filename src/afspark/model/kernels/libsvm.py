"""Text in the format of libsvm: a line per item, ``label index:value index:value …``, a comment after ``#``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from afspark.model.kernels.plain_arrays import Array

_MOST_INDEX = 2**31 - 1
# A number of at most 15 digits times or over a power of ten of at most 22 is rounded once, that is, exactly right.
_MOST_MANTISSA, _MOST_POWER = 10**15, 22
_POWERS = 10.0 ** np.arange(_MOST_POWER + 1)


class Parsed(NamedTuple):
    """Items: a label each (NaN: the line is broken), offsets into indices and values; where each line starts."""

    labels: Array
    offsets: Array
    cells: Array
    value: Array
    starts: Array


@njit(cache=True, nogil=True)
def _number(data, at, stop):  # type: ignore[no-untyped-def]
    """(kind, value) of the text in [at, stop): 0 no number, 1 exact, 2 for somebody slower and more careful."""
    negative = False
    if at < stop and (data[at] == 43 or data[at] == 45):
        negative = data[at] == 45
        at += 1
    mantissa = np.int64(0)
    digits = power = 0
    careful = False
    seen_point = False
    while at < stop:
        c = data[at]
        if 48 <= c <= 57:
            digits += 1
            if mantissa < _MOST_MANTISSA // 10:
                mantissa = mantissa * 10 + (c - 48)
                if seen_point:
                    power -= 1
            else:
                careful = True
        elif c == 46 and not seen_point:
            seen_point = True
        else:
            break
        at += 1
    if digits == 0:
        return 0, 0.0
    if at < stop and (data[at] == 101 or data[at] == 69):
        at += 1
        minus = False
        if at < stop and (data[at] == 43 or data[at] == 45):
            minus = data[at] == 45
            at += 1
        if at == stop:
            return 0, 0.0
        exponent = 0
        while at < stop and 48 <= data[at] <= 57:
            exponent = min(exponent * 10 + (data[at] - 48), 100_000)
            at += 1
        power += -exponent if minus else exponent
    if at != stop:
        return 0, 0.0
    if careful or abs(power) > _MOST_POWER:
        return 2, 0.0
    value = np.float64(mantissa)
    if power < 0:
        value /= _POWERS[-power]
    else:
        value *= _POWERS[power]
    return 1, -value if negative else value


@njit(cache=True, nogil=True)
def _parse(data, labels, offsets, index, value, starts, slow):  # type: ignore[no-untyped-def]
    """Fills the arrays; the number of items, and of rows of ``slow``: (pair, or -1 - item for a label; start; stop)."""
    items = pairs = slows = 0
    start = 0
    length = len(data)
    while start < length:
        end = start
        while end < length and data[end] != 10:
            end += 1
        at, first = start, pairs
        tokens = 0
        broken = False
        while at < end:
            while at < end and (data[at] == 32 or data[at] == 9 or data[at] == 13):
                at += 1
            if at == end or data[at] == 35:
                break
            stop, colon = at, -1
            while stop < end and data[stop] != 32 and data[stop] != 9 and data[stop] != 13:
                if data[stop] == 58 and colon < 0:
                    colon = stop
                stop += 1
            if tokens == 0:
                kind, label = _number(data, at, stop)
                labels[items] = label
                if kind == 2:
                    slow[slows, 0] = -1 - items
                    slow[slows, 1] = at
                    slow[slows, 2] = stop
                    slows += 1
                broken |= kind == 0
            else:
                number = np.int64(0)
                for place in range(at, colon):
                    c = data[place]
                    if 48 <= c <= 57 and number <= _MOST_INDEX:
                        number = number * 10 + (c - 48)
                    else:
                        broken = True
                if colon <= at or number > _MOST_INDEX:
                    broken = True
                else:
                    kind, x = _number(data, colon + 1, stop)
                    index[pairs] = number
                    value[pairs] = x
                    if kind == 2:
                        slow[slows, 0] = pairs
                        slow[slows, 1] = colon + 1
                        slow[slows, 2] = stop
                        slows += 1
                    broken |= kind == 0
                    pairs += 1
            tokens += 1
            at = stop
        if tokens:
            if broken:
                labels[items] = np.nan
                pairs = first
                while slows and (slow[slows - 1, 0] >= first or slow[slows - 1, 0] == -1 - items):
                    slows -= 1
            starts[items] = start
            items += 1
            offsets[items] = pairs
        start = end + 1
    return items, slows


def parse_libsvm(data: Array) -> Parsed:
    """The items of a text of whole lines. Lines without anything but a comment are none."""
    lines = np.count_nonzero(data == 10) + 1
    most = np.count_nonzero(data == 58)
    labels, starts = np.empty(lines), np.empty(lines, np.int64)
    offsets = np.zeros(lines + 1, np.int64)
    index, value = np.empty(most, np.int32), np.empty(most)
    slow = np.empty((lines + most, 3), np.int64)
    items, slows = _parse(data, labels, offsets, index, value, starts, slow)
    for place, start, stop in slow[:slows].tolist():
        number = float(data[start:stop].tobytes())
        if place < 0:
            labels[-1 - place] = number
        else:
            value[place] = number
    pairs = offsets[items]
    return Parsed(labels[:items], offsets[: items + 1], index[:pairs], value[:pairs], starts[:items])
