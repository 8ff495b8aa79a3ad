"""All that follows from the result of a study, computed once: what reports of every form are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from afspark.lab.advice import Advice, AdviceRules, advise
from afspark.lab.metrics import LocalImpact, TargetMetrics, local_impact, measure, quality
from afspark.lab.observations import Outage, Scores, TargetObservations
from afspark.lab.own_variance import own_variance_notes
from afspark.lab.paper_table import paper_figures
from afspark.lab.quality_curves import QualityCurve, fit_quality
from afspark.lab.study_result import StudyResult


@dataclass(frozen=True)
class Improvement:
    """R^lq and I^lq of an operator before its advice was followed, which are those of its target, and after."""

    operator: str
    target: str
    before: TargetMetrics
    after: TargetMetrics
    note: str

    def to_json(self) -> dict[str, Any]:
        def plain(metrics: TargetMetrics) -> dict[str, Any]:
            local = metrics.local
            return {"rlq": local.recovery, "ilq": local.impact, "outage": metrics.outage.to_json()}

        figures = {"before": plain(self.before), "after": plain(self.after)}
        return {"measured_at": self.target, **figures, "note": self.note}


@dataclass(frozen=True)
class Findings:
    """Metrics, curves and notes by target, orders by score, improvements, advice."""

    result: StudyResult
    metrics: Mapping[str, TargetMetrics]
    curves: Mapping[str, QualityCurve]
    notes: Mapping[str, tuple[str, ...]]
    improvements: tuple[Improvement, ...]
    advice: Advice

    def by_score(self) -> dict[str, Mapping[str, TargetMetrics]]:
        """The metrics of all targets for every score that was tried, the first of them the study's own."""
        settings = self.result.settings
        others = {
            score: {target: measure(seen, settings) for target, seen in observations.items()}
            for score, observations in self.result.other_scores.items()
        }
        return {settings.score: self.metrics, **others}

    def orders(self) -> dict[str, dict[str, Any]]:
        """The targets by impact and by recovery time, the worst first, for every score, with their figures."""
        return {
            score: {
                "ilq": by_impact(metrics),
                "rlq": by_recovery(metrics),
                "figures": {
                    target: {"rlq": one.local.recovery, "ilq": one.local.impact} for target, one in metrics.items()
                },
            }
            for score, metrics in self.by_score().items()
        }

    def local_by_outage(self, target: str) -> list[tuple[Outage, LocalImpact]]:
        """R^lq and I^lq under every outage, the smallest first."""
        seen, settings = self.result.observations[target], self.result.settings
        found = [
            (outage, local_impact(seen, at, threshold=settings.threshold, percentile=settings.percentile))
            for at, outage in enumerate(seen.outages)
        ]
        return sorted(found, key=lambda pair: pair[0].items)

    def to_json(self) -> dict[str, Any]:
        """The document of ``report.json``. JSON knows neither NaN nor infinity: they become null."""
        result = self.result
        document = {
            "application": result.application,
            "settings": result.settings.to_json(),
            "trials": result.trials,
            "seconds": result.seconds,
            "notes": list(result.notes),
            "graph": {
                "nodes": [node.to_json() for node in result.nodes],
                "edges": [[edge.origin, edge.reader] for edge in result.edges],
                "placements": [placed.to_json() for placed in result.placements],
            },
            "targets": {target: self._target_json(target) for target in result.targets},
            "orders": self.orders(),
            "agreement": {
                "sampled": len(result.samples),
                "agreeing": result.agreeing,
                "trials": [sample.to_json() for sample in result.samples],
            },
            "real_faults": [trial.to_json() for trial in result.real_faults],
            "reruns": {one.operator: one.to_json() for one in self.improvements},
            "advice": self.advice.to_json(),
            "paper": {target: dict(vars(row)) for target, row in paper_figures(result.targets).items()},
        }
        return _without_nan(document)

    def _target_json(self, target: str) -> dict[str, Any]:
        seen = self.result.observations[target]
        curve = self.curves.get(target)
        return {
            **self.metrics[target].to_json(),
            "stands_for": list(self.result.stands_for(target)),
            "own_variance": list(self.notes[target]),
            "curve": curve.to_json() if curve else None,
            "quality": _quality_json(seen, quality(seen)),
            "by_outage": [
                {"outage": outage.to_json(), "rlq": local.recovery, "ilq": local.impact}
                for outage, local in self.local_by_outage(target)
            ],
        }


def findings_of(result: StudyResult, rules: AdviceRules | None = None) -> Findings:
    """What follows from a study."""
    settings = result.settings
    metrics = {target: measure(seen, settings) for target, seen in result.observations.items()}
    curves = {target: fit_quality(seen, metrics[target].coq) for target, seen in result.observations.items()}
    targets = {placed.operator: placed.target for placed in result.placements}
    improvements = [
        Improvement(name, target, metrics[target], measure(seen, settings), result.rerun_notes.get(name, ""))
        for name, seen in result.reruns.items()
        if (target := targets.get(name)) in metrics
    ]
    return Findings(
        result,
        metrics,
        {target: curve for target, curve in curves.items() if curve is not None},
        {target: own_variance_notes(seen, settings) for target, seen in result.observations.items()},
        tuple(improvements),
        advise(result, metrics, rules),
    )


def by_impact(metrics: Mapping[str, TargetMetrics]) -> list[str]:
    """Targets by I^lq, the largest first; those without one last."""
    return sorted(metrics, key=lambda target: -_number(metrics[target].local.impact))


def by_recovery(metrics: Mapping[str, TargetMetrics]) -> list[str]:
    """Targets by R^lq, the longest first; those without one last."""
    return sorted(metrics, key=lambda target: -_number(metrics[target].local.recovery))


def _number(value: float | None) -> float:
    return -math.inf if value is None else float(value)


def _quality_json(seen: TargetObservations, found: Scores) -> dict[str, Any]:
    return {
        "offsets": list(seen.offsets),
        "outages": [outage.to_json() for outage in seen.outages],
        "scores": found.tolist(),
    }


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    if isinstance(value, np.generic):
        return _without_nan(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
