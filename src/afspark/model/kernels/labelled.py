"""Synthetic items with labels, for learners: every block is a pure function of its key.

The labels follow a linear model that is drawn from ``nature``, so that there is something to learn, and a share of
them is noise, so that nobody can be right about all of them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from afspark.model.kernels.hashing import GOLDEN, mix

CARDINALITIES = (3, 4, 8, 30, 200, 2_000, 20_000, 100_000, 300_000, 1_000_000, 1_000_000)
"""Different values of the eleven features of a click: from a position on the page to a user."""
CLICK_BIAS = -0.7
"""With it a third to a half of all clicks have label 1, depending on the hidden model."""
HIGGS_SHARE = 0.53
"""Signals among the collisions, as in the HIGGS data set."""
HIGGS_SHIFT = 0.3
"""The most that the mean of a feature differs between signals and the rest, in standard deviations."""

_S11, _S16, _S32, _S48 = np.uint64(11), np.uint64(16), np.uint64(32), np.uint64(48)
_LOW16, _LOW32 = np.uint64(0xFFFF), np.uint64(0xFFFFFFFF)
_UNIT32, _UNIT53 = 2.0**-32, 2.0**-53
_SALT = np.uint64(0x5851F42D4C957F2D)


@njit(cache=True, nogil=True, inline="always")
def _unit(random):  # type: ignore[no-untyped-def]
    return np.float64(random >> _S11) * _UNIT53


@njit(cache=True, nogil=True, inline="always")
def hidden_weight(nature, feature, value):  # type: ignore[no-untyped-def]
    """What a value of a feature adds to the log odds of a label: even between -1 and 1; the commonest, 0, nothing."""
    if value == 0:
        return 0.0
    return 2.0 * _unit(mix(nature + np.uint64(feature + 1) * _SALT + np.uint64(value) * GOLDEN)) - 1.0


@njit(cache=True, nogil=True)
def fill_clicks(key, nature, cardinalities, noise, labels, values):  # type: ignore[no-untyped-def]
    """Categorical features with skew: rank r of N has about the chance r ** -(1 - 1/a) with a = 2, 4 or 8, more for
    features of many values. The label is 1 where the hidden weights and ``CLICK_BIAS`` add up to more than 0; a share
    ``noise`` of all labels is turned round.
    """
    rows, width = values.shape
    counter = key
    for i in range(rows):
        z = CLICK_BIAS
        counter += GOLDEN
        random = mix(counter)
        flip = np.float64(random >> _S32) * _UNIT32 < noise
        half = random & _LOW32
        for k in range(width):
            if k % 2 == 1:
                counter += GOLDEN
                random = mix(counter)
                half = random >> _S32
            elif k > 0:
                half = random & _LOW32
            u = np.float64(half) * _UNIT32
            u *= u
            if cardinalities[k] > 8:
                u *= u
            if cardinalities[k] > 200:
                u *= u
            value = np.int32(u * cardinalities[k])
            values[i, k] = value
            z += hidden_weight(nature, k, value)
        labels[i] = (z > 0.0) != flip


@njit(cache=True, nogil=True)
def fill_higgs(key, nature, labels, values):  # type: ignore[no-untyped-def]
    """Numbers that are nearly normal with deviation 1; the label shifts their means, each by its hidden weight."""
    rows, width = values.shape
    shifts = np.empty(width)
    for k in range(width):
        shifts[k] = HIGGS_SHIFT * hidden_weight(nature, k, 1)
    scale = np.sqrt(3.0) / 65536.0
    counter = key
    for i in range(rows):
        counter += GOLDEN
        signal = _unit(mix(counter)) < HIGGS_SHARE
        labels[i] = signal
        sign = 0.5 if signal else -0.5
        for k in range(width):
            counter += GOLDEN
            random = mix(counter)
            total = (random & _LOW16) + ((random >> _S16) & _LOW16) + ((random >> _S32) & _LOW16) + (random >> _S48)
            values[i, k] = (np.float64(total) - 131070.0) * scale + sign * shifts[k]
