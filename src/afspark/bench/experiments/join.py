"""Experiment 4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from afspark.bench.accuracy import campaign
from afspark.bench.accuracy.join import JoinStudy
from afspark.bench.rig import Rig
from afspark.bench.workloads import JOIN

TITLE = "Online join after failures (experiment 4)"
_PROMISE = (
    "Observed: sampled items that are missing from both sides together. Promised: Θ for each side, + L·β + Γ (theorem 2 "
    "takes the samples that are left for the width of the interval); generated visits can be read again, so that only "
    "Θ can be used up. Held: observed ≤ realised ≤ promised. `inside` is 1 if the interval of the result held the truth "
    "in every run."
)


def measure(rig: Rig) -> dict[str, Any]:
    """Relative error of the COUNT estimate of two streams, each sampled at 10 %."""
    return campaign.campaign(rig, JOIN, JoinStudy())


def page(found: dict[str, Any]) -> str:
    return campaign.page(found, JOIN, JoinStudy.measure, _PROMISE)


def draw(found: dict[str, Any], path: Path) -> str:
    return campaign.draw(found, path, algorithm=JOIN, measure=JoinStudy.measure)
