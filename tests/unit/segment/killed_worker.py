"""Starts one worker process after the other, each applying batch after batch to a segment until it is killed.

Arguments: the segment's folder and the number of cells. Batch t adds t + 1 to the cells of `touched(t)`. Each
line on standard input forks a worker; the output is its process id, the batches it finished, and "dead".
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from afspark.resident import Segment
from tests.unit.segment.journalled import JournalledArray

PARTS = 8


def touched(batch: int, part: int, cells: int) -> npt.NDArray[np.int64]:
    generator = np.random.default_rng((batch, part))
    return generator.choice(cells, size=cells // 4, replace=False)


def run(place: Path, cells: int) -> None:
    segment = Segment.open(place)
    if segment is None:
        raise SystemExit("no segment")
    while True:
        with segment.lock(5.0):
            state = segment.attach("state", lambda columns: JournalledArray(columns, cells))
            if segment.marked:
                state.rollback()
                segment.clear_mark()
            batch = segment.version + 1
            state.begin()
            segment.begin(batch)
            if batch % 50 == 0:
                segment.columns.grow("padding", 512 * (batch + 1))
            for part in range(PARTS):
                state.add(touched(batch, part, cells), batch + 1)
            segment.keep(batch, "rows", b"rows of %d" % batch)
            segment.finish(batch, b"batch %d" % batch)
        say(str(batch))


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    for _ in sys.stdin:
        worker = os.fork()
        if worker == 0:
            try:
                run(Path(sys.argv[1]), int(sys.argv[2]))
            finally:
                os._exit(1)
        say(str(worker))
        os.waitpid(worker, 0)
        say("dead")


if __name__ == "__main__":
    main()
