"""A process killed at any moment loses nothing and leaves nothing half done."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from afspark.protocol.lifecycle import Identity
from afspark.resident import Segment
from tests.unit.segment.journalled import INT, JournalledArray
from tests.unit.segment.killed_worker import PARTS, touched

CELLS = 2000
ROUNDS = 20
REPOSITORY = Path(__file__).parents[3]


class Nursery:
    """Starts workers on a segment and kills them."""

    def __init__(self, place: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.segment.killed_worker", str(place), str(CELLS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"},
            cwd=REPOSITORY,
        )

    def kill_one(self, delay: float) -> int:
        """Runs a worker and kills it ``delay`` seconds after its first batch; returns its last batch."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("one more\n")
        self._process.stdin.flush()
        worker = int(self._process.stdout.readline())
        announced = [int(self._process.stdout.readline())]
        time.sleep(delay)
        os.kill(worker, signal.SIGKILL)
        while (word := self._process.stdout.readline().strip()) != "dead":
            announced.append(int(word))
        return announced[-1]

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def nursery(place: Path, identity: Identity) -> Iterator[Nursery]:
    segment = Segment.create(place, identity, 0)
    segment.columns.open("padding", INT, 1)
    segment.close()
    nursery = Nursery(place)
    yield nursery
    nursery.close()


def test_killed_worker_leaves_whole_batches(nursery: Nursery, place: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    expected: npt.NDArray[np.int64] = np.zeros(CELLS, dtype=np.int64)
    checked = -1
    interrupted = 0
    for _ in range(ROUNDS):
        announced = nursery.kill_one(chance.uniform(0.0, 0.05))
        found = Segment.open(place)
        assert found is not None
        with found.lock(0.0):
            state = JournalledArray(found.columns, CELLS)
            interrupted += found.marked
            if found.marked:
                state.rollback()
                found.clear_mark()
            assert found.version >= announced > checked
            assert found.report(found.version) == b"batch %d" % found.version
            for batch in range(max(found.version - 1, 0), found.version + 1):
                assert found.kept(batch, "rows") == b"rows of %d" % batch
            for batch in range(checked + 1, found.version + 1):
                for part in range(PARTS):
                    expected[touched(batch, part, CELLS)] += batch + 1
            np.testing.assert_array_equal(state.values, expected, err_msg=f"seed {seed}")
            checked = found.version
        found.close()
    assert interrupted > 0, f"no kill interrupted a batch: seed {seed}"
