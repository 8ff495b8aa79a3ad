"""``python -m tests.simulation``: replay one seed, or run many."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from tests.simulation.feedback import Feedback
from tests.simulation.simulation import Broken, Simulation, alone, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this schedule alone")
    parser.add_argument("--schedules", type=int, default=10_000, help="how many to run (default 10000)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--feedback", action="store_true", help="two operators, one of which feeds back to the other")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the steps")
    options = parser.parse_args()
    seeds = range(options.start, options.start + options.schedules) if options.seed is None else [options.seed]
    make = Feedback if options.feedback else alone
    return _run(seeds, make, verbose=options.verbose, keep_going=options.keep_going)


def _run(seeds: range | list[int], make: Callable[[int], Simulation], *, verbose: bool, keep_going: bool) -> int:
    started, broken, batches, losses, told = time.perf_counter(), 0, 0, 0, 0.0
    for number, seed in enumerate(seeds, 1):
        try:
            outcome = simulate(seed, make)
        except Broken as error:
            broken += 1
            if verbose:
                print("\n".join(error.trace))  # noqa: T201
            print(error, flush=True)  # noqa: T201
            if not keep_going:
                return 1
            continue
        if verbose:
            print("\n".join(outcome.trace))  # noqa: T201
        batches += outcome.batches
        losses += outcome.losses
        spent = time.perf_counter() - started
        if spent - told > 2 or number == len(seeds):
            told = spent
            speed = f"{number / spent:.0f}/s, {1000 * spent / batches:.2f} ms a batch"
            print(f"{number} schedules, {batches} batches, {losses} losses, {broken} broken; {speed}", flush=True)  # noqa: T201
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
