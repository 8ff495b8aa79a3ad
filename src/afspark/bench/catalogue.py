"""All experiments: how each is measured, told and drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from afspark.bench.rig import Rig
from afspark.errors import UsageError

NAMES = (
    "schemes",
    "slow-store",
    "object-store",
    "pushed",
    "native",
    "cold-start",
    "snapshot-cost",
    "snapshot-intervals",
    "snapshot-parallelism",
    "snapshot-recovery",
    "replica-recovery",
    "replica-costs",
    "replica-intervals",
    "detection",
    "controller",
    "training-cost",
    "learning-failures",
    "learning-thresholds",
    "consistency",
    "thresholds",
    "heavy-hitters",
    "join",
    "regression",
    "kernels",
    "scale",
    "rate",
    "profile",
    "state",
    "upkeep",
    "rescaling",
)
"""In the order of the page. Each is a module of ``experiments`` with ``TITLE``, ``measure`` and ``page``, and
``draw`` if there is something to see."""

ALIASES: dict[str, tuple[str, ...]] = {
    "all": NAMES,
    "1": ("schemes", "pushed", "native"),
    "2": ("thresholds",),
    "3": ("heavy-hitters",),
    "4": ("join",),
    "5": ("regression",),
    "table5": ("schemes", "pushed"),
    "snapshots": ("snapshot-cost", "snapshot-intervals", "snapshot-parallelism", "snapshot-recovery"),
    "learning": ("training-cost", "learning-failures", "learning-thresholds", "consistency"),
    "replicas": ("replica-recovery", "replica-costs", "replica-intervals", "detection"),
}
"""The numbers that AF-Stream's papers give their experiments, and those of Carbone et al. together."""


@dataclass(frozen=True)
class Experiment:
    """``draw`` saves a plot of the figures and says what it shows."""

    name: str
    title: str
    measure: Callable[[Rig], dict[str, Any]]
    page: Callable[[dict[str, Any]], str]
    draw: Callable[[dict[str, Any], Path], str] | None


def experiment(name: str) -> Experiment:
    module = import_module(f"afspark.bench.experiments.experiment_{name.replace('-', '_')}")
    return Experiment(name, module.TITLE, module.measure, module.page, getattr(module, "draw", None))


def chosen(names: Sequence[str]) -> list[str]:
    """Names and aliases as names, each once, in the order of the page."""
    wanted: set[str] = set()
    for name in names:
        if name not in NAMES and name not in ALIASES:
            raise UsageError(
                f"There is no experiment {name!r}.",
                remedy=f"Known: {', '.join((*ALIASES, *NAMES))}.",
                experiment=name,
            )
        wanted.update(ALIASES.get(name, (name,)))
    return [name for name in NAMES if name in wanted]
