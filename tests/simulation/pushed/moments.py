"""Chance as a function of the moment: what happens at one moment does not depend on what happened at others.

So an event can be left out of a schedule, and the rest stays what it was, as far as it still comes to pass.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter

_MASK = (1 << 64) - 1


class Dice(random.Random):
    """Random numbers that follow from the moment they were cast `at`."""

    _state = 0

    def at(self, moment: int) -> Dice:
        self._state = moment
        return self

    def random(self) -> float:
        return self.getrandbits(53) / (1 << 53)

    def getrandbits(self, bits: int, /) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return (mixed ^ (mixed >> 31)) >> (64 - bits)

    def seed(self, *_: object) -> None: ...


class Moments:
    """Numbers the moments of a schedule: those with the same name in the same batch in turn."""

    def __init__(self, seed: int) -> None:
        self._seed = seed & 0xFFFFFFFF
        self._batch = 0
        self._seen: Counter[str] = Counter()

    def new_batch(self) -> None:
        self._batch += 1
        self._seen.clear()

    def next(self, where: str) -> int:
        """The number of this moment: the seed, and 32 bits which tell it from the others of the schedule."""
        self._seen[where] += 1
        text = f"{self._batch}|{where}|{self._seen[where]}"
        return (self._seed << 32) | zlib.crc32(text.encode())


def name_of(moment: int) -> str:
    """A moment as the command line takes it."""
    return f"{moment & 0xFFFFFFFF:08x}"
