"""Runs seeds one after the other: ``python -m tests.soak --seeds 0-99``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from afspark.task.warmup import warm_up
from tests.soak.pushed import Plan, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seeds", default="0-99", help="one seed, or a range such as 0-99 (default)")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    failed = []
    warm_up()
    for seed in range(int(first), int(last or first) + 1):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"soak-{seed}-") as folder:
            plan = Plan.of(seed)
            try:
                outcome = run(seed, Path(folder))
                outcome.check()
            except AssertionError as error:
                failed.append(seed)
                print(
                    f"seed {seed} FAILED in {folder}: {error}\n  {plan}\n  replay: python -m tests.soak --seeds {seed}"
                )
                continue
        lost = sum(lost for number, lost in outcome.missing.items() if number not in outcome.killed)
        kills = " ".join(f"{who}@{at:.1f}" for at, who in plan.kills)
        print(
            f"seed {seed}: {sum(outcome.sent.values())} items, {plan.tolerance.to_json()}, {kills}: "
            f"{lost} lost, {time.monotonic() - began:.1f} s",
            flush=True,
        )
    print(f"{len(failed)} failed: {failed}" if failed else "all kept their promises")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
