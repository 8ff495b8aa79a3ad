"""A study of a pipeline like Bargain Discovery with made-up observations, shaped like those of the paper."""

from __future__ import annotations

from functools import cache

import numpy as np

from afspark.lab.observations import Outage, Rate, TargetObservations
from afspark.lab.study_result import (
    AssessedEdge,
    AssessedNode,
    NodeKind,
    Placement,
    SampledTrial,
    StudyResult,
    StudySettings,
)

SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
OFFSETS = (0.1, 0.3, 0.5, 0.7, 0.9)
SECTIONS = 1000
SECTION_KEYS = 5000
PEAK = 2200
#: how many sections 16 s of the peak rate cover
LENGTH = 16 * PEAK / SECTION_KEYS

#: part of the items that reach a target, error during the outage, error right after it, sections in which that decays,
#: how much the affected section gains or loses at the longest outage, how much that depends on the offset
SHAPES: dict[str, tuple[float, float, float, float, float, float]] = {
    "Source": (1.0, -1.0, 0.59, 90.0, -0.3, 0.2),
    "TradeFilter": (0.2, 0.9, 1.44, 90.0, 1.2, 0.5),
    "QuoteFilter": (0.8, -1.0, 0.0, 1.0, -1.0, 0.0),
    "VWAP": (0.2, 0.9, 1.13, 30.0, 0.8, 0.15),
    "BargainIndex": (1.0, -1.0, 0.15, 10.0, -0.6, 0.0),
}

NODES = (
    AssessedNode(name="Source", kind=NodeKind.SOURCE),
    AssessedNode(name="TradeQuote", kind=NodeKind.STATELESS),
    AssessedNode(name="TradeFilter", kind=NodeKind.STATELESS),
    AssessedNode(name="QuoteFilter", kind=NodeKind.STATELESS),
    AssessedNode(name="Aggregator", kind=NodeKind.STATEFUL, alpha=2.0),
    AssessedNode(name="VWAP", kind=NodeKind.STATELESS),
    AssessedNode(name="BargainIndex", kind=NodeKind.STATEFUL),
    AssessedNode(name="Sink", kind=NodeKind.SINK),
)
EDGES = tuple(
    AssessedEdge(*ends)
    for ends in (
        ("Source", "TradeQuote"),
        ("TradeQuote", "TradeFilter"),
        ("TradeQuote", "QuoteFilter"),
        ("TradeFilter", "Aggregator"),
        ("Aggregator", "VWAP"),
        ("VWAP", "BargainIndex"),
        ("QuoteFilter", "BargainIndex"),
        ("BargainIndex", "Sink"),
    )
)
PLACEMENTS = (
    Placement("Source", "Source", "it is a source"),
    Placement("TradeQuote", "Source", "it loses what its upstream loses"),
    Placement("TradeFilter", "TradeFilter", "TradeQuote has several outputs"),
    Placement("QuoteFilter", "QuoteFilter", "TradeQuote has several outputs"),
    Placement("Aggregator", "TradeFilter", "it loses what its upstream loses"),
    Placement("VWAP", "VWAP", "Aggregator is stateful"),
    Placement("BargainIndex", "BargainIndex", "it has several inputs"),
    Placement("Sink", None, "no fault is injected into a sink"),
)


@cache
def observed(target: str, *, longest_only: bool = False, scale: float = 1.0, seed: int = 1) -> TargetObservations:
    """Made-up observations of a target; ``scale`` shortens what is left of a fault, as another policy would."""
    part, during, after, decay, change, spread = SHAPES[target]
    random = np.random.default_rng([seed, list(SHAPES).index(target)])
    outages = tuple(
        Outage(int(seconds * rate_ * part), seconds, rate)
        for rate, rate_ in ((Rate.AVERAGE, 500), (Rate.PEAK, PEAK))
        for seconds in (SECONDS[-1:] if longest_only else SECONDS)
    )
    most = max(outage.items for outage in outages)
    m, n, p = len(OFFSETS), len(outages), 5
    begins = tuple(int(offset * SECTIONS) for offset in OFFSETS)
    golden_local = np.tile(np.linspace(900.0, 1100.0, SECTIONS), (p, 1)) * (1 + 0.001 * random.standard_normal((p, 1)))
    local = np.tile(golden_local, (m, n, 1, 1))
    scores = np.empty((m, n, p))
    for i, begin in enumerate(begins):
        t = np.arange(SECTIONS) - begin
        for j, outage in enumerate(outages):
            extent = scale * outage.items / most
            length = max(1, round(LENGTH * extent))
            error = np.where((t >= 0) & (t < length), during, 0.0)
            error += np.where(t >= length, after * extent * np.exp(-np.maximum(t - length, 0) / decay), 0.0)
            local[i, j] *= 1 + error
            shift = change * extent * (1 + spread * np.sin(2.0 * i))
            scores[i, j] = 1e5 * (1 + shift + 0.01 * random.standard_normal(p) * (1 + shift))
    golden_scores = 1e5 * (1 + 0.01 * random.standard_normal((m, p)))
    offsets = tuple(int(5_000_000 * offset * part) for offset in OFFSETS)
    return TargetObservations(target, offsets, outages, scores, golden_scores, local, golden_local, begins)


@cache
def bargain_study() -> StudyResult:
    """A whole study with samples, other scores and reruns."""
    observations = {target: observed(target) for target in SHAPES}
    return StudyResult(
        application="bargain",
        nodes=NODES,
        edges=EDGES,
        placements=PLACEMENTS,
        observations=observations,
        settings=StudySettings(
            score="sum:gain", sections="keys:key:5000", section_unit="5,000 keys", items=5_000_000, seed=1
        ),
        outage_sections=dict.fromkeys(SHAPES, LENGTH),
        other_scores={"count": {target: observed(target, seed=2) for target in SHAPES}},
        reruns={target: observed(target, longest_only=True, scale=1 / 16) for target in ("Source", "TradeFilter")},
        rerun_notes={"TradeFilter": "active standby, 2 s"},
        samples=(
            SampledTrial("VWAP", 300_000, observations["VWAP"].outages[-1], 0, True, "1,234 rows, byte for byte"),
            SampledTrial("Source", 500_000, observations["Source"].outages[0], 3, True, "1,234 rows, byte for byte"),
        ),
        trials=1500,
        seconds=480.0,
        notes=("resumed after 700 trials",),
    )
