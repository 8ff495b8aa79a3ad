"""Runs seeds one after the other: ``python -m tests.soak --seeds 0-99``.

A run that broke a promise now and then is looked into with ``--seeds 2 --repeat 100 --keep FOLDER``: what the processes
of a failed run have said, with the positions of every step, the checkpoint, and what is left of the segments.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from afspark.task.warmup import warm_up
from tests.soak.pushed import Plan, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seeds", default="0-99", help="one seed, or a range such as 0-99 (default)")
    parser.add_argument("--repeat", type=int, default=1, help="how often each seed is run")
    parser.add_argument("--keep", type=Path, help="where the folder of a run that failed is copied to")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    failed = []
    warm_up()
    for seed in (seed for seed in range(int(first), int(last or first) + 1) for _ in range(arguments.repeat)):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"soak-{seed}-") as folder:
            plan = Plan.of(seed)
            try:
                outcome = run(seed, Path(folder))
                outcome.check()
            except AssertionError as error:
                failed.append(seed)
                kept = "" if arguments.keep is None else f"\n  kept in {_keep(Path(folder), arguments.keep)}"
                print(
                    f"seed {seed} FAILED: {error}\n  {plan}{kept}\n  replay: python -m tests.soak --seeds {seed}",
                    flush=True,
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


def _keep(folder: Path, where: Path) -> Path:
    """Where the folder of a failed run was copied to."""
    return Path(shutil.copytree(folder, where / folder.name))


if __name__ == "__main__":
    sys.exit(main())
