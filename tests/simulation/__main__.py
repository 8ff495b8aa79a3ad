"""``python -m tests.simulation``: replay one seed, or run many."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from tests.simulation import pushed
from tests.simulation.adaptive import AdaptiveSimulation
from tests.simulation.feedback import Feedback
from tests.simulation.graphs import Graphs
from tests.simulation.pushed.running import Only
from tests.simulation.replicated import ReplicatedSimulation
from tests.simulation.replicated_graphs import ReplicatedGraphs
from tests.simulation.restarted import RedividedSimulation, RestartedSimulation
from tests.simulation.simulation import Broken, Outcome, simulate

Run = Callable[[int], Outcome]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this schedule alone")
    parser.add_argument("--schedules", type=int, default=10_000, help="how many to run (default 10000)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--feedback", action="store_true", help="two operators, one of which feeds back to the other")
    kind.add_argument("--pushed", action="store_true", help="producers, receivers and an operator on pushed items")
    kind.add_argument("--graphs", action="store_true", help="random graphs of operators, each with its own policy")
    kind.add_argument("--replicas", action="store_true", help="workers with secondaries on other hosts")
    kind.add_argument("--replicated-graphs", action="store_true", help="graphs whose workers have secondaries")
    kind.add_argument("--adaptive", action="store_true", help="workers whose schemes the controller chooses")
    kind.add_argument("--restarted", action="store_true", help="drivers come back with other tolerances")
    kind.add_argument("--redivided", action="store_true", help="the same over a DataFrame that Spark divides anew")
    parser.add_argument("--only", type=_names, help="with --pushed: events that come to pass, separated by commas")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the steps")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    seeds = range(options.start, options.start + options.schedules) if options.seed is None else [options.seed]
    run: Run = partial(simulate, make=Feedback) if options.feedback else simulate
    if options.graphs:
        run = partial(simulate, make=Graphs)
    if options.replicas:
        run = partial(simulate, make=ReplicatedSimulation)
    if options.replicated_graphs:
        run = partial(simulate, make=ReplicatedGraphs)
    if options.adaptive:
        run = partial(simulate, make=AdaptiveSimulation)
    if options.restarted:
        run = partial(simulate, make=RestartedSimulation)
    if options.redivided:
        run = partial(simulate, make=RedividedSimulation)
    if options.pushed:
        run = partial(pushed.simulate, only=options.only)
    return _run(seeds, run, verbose=options.verbose, keep_going=options.keep_going)


def _names(text: str) -> Only:
    return frozenset(text.split(","))


def _run(seeds: Iterable[int], run: Run, *, verbose: bool, keep_going: bool) -> int:
    started, broken, batches, losses, told, number = time.perf_counter(), 0, 0, 0, 0.0, 0
    seen: Counter[str] = Counter()
    gc.disable()
    for number, seed in enumerate(seeds, 1):
        if number % 100 == 0:
            gc.collect()
        try:
            outcome = run(seed)
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
        seen += outcome.seen
        spent = time.perf_counter() - started
        if spent - told > 2:
            told = spent
            print(_progress(number, seed, batches, losses, broken, spent), flush=True)  # noqa: T201
    print(f"{number} schedules, {batches} batches, {losses} losses, {broken} broken")  # noqa: T201
    for what, times in sorted(seen.items()):
        print(f"  {what}: {times}")  # noqa: T201
    return 1 if broken else 0


def _progress(number: int, seed: int, batches: int, losses: int, broken: int, spent: float) -> str:
    speed = f"{number / spent:.0f}/s, {1000 * spent / max(1, batches):.2f} ms a batch"
    return f"seed {seed}: {number} schedules, {batches} batches, {losses} losses, {broken} broken; {speed}"


if __name__ == "__main__":
    sys.exit(main())
