"""A streaming DataFrame as a source, and whether its past batches can be read again. Pure.

A batch of a DataFrame can be read again if its rows follow from the rows of its sources in that batch alone, and if
the sources still have those after Spark has committed the batch. What is not known to be so is taken not to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

#: Nodes of Spark's plans that make each row of rows of the same batch, and keep nothing.
STATELESS = frozenset(
    {
        "DeserializeToObject",
        "EventTimeWatermark",
        "Expand",
        "Filter",
        "Generate",
        "MapElements",
        "MapInArrow",
        "MapInPandas",
        "MapPartitions",
        "Project",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "SerializeFromObject",
        "StreamingRelation",
        "StreamingRelationV2",
        "SubqueryAlias",
        "TypedFilter",
        "Union",
        "View",
    }
)
#: Sources that give the rows between two offsets again at any time, unless their options say otherwise.
FILES, RATE, RATE_BY_BATCH, KAFKA = "files", "rate", "rate-micro-batch", "kafka"
LASTING = frozenset({FILES, RATE, RATE_BY_BATCH, KAFKA})


@dataclass(frozen=True)
class FrameSource:
    """A source of a DataFrame, with its options in lower case."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    def is_set(self, option: str, value: str = "true") -> bool:
        return self.options.get(option.lower(), "").lower() == value


@dataclass(frozen=True)
class FrameFacts:
    """What Spark's plan says of a DataFrame. ``nodes`` are the names of its nodes."""

    nodes: frozenset[str]
    sources: tuple[FrameSource, ...]
    deterministic: bool = True
    subqueries: int = 0


def why_not_made_again(facts: FrameFacts) -> str:
    """Why rows of a batch would not be the same when they are made again from the same rows of the sources; or ""."""
    others = sorted(facts.nodes - STATELESS)
    if others:
        return f"it has {', '.join(others)}, which needs more than the rows of one batch"
    if facts.subqueries:
        return "it has a subquery, which would see what is there by then"
    return "" if facts.deterministic else "it has an expression that gives other values each time, such as rand()"


def why_not_read_again(source: FrameSource) -> str:
    """Why a source may not have the rows of a batch any more that Spark has committed; or ""."""
    if source.name not in LASTING:
        return f"nothing is known of what its source {source.name!r} has after a batch"
    if source.name == FILES and source.options.get("cleansource", "off").lower() != "off":
        return "its files are removed after they were read (cleanSource)"
    for option in ("ignoreMissingFiles", "ignoreCorruptFiles"):
        if source.name == FILES and source.is_set(option):
            return f"files that cannot be read again would be passed over ({option})"
    if source.name == KAFKA and source.is_set("failOnDataLoss", "false"):
        return "rows that Kafka has forgotten would be passed over (failOnDataLoss)"
    return ""


def why_not_replayable(facts: FrameFacts, *, lasting: bool = False) -> str:
    """Why past batches of a DataFrame cannot be replayed; "" if they can. ``lasting``: the user says that its sources
    give the rows between two offsets again at any time.
    """
    reasons = [why_not_made_again(facts), *([] if lasting else map(why_not_read_again, facts.sources))]
    return next((reason for reason in reasons if reason), "")


@dataclass(frozen=True, eq=False)
class StreamFrame:
    """A streaming DataFrame. ``not_replayable`` says why its past batches cannot be read again; "" if they can."""

    frame: DataFrame
    not_replayable: str = ""
