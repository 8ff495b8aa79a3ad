"""What a whole study has found: the pipeline, the targets and why, all observations, and what checks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from afspark.errors import UsageError
from afspark.lab.observations import Outage, TargetObservations

DEFAULT_THRESHOLD = 0.03
"""How far a local score may be from the golden one and count as normal: 3 %, as in section 6.3 of the paper."""

DEFAULT_PERCENTILE = 90.0
"""P: which part of the erroneous sections a recovery covers."""

DEFAULT_ALPHA = 0.05
"""The level of significance of the analysis of variance."""


class NodeKind(StrEnum):
    """What a node of the assessed pipeline is."""

    SOURCE = "source"
    STATELESS = "stateless"
    STATEFUL = "stateful"
    SINK = "sink"
    #: where faults strike that is no operator by itself: one input, an output, several that fail together
    PLACE = "place"


@dataclass(frozen=True, kw_only=True)
class AssessedNode:
    """A source, operator or sink of the pipeline, with what decides which policies it may have."""

    name: str
    kind: NodeKind
    #: a source whose items producers push: they cannot be read again, and no secondary can follow them
    pushed: bool = False
    #: a source whose items can be read again
    replayable: bool = True
    #: the most that one item changes a state, if the operator declares it
    alpha: float | None = None
    #: whether the operator survives approximate recovery
    approximable: bool = True

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind.value, "pushed": self.pushed}


@dataclass(frozen=True)
class AssessedEdge:
    """Items of ``origin`` reach ``reader``."""

    origin: str
    reader: str


@dataclass(frozen=True)
class Placement:
    """The target that stands for an operator (itself, or the one it behaves like), and the reason."""

    operator: str
    #: None: no fault was injected for it, such as for a sink
    target: str | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"operator": self.operator, "target": self.target, "reason": self.reason}


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """What a study was asked for, as the report says it."""

    #: the name of the score, and those it was repeated with
    score: str
    sections: str = ""
    #: what one local section is: "5,000 keys"
    section_unit: str = ""
    affected: str = "estimated from the offset and the longest outage"
    fault: str = "bursty loss of input"
    threshold: float = DEFAULT_THRESHOLD
    percentile: float = DEFAULT_PERCENTILE
    alpha: float = DEFAULT_ALPHA
    repetitions: int = 5
    golden_runs: int = 5
    seed: int = 0
    items: int = 0
    input: str = ""

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class SampledTrial:
    """A trial that was run again as a real streaming query, and whether its output was the same."""

    target: str
    offset: int
    outage: Outage
    repetition: int
    #: byte for byte for injected drops, within the bound for real faults
    agrees: bool
    #: what differed, or how it was compared
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if name != "outage"}
        return plain | {"outage": self.outage.to_json()}


@dataclass(frozen=True)
class RealFaultTrial:
    """What a real fault did to the output."""

    #: what it befell: an operator, or the backup store
    subject: str
    fault: str
    offset: int
    tolerance: str
    #: the score of the whole output by that of the golden one; None where that is 0
    quality: float | None
    #: whether the output is that of the golden run
    unchanged: bool
    #: how many keys of the output have other rows; None without a key
    changed_keys: int | None
    #: by operator and state: how far it can be off, as the query tells
    bounds: Mapping[str, Mapping[str, float]]
    #: how long the batches took in which it happened
    seconds: float
    #: whether what it did is within what the query tells; None: that cannot be compared
    within_bound: bool | None = None

    def sentence(self) -> str:
        """What happened."""
        under = f" under {self.tolerance}" if self.tolerance else ""
        judged = {True: ", within what is told", False: ", which is MORE than what is told", None: ""}[
            self.within_bound
        ]
        return f"{self.subject}, {self.fault} at item {self.offset:,}{under}: {self.outcome}{judged}."

    @property
    def outcome(self) -> str:
        """What became of the output."""
        if self.unchanged:
            return "the output is the same"
        keys = "" if self.changed_keys is None else f", {self.changed_keys:,} keys have other rows"
        quality = "unknown" if self.quality is None else f"{self.quality:.4f}"
        told = ", ".join(
            f"{state} of {name} by at most {bound:g}"
            for name, states in self.bounds.items()
            for state, bound in states.items()
        )
        return f"quality {quality}{keys}{f'; told: {told} off' if told else ''}"

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "bounds": {name: dict(states) for name, states in self.bounds.items()}}


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """All that a study has found. Metrics, advice and the report are made of it, and of nothing else.

    ``observations`` are those of the targets, in the order of the pipeline. ``other_scores`` are the same trials scored
    otherwise: by name of the score, then by target. ``reruns`` are the trials under the advised policies, by target.
    ``outage_sections`` is how many local sections the longest outage of a target itself covers.
    """

    application: str
    nodes: tuple[AssessedNode, ...]
    edges: tuple[AssessedEdge, ...]
    placements: tuple[Placement, ...]
    observations: Mapping[str, TargetObservations]
    settings: StudySettings
    outage_sections: Mapping[str, float] = field(default_factory=dict)
    other_scores: Mapping[str, Mapping[str, TargetObservations]] = field(default_factory=dict)
    reruns: Mapping[str, TargetObservations] = field(default_factory=dict)
    #: what was changed for the reruns, by target, for instance "fails over within 2 s"
    rerun_notes: Mapping[str, str] = field(default_factory=dict)
    samples: tuple[SampledTrial, ...] = ()
    #: under the tolerances that the pipeline has
    real_faults: tuple[RealFaultTrial, ...] = ()
    #: how many were run, without those under the advice
    trials: int = 0
    seconds: float = 0.0
    #: what the user should know besides: resumed, targets that were added or removed, ...
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = {node.name for node in self.nodes}
        named = {
            *self.observations,
            *self.reruns,
            *(placed.operator for placed in self.placements),
            *(placed.target for placed in self.placements if placed.target is not None),
            *(end for edge in self.edges for end in (edge.origin, edge.reader)),
        }
        if named - known:
            raise UsageError(
                f"There is no operator {min(named - known)!r} in the pipeline.",
                remedy=f"It has {', '.join(sorted(known))}.",
            )

    @property
    def targets(self) -> tuple[str, ...]:
        """Where faults have struck."""
        return tuple(self.observations)

    def node(self, name: str) -> AssessedNode:
        """What was found out about the operator of that name."""
        return next(node for node in self.nodes if node.name == name)

    def stands_for(self, target: str) -> tuple[str, ...]:
        """The operators that behave like a target, itself included."""
        return tuple(placed.operator for placed in self.placements if placed.target == target)

    @property
    def agreeing(self) -> int:
        """How many of the sampled trials equal their real queries."""
        return sum(trial.agrees for trial in self.samples)
