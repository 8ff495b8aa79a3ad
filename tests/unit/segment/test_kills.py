"""A process killed at any moment loses nothing and leaves nothing half done."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from afspark.runtime.lifecycle import Identity
from afspark.runtime.segment import Segment
from tests.unit.segment.journalled import INT, JournalledArray
from tests.unit.segment.killed_worker import PARTS, touched

CELLS = 2000
ROUNDS = 20
REPOSITORY = Path(__file__).parents[3]


def kill_after_a_while(place: Path, delay: float) -> int:
    """Runs a worker, kills it ``delay`` seconds after its first batch; returns the last batch it announced."""
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"}
    command = [sys.executable, "-m", "tests.unit.segment.killed_worker", str(place), str(CELLS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=REPOSITORY) as worker:
        assert worker.stdout is not None
        first = worker.stdout.readline()
        assert first, "the worker did not start"
        time.sleep(delay)
        worker.send_signal(signal.SIGKILL)
        announced = [first, *worker.stdout.readlines()]
    return int([line for line in announced if line.endswith(b"\n")][-1])


def test_killed_worker_leaves_whole_batches(place: Path, identity: Identity) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    segment = Segment.create(place, identity, 0)
    segment.columns.open("padding", INT, 1)
    segment.close()
    expected: npt.NDArray[np.int64] = np.zeros(CELLS, dtype=np.int64)
    checked = -1
    interrupted = 0
    for _ in range(ROUNDS):
        announced = kill_after_a_while(place, chance.uniform(0.0, 0.05))
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
            assert found.outputs(found.version) == b"rows of %d" % found.version
            for batch in range(checked + 1, found.version + 1):
                for part in range(PARTS):
                    expected[touched(batch, part, CELLS)] += batch + 1
            np.testing.assert_array_equal(state.values, expected, err_msg=f"seed {seed}")
            checked = found.version
        found.close()
    assert interrupted > 0, f"no kill struck a batch: seed {seed}"
