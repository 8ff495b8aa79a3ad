"""``python -m tests.soak.fuzz``: damaged input for a receiver for as long as you like, from a seed.

Ends with 1 if the receiver's process dies, an honest producer or worker notices anything, garbage reaches a lane, an
error is answered that nobody foresaw, or memory goes on growing after the first third.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

from afspark.push.consumer.lane_client import LaneClient
from tests.unit.push.child_receiver import WORKERS, ChildReceiver
from tests.unit.push.fuzzing import HIGHEST, LANES, SCHEMA, Honest, campaign

BUFFER = 16 << 20
#: what the allocators of a process may keep on top of what it uses
GROWTH = 100 << 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=4, help="attackers at once (default 4)")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as store,
        ChildReceiver(
            SCHEMA, LANES, store=Path(store), allow_items=200, buffer_bytes=BUFFER, message_bytes=1 << 20
        ) as receiver,
    ):
        return _run(receiver, options.seconds, options.seed, options.threads)


def _run(receiver: ChildReceiver, seconds: float, seed: int, threads: int) -> int:
    honest = Honest(receiver.address)
    memory: list[tuple[float, int]] = []
    began, over = time.monotonic(), threading.Event()

    def watch() -> None:
        told = 0.0
        while receiver.alive and not over.wait(0.25):
            spent = time.monotonic() - began
            memory.append((spent, receiver.resident()))
            if spent - told > 10:
                told = spent
                _say(
                    f"{spent:.0f} s: {memory[-1][1] >> 20} MB, {honest.rounds} honest rounds, {len(honest.wrong)} wrong"
                )

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        outcome = campaign(
            receiver.port,
            seed,
            threads=threads,
            until=lambda _, spent: spent > seconds or not receiver.alive or bool(honest.wrong),
        )
    finally:
        honest.stop()
        over.set()
        watching.join()
    faults = [*honest.wrong, *outcome.unforeseen]
    counts = outcome.counts
    if receiver.alive:
        with LaneClient(receiver.address, 0, incarnation=HIGHEST, fence=HIGHEST, access=WORKERS) as worker:
            refused = worker.stats()["refused"]
        _say(f"refused: {refused}")
        faults += [f"{refused['internal']} errors nobody foresaw"] if "internal" in refused else []
    else:
        faults.append(f"the receiver's process ended with {receiver.returncode}: {receiver.errors()}")
    early = max((size for spent, size in memory if spent < seconds / 3), default=0)
    late = max((size for spent, size in memory if spent >= seconds / 3), default=0)
    if late - early > GROWTH:
        faults.append(f"memory grew from {early >> 20} to {late >> 20} MB")
    _say(
        f"seed {seed}: {counts.total()} attacks {dict(counts)}, {honest.rounds} honest rounds, {honest.mutants} mutants"
    )
    _say(f"memory at most {early >> 20} MB in the first third, {late >> 20} MB after it")
    for fault in faults:
        _say(f"FAULT {fault}")
    return 1 if faults else 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
