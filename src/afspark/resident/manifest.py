"""Which files a folder of a segment has to have, so that one that somebody has removed is missed.

Nobody removes a folder at once: for a while some of its files are gone and others are there. What is left must not pass
for the whole, and what is gone must not be made anew and empty. So the header of a segment has the sum of the weights
of all files, for each of its folders, and the weight of the one that is being made or removed. A process that is killed
in between leaves a folder with that file or without it, and both are whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from afspark.errors import SegmentError
from afspark.resident.open_folder import OpenFolder

#: sums of weights are kept below it
_MODULUS = 2**62


class ManifestSlots(NamedTuple):
    """Where in the header a manifest is."""

    #: the sum of the weights of all files
    total: int
    #: the weight of the file that is being made or removed, 0 if none is
    changing: int
    #: how many changes there were
    changes: int

    def read(self, slots: npt.NDArray[np.int64]) -> tuple[int, ...]:
        """What the header says; the same twice if nothing was changed in between."""
        return tuple(int(slots[place]) for place in self)


@lru_cache(maxsize=1 << 16)
def weight(name: str) -> int:
    """What a file of that name adds to the sum; never 0."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % (_MODULUS - 1) + 1


def total_of(names: Iterable[str]) -> int:
    """The sum of the weights of files."""
    return sum(map(weight, names)) % _MODULUS


def is_whole(found: int, total: int, changing: int) -> bool:
    """Whether files of weight ``found`` are all there are.

    >>> made = weight("made")
    >>> [is_whole(found, total_of(["old"]), made) for found in (total_of(["old"]), total_of(["old", "made"]), made)]
    [True, True, False]
    """
    return (found - total) % _MODULUS in {0, changing, -changing % _MODULUS}


class Manifest:
    """The manifest of one folder; ``lists`` says of which files. Whoever changes them holds the segment's lock."""

    def __init__(
        self, slots: npt.NDArray[np.int64], place: ManifestSlots, folder: OpenFolder, lists: Callable[[str], bool]
    ) -> None:
        self._slots, self._place, self._folder, self._lists = slots, place, folder, lists

    def names(self) -> list[str]:
        """The files of the folder that are listed. `SegmentError` if somebody has removed one."""
        names = [name for name in self._folder.names() if self._lists(name)]
        found = total_of(names)
        total, changing, _ = self._place.read(self._slots)
        if not is_whole(found, total, changing):
            raise SegmentError(f"Files of {self._folder.path} are gone.", path=str(self._folder.path))
        if changing:
            # In this order: a process killed in between leaves what is right as well.
            self._slots[self._place.total] = found
            self._slots[self._place.changing] = 0
        return names

    def making(self, name: str, *, there: bool | None = None) -> AbstractContextManager[None]:
        """Around the making of a file; ``there``: whether it was there before, if the caller knows."""
        return self._changing(name, there=there, will_be=True)

    def removing(self, name: str, *, there: bool | None = None) -> AbstractContextManager[None]:
        """Around the removing of a file; ``there``: whether it was there before, if the caller knows."""
        return self._changing(name, there=there, will_be=False)

    @contextmanager
    def _changing(self, name: str, *, there: bool | None, will_be: bool) -> Iterator[None]:
        if not self._lists(name):
            yield
            return
        if self._slots[self._place.changing]:
            # Of a process that was killed: from now on it has to be known whether that file is there.
            self.names()
        if there is None:
            there = self._folder.has(name)
        self._slots[self._place.changing] = weight(name)
        try:
            yield
        except BaseException:
            will_be = self._folder.has(name)
            raise
        finally:
            # What was made has to be there from now on, also if somebody has removed it by now.
            difference = weight(name) * (will_be - there)
            self._slots[self._place.total] = (int(self._slots[self._place.total]) + difference) % _MODULUS
            self._slots[self._place.changing] = 0
            self._slots[self._place.changes] += 1
