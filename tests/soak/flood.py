"""``python -m tests.soak.flood``: producers ten times faster than the worker, and the memory of the receiver's process.

First a worker without limits, for the speed of the producers. Then three floods: a slow worker, one that stops for a
third of the time, and a slow worker with a slower store behind the item log. Ends with 1 if memory exceeds what is
stated, anything is missing or comes twice, nobody had to wait, or producers are less than ten times faster.
"""

from __future__ import annotations

import argparse
import math
import sys

from tests.unit.push.flooding import Flood, run

#: of the worker, in bytes a second; producers offer at least ten times as much
SLOW = 10e6


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.flood", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each flood (default 60)")
    seconds = parser.parse_args().seconds
    floods = [
        Flood(name="slow worker", seconds=seconds, reads=SLOW),
        Flood(name="worker that stops", seconds=seconds, reads=SLOW, pause=(1 / 3, 2 / 3)),
        Flood(name="slow worker and slower store", seconds=seconds, reads=SLOW, throttle=(0.02, SLOW / 2)),
    ]
    free = run(Flood(name="fast worker", seconds=min(5.0, seconds), reads=math.inf))
    _say(f"fast worker: {free}")
    faults = 0
    for flood in floods:
        outcome = run(flood)
        told = list(outcome.wrong)
        if outcome.peak > outcome.allowed:
            told.append("more memory than allowed")
        if not outcome.blocked:
            told.append("nobody had to wait")
        if free.taken < 10 * outcome.taken:
            told.append("producers were not ten times faster")
        faults += len(told)
        _say(f"{flood.name}: {outcome}")
        for fault in told[:10]:
            _say(f"FAULT {fault}")
    return 1 if faults else 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
