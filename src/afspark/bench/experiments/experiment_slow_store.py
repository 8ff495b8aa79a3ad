"""What approximate fault tolerance costs on a slow store, where it pays for every wait."""

from __future__ import annotations

from functools import partial
from typing import Any

import afspark as af
from afspark.bench.interleave import AGAIN, NONE, interleave
from afspark.bench.markdown import spread, table
from afspark.bench.rig import STORES, Rig
from afspark.bench.streams import ours
from afspark.bench.workloads import workloads

TITLE = "Approximate on a slow store"
STORE = "100 MB/s, 20 ms"
APPROXIMATE = "approximate"


def measure(rig: Rig) -> dict[str, Any]:
    """The five algorithms with and without backups; the part of ``schemes`` that is quickly measured."""
    found: dict[str, Any] = {}
    for algorithm, load in workloads(rig).items():
        run = partial(ours, batch_bytes=load.batch_bytes, results=load.results)
        none = partial(run, partial(load.start, af.Nothing()))
        contenders = {
            NONE: none,
            AGAIN: none,
            APPROXIMATE: partial(run, partial(load.start, load.approximate), store=STORES[STORE]),
        }
        contest = interleave(contenders, rounds=rig.rounds)
        found[algorithm] = {
            "figures": contest.to_json(),
            "ratio": contest.ratio_spread(APPROXIMATE, NONE, "inputs_per_second"),
            "usual": contest.ratio_spread(NONE, APPROXIMATE, "usual_batch"),
            "again": contest.ratio_spread(AGAIN, NONE, "inputs_per_second"),
        }
    return found


def page(found: dict[str, Any]) -> str:
    text = (
        f"A store of {STORE}; input that can be read again, so that no batch has to wait for the store. Throughput is "
        "that of all batches and the results at the end. The usual batch is the median one of a run: a pause of the "
        "machine in one of its batches does not show there, nor would one of ours. None runs twice in each round: "
        "what its second run does over the first is the scatter of the machine, and no other ratio is known better. "
        "Ratios are medians over rounds, in brackets the least and the most.\n\n"
    )
    head = [
        "algorithm",
        "throughput, approximate / none",
        "none again / none",
        "usual batch, none / approximate",
        NONE,
        APPROXIMATE,
        "written",
    ]
    rows = []
    for algorithm, part in found.items():
        figures = part["figures"]
        rates = [f"{figures[name]['mb_per_second']['median']:.0f} MB/s" for name in (NONE, APPROXIMATE)]
        written = f"{figures[APPROXIMATE]['backup_bytes']['median'] / 1e6:,.1f} MB"
        # Figures of earlier versions have no second run of none.
        ratios = (spread(part[name], "{:.3f}") if name in part else "–" for name in ("ratio", "again", "usual"))
        rows.append([algorithm, *ratios, *rates, written])
    return text + table(head, rows)
