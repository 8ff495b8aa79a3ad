"""What approximate fault tolerance costs with a checkpoint on S3, and how often the store is asked."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

import afspark as af
from afspark.bench.interleave import AGAIN, NONE, interleave
from afspark.bench.markdown import spread, table
from afspark.bench.object_server import object_server
from afspark.bench.rig import Rig
from afspark.bench.streams import ours
from afspark.bench.workloads import workloads
from afspark.store.request_counts import KINDS

TITLE = "Checkpoints on S3"
APPROXIMATE = "approximate"
MINIBATCH = "minibatch"


def measure(rig: Rig) -> dict[str, Any]:
    """The five algorithms without backups, approximate, and with every change backed up, all on one server."""
    found: dict[str, Any] = {}
    number = count()
    with object_server() as server:
        for algorithm, load in workloads(rig).items():
            run = partial(
                ours,
                batch_bytes=load.batch_bytes,
                results=load.results,
                place=lambda: server.address(f"bench/{next(number)}"),
            )
            none = partial(run, partial(load.start, af.Nothing()))
            contenders = {
                NONE: none,
                AGAIN: none,
                APPROXIMATE: partial(run, partial(load.start, load.approximate)),
                MINIBATCH: partial(run, partial(load.start, af.MiniBatch())),
            }
            contest = interleave(contenders, rounds=rig.rounds)
            found[algorithm] = {
                "figures": contest.to_json(),
                "ratio": contest.ratio_spread(APPROXIMATE, NONE, "inputs_per_second"),
                "minibatch": contest.ratio_spread(MINIBATCH, NONE, "inputs_per_second"),
                "usual": contest.ratio_spread(NONE, APPROXIMATE, "usual_batch"),
                "again": contest.ratio_spread(AGAIN, NONE, "inputs_per_second"),
            }
    return found


def page(found: dict[str, Any]) -> str:
    text = (
        "A real S3 server (SeaweedFS) on the same machine, whose work the two cores do as well; the checkpoint is an "
        "address of it, with what pip installs: Spark has no connector. Throughput is that of all batches and the "
        "results at the end. None runs twice in each round: what its second run does over the first is the scatter of "
        "the machine, and no other ratio is known better. Ratios are medians over rounds, in brackets the least and "
        "the most. Requests are those of the driver and the workers for a batch.\n\n"
    )
    head = [
        "algorithm",
        "throughput, approximate / none",
        "none again / none",
        "usual batch, none / approximate",
        "minibatch / none",
        NONE,
        APPROXIMATE,
        "requests a batch, none",
        "approximate",
        "minibatch",
    ]
    rows = []
    for algorithm, part in found.items():
        figures = part["figures"]
        rates = [f"{figures[name]['mb_per_second']['median']:.0f} MB/s" for name in (NONE, APPROXIMATE)]
        asked = [_asked(figures[name]) for name in (NONE, APPROXIMATE, MINIBATCH)]
        ratios = (spread(part[name], "{:.3f}") for name in ("ratio", "again", "usual", "minibatch"))
        rows.append([algorithm, *ratios, *rates, *asked])
    return text + table(head, rows)


def _asked(figures: dict[str, Any]) -> str:
    return ", ".join(f"{figures[kind]['median']:.1f} {kind}" for kind in KINDS)
