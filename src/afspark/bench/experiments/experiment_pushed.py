"""Experiment 1 and table 5 for pushed input, which nobody can read again: items are backed up as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from afspark.bench.drawing import bars
from afspark.bench.markdown import spread, table
from afspark.bench.papers import UNITS, ratio
from afspark.bench.pushedalgorithms import ALGORITHMS, FIGURE, pushed_schemes
from afspark.bench.rig import PUSHED_STORES, Rig
from afspark.bench.workloads import GREP, HITTERS, JOIN, REGRESSION, WORDCOUNT

TITLE = "What fault tolerance costs when nothing fails: pushed input (experiment 1, table 5)"
NAMES = dict(zip(ALGORITHMS, (GREP, WORDCOUNT, HITTERS, JOIN, REGRESSION), strict=True))
SECONDS = 3.0
OURS = "approximate"
#: contenders of the papers
PAPERS = ("none", "minibatch", "upstream")


def measure(rig: Rig) -> dict[str, Any]:
    """Every algorithm under every scheme on every store."""
    found: dict[str, Any] = {}
    for algorithm, name in NAMES.items():
        for store in PUSHED_STORES:
            contest = pushed_schemes(rig.spark, algorithm, store, rig.rounds, SECONDS)
            found.setdefault(name, {})[store] = {
                "figures": contest.to_json(),
                "ratios": {
                    other: contest.ratio_spread(OURS, other, FIGURE) for other in contest.rounds if other != OURS
                },
            }
    return found


def page(found: dict[str, Any]) -> str:
    schemes = next(iter(next(iter(found.values())).values()))["figures"]
    text = (
        "One process pushes, two workers process, all on the same two cores. Items are lines, packets, visits or clicks, "
        "in messages of about 1.5 MB. `approximate` has the papers' Θ, and L as 4 s of stream: a message alone has "
        "more than the papers' L = 10³ items, so with that L (`approximate, L = 1000`) an item is logged or in the state "
        "before it is acknowledged. `minibatch` has every item in the log, with fsync, before a worker gets it, many of "
        "them under way at once: what the papers call upstream backup with item backups is the same run here. `upstream` "
        "keeps items at the producer until their effect is durable and writes none. The last store is as slow for two "
        "cores as the papers' was for their cluster: it takes about a tenth of what the workers could process.\n\n"
    )
    head = ["algorithm", "store", *(f"{OURS} / {other}" for other in schemes if other != OURS)]
    rows = [
        [name if place == 0 else "", store, *(spread(value, "{:.2f}") for value in part["ratios"].values())]
        for name, stores in found.items()
        for place, (store, part) in enumerate(stores.items())
    ]
    text += table(head, rows) + "Million items a second (MB a second):\n\n"
    rows = [
        [name if place == 0 else "", store, *(_rate(figures) for figures in part["figures"].values())]
        for name, stores in found.items()
        for place, (store, part) in enumerate(stores.items())
    ]
    text += table(["algorithm", "store", *schemes], rows) + "The papers' (tables 4 and 5):\n\n"
    rows = [[f"{name}, {UNITS[name]}", *(f"{ratio(name, OURS, theirs):.2f}" for theirs in PAPERS)] for name in found]
    return text + table(["algorithm", *(f"{OURS} / {theirs}" for theirs in PAPERS)], rows)


def _rate(figures: dict[str, Any]) -> str:
    return f"{figures[FIGURE]['median'] / 1e6:.2f} ({figures['mb_per_second']['median']:.0f})"


def draw(found: dict[str, Any], path: Path) -> str:
    slow = list(PUSHED_STORES)[-1]
    groups: dict[str, dict[str, float]] = {}
    for name, stores in found.items():
        rates = {scheme: figures[FIGURE]["median"] for scheme, figures in stores[slow]["figures"].items()}
        groups[name] = {scheme: rate / rates["none"] for scheme, rate in rates.items()}
    bars(path, groups, title="Throughput of pushed input", subtitle=f"no failures, store of {slow}; none = 1")
    return f"Throughput of each scheme for pushed input, relative to none, on a store of {slow}"
