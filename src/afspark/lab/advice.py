"""Which policy each operator needs, by what faults did to the output.

The measure is an outage without any output: each section that it covers has an error of 1, and adds 1 to I^lq. An
operator whose faults cost hardly more needs no more than a restart (and a checkpoint, if it has a state); one whose
faults cost a multiple of that does damage downstream that outlasts the outage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from afspark.graph.graph import Graph
from afspark.lab.metrics import AnovaVerdict, TargetMetrics, local_impact, measure
from afspark.lab.observations import Outage, TargetObservations
from afspark.lab.own_variance import hidden_effect
from afspark.lab.quality_curves import HIGH_CORRELATION
from afspark.lab.study_result import AssessedNode, NodeKind, StudyResult, StudySettings
from afspark.lab.tolerance_text import tolerance_text
from afspark.policies import ActiveStandby, Approximate, BarrierSnapshot, MiniBatch, Nothing, Tolerance, UpstreamBackup

AnyGraph = TypeVar("AnyGraph", bound=Graph)


class ProtectionNeed(StrEnum):
    """How much protection an operator needs."""

    RESTART = "restart"
    CHECKPOINT = "checkpoint"
    REPLICATE = "replicate"


_PHRASES = {
    ProtectionNeed.RESTART: "a restart is enough",
    ProtectionNeed.CHECKPOINT: "a checkpoint and a restart are enough",
    ProtectionNeed.REPLICATE: "replicate",
}


@dataclass(frozen=True, kw_only=True)
class AdviceRules:
    """Where the lines are drawn."""

    #: an operator is critical if I^lq is more than so many times that of an outage without any output
    critical: float = 2.0
    #: a loss is bearable if its I^lq is at most this: the whole output of so many sections
    bearable: float = 1.0
    #: σ from which on a rejected analysis of variance is called unpredictable
    unpredictable: float = 0.1


@dataclass(frozen=True)
class BearableLoss:
    """The largest outage that was tried whose impact is bearable, as are all smaller ones; None if none is."""

    outage: Outage | None
    #: its I^lq; of the smallest outage, if none is bearable
    impact: float

    @property
    def items(self) -> int:
        return self.outage.items if self.outage else 0

    def to_json(self) -> dict[str, Any]:
        return {"outage": self.outage.to_json() if self.outage else None, "ilq": self.impact}


@dataclass(frozen=True)
class OperatorAdvice:
    """What one operator needs; ``tolerance`` is None for what has none: all but operators."""

    operator: str
    target: str
    kind: NodeKind
    need: ProtectionNeed
    tolerance: Tolerance | None
    reason: str
    #: what may be chosen instead
    alternative: str
    metrics: TargetMetrics
    bearable: BearableLoss

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "behaves_like": self.target,
            "need": self.need.value,
            "policy": None if self.tolerance is None else type(self.tolerance).__name__,
            "tolerance": None if self.tolerance is None else self.tolerance.to_json(),
            "reason": self.reason,
            "alternative": self.alternative,
            "figures": {name: self.metrics.to_json()[name] for name in ("coq", "doq", "rlq", "ilq")},
            "bearable": self.bearable.to_json(),
        }


@dataclass(frozen=True)
class Advice:
    """What every operator of a pipeline needs, in the order of the pipeline."""

    operators: tuple[OperatorAdvice, ...]
    #: operators for which nothing was measured
    unknown: tuple[str, ...] = ()

    def tolerances(self) -> dict[str, Tolerance]:
        """The advised tolerance of each operator that can have one."""
        return {one.operator: one.tolerance for one in self.operators if one.tolerance is not None}

    def lines(self) -> Iterator[str]:
        """A line for all operators that need the same and behave like the same target."""
        for need in ProtectionNeed:
            groups: dict[str, list[OperatorAdvice]] = {}
            for one in self.operators:
                if one.need is need:
                    groups.setdefault(one.target, []).append(one)
            for group in groups.values():
                first = group[0]
                operators = names([one.operator for one in group])
                yield f"{operators}: {_PHRASES[need]} ({first.reason}){_instead(group)}{_policies(group)}."
        if self.unknown:
            yield f"{names(self.unknown)}: no fault was injected, so that nothing is known."

    def summary(self) -> str:
        """One sentence: who needs what."""
        if not self.operators:
            return "Nothing is known of any operator."
        found = {need: [one.operator for one in self.operators if one.need is need] for need in ProtectionNeed}
        return "; ".join(f"{names(found[need])}: {_PHRASES[need]}" for need in ProtectionNeed if found[need]) + "."

    def text(self) -> str:
        return "\n".join((self.summary(), *self.lines()))

    def to_json(self) -> dict[str, Any]:
        return {
            "summary": self.summary(),
            "text": list(self.lines()),
            "operators": {one.operator: one.to_json() for one in self.operators},
            "unknown": list(self.unknown),
        }


def advise(
    result: StudyResult, metrics: Mapping[str, TargetMetrics] | None = None, rules: AdviceRules | None = None
) -> Advice:
    """The advice that follows from a study."""
    rules = rules or AdviceRules()
    found = metrics or {name: measure(seen, result.settings) for name, seen in result.observations.items()}
    placed = [one for one in result.placements if one.target in found]
    needs = {
        one.operator: _need(result, result.node(one.operator), found[one.target], rules)
        for one in placed
        if one.target is not None
    }
    bearables = {
        name: bearable_loss(seen, result.settings, rules.bearable) for name, seen in result.observations.items()
    }
    # What is no operator by itself is not replayed either.
    replayed = {need for name, need in needs.items() if result.node(name).kind is not NodeKind.PLACE}
    choice = _Choice(
        replayable=all(node.replayable and not node.pushed for node in result.nodes if node.kind is NodeKind.SOURCE),
        replays=bool(replayed - {ProtectionNeed.RESTART}),
    )
    advised = []
    for one in placed:
        assert one.target is not None
        node, figures = result.node(one.operator), found[one.target]
        bearable = bearables[one.target]
        need = needs[one.operator]
        advised.append(
            OperatorAdvice(
                one.operator,
                one.target,
                node.kind,
                need,
                choice.tolerance(node, need, bearable),
                _reason(result, figures, rules),
                _alternative(node, need, bearable),
                figures,
                bearable,
            )
        )
    known = {*found, *(one.operator for one in advised)}
    unknown = [node.name for node in result.nodes if node.kind is not NodeKind.SINK and node.name not in known]
    return Advice(tuple(advised), tuple(unknown))


def apply_advice(graph: AnyGraph, tolerances: Mapping[str, Tolerance]) -> AnyGraph:
    """The graph with these tolerances of its operators; UsageError if it is a pipeline and they cannot run together."""
    nodes = tuple(replace(node, tolerance=tolerances.get(node.name, node.tolerance)) for node in graph.nodes)
    return replace(graph, nodes=nodes)


def bearable_loss(observations: TargetObservations, settings: StudySettings, most: float) -> BearableLoss:
    """The largest of the outages that were tried with I^lq of at most ``most``, and no smaller one above it."""
    best: BearableLoss | None = None
    for at in sorted(range(len(observations.outages)), key=lambda j: observations.outages[j].items):
        found = local_impact(observations, at, threshold=settings.threshold, percentile=settings.percentile)
        impact = found.impact or 0.0
        if found.impact is None or impact > most or found.unbounded:
            return best or BearableLoss(None, impact)
        best = BearableLoss(observations.outages[at], impact)
    assert best is not None
    return best


def outage_length(result: StudyResult, target: str) -> float:
    """How many sections the longest outage of a target itself covers.

    Where the study does not say, it is at most what the target that recovers soonest needs.
    """
    if target in result.outage_sections:
        return max(1.0, result.outage_sections[target])
    recoveries = [measure(seen, result.settings).local.recovery or 0 for seen in result.observations.values()]
    return float(max(1, min(recoveries, default=1)))


def lasts_to_the_end(result: StudyResult, metrics: TargetMetrics) -> bool:
    """Whether the effect of a fault was still there at the end of the stream, long after the outage, at all offsets."""
    return metrics.local.lasting and (metrics.local.recovery or 0) > 2 * outage_length(result, metrics.target)


@dataclass(frozen=True)
class _Choice:
    """Which of the policies stands for a need, given what the others of the pipeline need."""

    #: all input can be read again
    replayable: bool
    #: some operator is replayed, which nobody under Nothing() may stand in the way of
    replays: bool

    def tolerance(self, node: AssessedNode, need: ProtectionNeed, bearable: BearableLoss) -> Tolerance | None:
        if node.kind in (NodeKind.SOURCE, NodeKind.SINK, NodeKind.PLACE):
            return None
        match need:
            case ProtectionNeed.REPLICATE:
                return ActiveStandby() if self.replayable else UpstreamBackup()
            case ProtectionNeed.CHECKPOINT:
                if node.alpha and node.approximable and bearable.items:
                    return Approximate(theta=bearable.items * node.alpha)
                return BarrierSnapshot() if self.replayable else MiniBatch()
        # Without a state a snapshot writes nothing.
        return BarrierSnapshot() if self.replays and self.replayable else Nothing()


def _need(result: StudyResult, node: AssessedNode, metrics: TargetMetrics, rules: AdviceRules) -> ProtectionNeed:
    impact, recovery = metrics.local.impact, metrics.local.recovery
    light = ProtectionNeed.CHECKPOINT if node.kind is NodeKind.STATEFUL else ProtectionNeed.RESTART
    if impact is None:
        return ProtectionNeed.CHECKPOINT
    if lasts_to_the_end(result, metrics):
        # A longer stream would only add to it.
        return ProtectionNeed.REPLICATE
    if not recovery or impact <= rules.critical * outage_length(result, metrics.target):
        return light
    return ProtectionNeed.REPLICATE


def _reason(result: StudyResult, metrics: TargetMetrics, rules: AdviceRules) -> str:
    recovery, impact = metrics.local.recovery, metrics.local.impact
    length = outage_length(result, metrics.target)
    if recovery is None or impact is None:
        why = "the output has no sections, so it is not known how long a fault is felt"
    elif recovery == 0:
        why = f"no section is more than {result.settings.threshold:.0%} off"
    else:
        ratio = impact / length
        why = (
            f"a fault is felt for {recovery:,} sections and costs I = {impact:.2f},"
            f" {ratio:.1f} times what an outage without any output costs"
        )
        if lasts_to_the_end(result, metrics):
            why += "; its effect does not decay: the error lasts to the end of the stream, wherever the fault strikes"
    return "; ".join((why, *_predictability(result, metrics, rules)))


def _predictability(result: StudyResult, metrics: TargetMetrics, rules: AdviceRules) -> Iterator[str]:
    coq, doq = metrics.coq.value, metrics.doq
    if coq is not None:
        high = (
            "the longer the outage, the " + ("lower" if coq < 0 else "higher") if abs(coq) >= HIGH_CORRELATION else ""
        )
        yield f"C = {coq:.2f}" + (f": {high} the score" if high else "")
    if doq.verdict is AnovaVerdict.REJECTED and doq.sigma is not None and doq.sigma >= rules.unpredictable:
        yield f"σ = {doq.sigma:.2f}, and it depends on the data which are hit"
    if hidden_effect(result.observations[metrics.target], result.settings) is not None:
        yield "the application's own variance hides part of the effect"


def _alternative(node: AssessedNode, need: ProtectionNeed, bearable: BearableLoss) -> str:
    if need is not ProtectionNeed.REPLICATE:
        return ""
    if node.kind is NodeKind.SOURCE:
        return "a source is protected by a feed that can be read again, or by a second one"
    if bearable.outage is None:
        return f"even the shortest outage that was tried costs I = {bearable.impact:.2f}"
    seconds, rate = bearable.outage.seconds, bearable.outage.rate.value
    while_ = f" ({seconds:g} s at the {rate} rate)" if seconds else ""
    if node.alpha and node.approximable and node.kind is NodeKind.STATEFUL:
        limit = f"Θ at most {bearable.items * node.alpha:,g}: what {bearable.items:,} items{while_} change at most,"
    else:
        limit = f"at most {bearable.items:,} items{while_} lost,"
    return f"{limit} which costs I = {bearable.impact:.2f}"


def _instead(group: list[OperatorAdvice]) -> str:
    """The alternatives of operators that behave alike; Θ is only that of those who have a state."""
    found = list(dict.fromkeys(one.alternative for one in group if one.alternative))
    if not found:
        return ""
    return "; " + "; ".join(text if text.startswith(("even", "a source")) else f"or {text}" for text in found)


def _policies(group: list[OperatorAdvice]) -> str:
    """The policies of operators that behave alike, which need not be the same; a source has none."""
    found: dict[str, list[str]] = {}
    for one in group:
        if one.tolerance is not None:
            found.setdefault(tolerance_text(one.tolerance), []).append(one.operator)
    if not found:
        return ""
    if [*found.values()] == [[one.operator for one in group]]:
        return f"; policy: {next(iter(found))}"
    return "; policies: " + ", ".join(f"{policy} for {names(operators)}" for policy, operators in found.items())


def names(operators: tuple[str, ...] | list[str]) -> str:
    """Names in a sentence.

    >>> names(["TradeFilter", "Aggregator", "VWAP"]), names(["Source"])
    ('TradeFilter, Aggregator and VWAP', 'Source')
    """
    *most, last = operators
    return f"{', '.join(most)} and {last}" if most else last
