"""What each merge of a batch has changed in a model."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from typing import IO

import numpy as np

from afspark.model.training import Cells

#: Bytes of changes that a server has in memory.
LOG_BYTES = 2**26

#: What arrays take besides their content.
_ENTRY_BYTES = 512
_INDEX, _VALUES = np.dtype(np.uint32), np.dtype(np.float64)


class ChangeLog:
    """Changes by number, of which the newest stay in memory. Older ones go to a file without a name, or, if it
    ``forgets``, are gone.
    """

    def __init__(self, *, forgets: bool, most_bytes: int = LOG_BYTES) -> None:
        self._forgets, self._most_bytes = forgets, most_bytes
        self._newest: deque[Cells] = deque()
        #: how many cells all changes up to each number have
        self._ends = [0]
        #: what it takes in memory
        self.nbytes = 0
        self._file: IO[bytes] | None = None
        #: by number: (where the changes are in the file, how many cells)
        self._places: list[tuple[int, int]] = []
        #: the number of the first changes in memory
        self.first = 0

    def append(self, cells: Cells) -> None:
        self._newest.append(cells)
        self._ends.append(self._ends[-1] + len(cells.index))
        self.nbytes += _ENTRY_BYTES + cells.nbytes
        while self.nbytes > self._most_bytes:
            oldest = self._newest.popleft()
            self.nbytes -= _ENTRY_BYTES + oldest.nbytes
            self.first += 1
            if not self._forgets:
                self._write(oldest)

    def cells(self, since: int, upto: int) -> int:
        """How many cells the changes of these numbers have, one that was changed twice counted twice."""
        return self._ends[upto] - self._ends[since]

    def between(self, since: int, upto: int) -> list[Cells]:
        """The changes of these numbers, none of them forgotten."""
        return [
            *(self._read(number) for number in range(since, min(upto, self.first))),
            *(self._newest[number - self.first] for number in range(max(since, self.first), upto)),
        ]

    def _write(self, cells: Cells) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="afspark-model-")  # noqa: SIM115 - as long as the log
        self._places.append((self._file.tell(), len(cells.index)))
        self._file.write(cells.index.tobytes())
        self._file.write(cells.values.tobytes())
        self._file.flush()

    def _read(self, number: int) -> Cells:
        assert self._file is not None
        place, count = self._places[number]
        width = count * _INDEX.itemsize
        index = os.pread(self._file.fileno(), width, place)
        values = os.pread(self._file.fileno(), count * _VALUES.itemsize, place + width)
        return Cells(np.frombuffer(index, _INDEX), np.frombuffer(values, _VALUES))
