"""Experiment 1 and table 5 for input that can be read again: what each scheme costs when nothing fails."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import afspark as af
from afspark.bench.drawing import bars
from afspark.bench.interleave import interleave
from afspark.bench.markdown import spread, table
from afspark.bench.papers import ratio
from afspark.bench.rig import LOCAL, STORES, Rig
from afspark.bench.streams import ours
from afspark.bench.workloads import workloads

TITLE = "What fault tolerance costs when nothing fails: input that can be read again (experiment 1, table 5)"
TIGHTER = "approximate, a tenth of Θ"
SCHEMES = ("none", "approximate", "minibatch")


def measure(rig: Rig) -> dict[str, Any]:
    """Every algorithm under every scheme on every store; without backups the store does not matter."""
    found: dict[str, Any] = {}
    for algorithm, load in workloads(rig).items():
        run = partial(ours, batch_bytes=load.batch_bytes, results=load.results)
        contenders = {"none": partial(run, partial(load.start, af.Nothing()))}
        for store, options in STORES.items():
            for scheme, tolerance in (("approximate", load.approximate), ("minibatch", af.MiniBatch())):
                contenders[f"{scheme}, {store}"] = partial(run, partial(load.start, tolerance), store=options)
        if load.tighter is not None:
            contenders[TIGHTER] = partial(run, partial(load.start, load.tighter))
        contest = interleave(contenders, rounds=rig.rounds)
        figure = "inputs_per_second"
        found[algorithm] = {
            "figures": contest.to_json(),
            "ratios": {
                store: {
                    "approximate/none": contest.ratio_spread(f"approximate, {store}", "none", figure),
                    "approximate/minibatch": contest.ratio_spread(
                        f"approximate, {store}", f"minibatch, {store}", figure
                    ),
                }
                for store in STORES
            },
            "tighter/none": contest.ratio_spread(TIGHTER, "none", figure) if load.tighter is not None else None,
        }
    return found


def page(found: dict[str, Any]) -> str:
    text = (
        "Files and generators can be read again, so no scheme backs up items here, and exact mini-batches and upstream "
        "backup are the same thing: every batch backs up all that it has changed. Θ is the papers' "
        "(10⁴ words, 10⁵ bytes, 10⁵ samples, 10). Ratios are medians over rounds, in brackets the least and the most. "
        "The papers' exact schemes also wrote every item to a backup server: for that see pushed input below.\n\n"
    )
    head = ["algorithm", "store", "approximate / none", "approximate / exact", "written, approximate", "written, exact"]
    rows = []
    for algorithm, part in found.items():
        for store, ratios in part["ratios"].items():
            figures = part["figures"]
            written = [figures[f"{scheme}, {store}"]["backup_bytes"]["median"] for scheme in SCHEMES[1:]]
            rows.append(
                [
                    algorithm if store == LOCAL else "",
                    store,
                    spread(ratios["approximate/none"], "{:.2f}"),
                    spread(ratios["approximate/minibatch"], "{:.2f}"),
                    *(f"{size / 1e6:,.1f} MB" for size in written),
                ]
            )
    tighter = {name: part["tighter/none"] for name, part in found.items() if part["tighter/none"] is not None}
    text += table(head, rows) + "With a tenth of Θ, the papers' second setting, on the local disk: "
    text += "; ".join(f"{name} {spread(value, '{:.2f}')}" for name, value in tighter.items()) + " of none.\n\n"
    head = ["algorithm", "none", "approximate", "exact", "papers: approximate / none", "papers: approximate / exact"]
    return text + "On the local disk:\n\n" + table(head, [_absolute(name, part) for name, part in found.items()])


def _absolute(algorithm: str, part: dict[str, Any]) -> list[str]:
    figures = part["figures"]
    names = ("none", f"approximate, {LOCAL}", f"minibatch, {LOCAL}")
    rates = [
        f"{figures[name]['mb_per_second']['median']:.0f} MB/s, {figures[name]['items_per_second']['median'] / 1e6:.1f} M/s"
        for name in names
    ]
    papers = [f"{ratio(algorithm, 'approximate', other):.2f}" for other in ("none", "minibatch")]
    return [algorithm, *rates, *papers]


def draw(found: dict[str, Any], path: Path) -> str:
    groups = {
        algorithm: {
            "none": 1.0,
            **{
                f"{scheme}, {store}": part["figures"][f"{scheme}, {store}"]["inputs_per_second"]["median"]
                / part["figures"]["none"]["inputs_per_second"]["median"]
                for store in (LOCAL, "100 MB/s, 20 ms")
                for scheme in ("approximate", "minibatch")
            },
        }
        for algorithm, part in found.items()
    }
    bars(path, groups, title="Throughput without failures", subtitle="input that can be read again; none = 1")
    return "Median throughput of each scheme over that of none, on the local disk and on a store of 100 MB/s and 20 ms"
