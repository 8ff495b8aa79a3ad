"""What Spark's plan says of a streaming DataFrame. Reaches into the JVM behind a classic session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from afspark.graph.stream_frame import FILES, FrameFacts, FrameSource

#: Settings of a session that have the effect of a source's option.
SETTINGS = {
    "spark.sql.files.ignoreMissingFiles": "ignoremissingfiles",
    "spark.sql.files.ignoreCorruptFiles": "ignorecorruptfiles",
}

#: Nodes of Spark's plans that keep state between batches, if what they read is a stream.
STATEFUL = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsWithState",
        "GlobalLimit",
        "LocalLimit",
        "TransformWithState",
        "TransformWithStateInPySpark",
        "TransformWithStateInPandas",
    }
)


def frame_facts(frame: DataFrame) -> FrameFacts:
    """The facts by which it is decided whether past batches of the DataFrame can be read again."""
    plan = frame._jdf.queryExecution().analyzed()
    nodes = list(_nodes(plan))
    settings = {option: frame.sparkSession.conf.get(key, "false") or "" for key, option in SETTINGS.items()}
    return FrameFacts(
        nodes=frozenset(_name(node) for node in nodes),
        sources=tuple(source for node in nodes for source in _source(node, settings)),
        deterministic=bool(plan.deterministic()),
        subqueries=int(plan.subqueriesAll().size()),
    )


def stateful_nodes(frame: DataFrame) -> list[str]:
    """The nodes of a streaming DataFrame for which Spark keeps state in its part of the checkpoint, by name."""
    plan = frame._jdf.queryExecution().analyzed()
    return sorted({_name(node) for node in _nodes(plan) if _keeps_state(node)})


def _keeps_state(node: Any) -> bool:
    children = node.children()
    streams = [bool(children.apply(index).isStreaming()) for index in range(children.size())]
    if _name(node) == "Join":
        return all(streams)
    return _name(node) in STATEFUL and any(streams)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for index in range(children.size()):
        yield from _nodes(children.apply(index))


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _source(node: Any, settings: dict[str, str]) -> Iterator[FrameSource]:
    match _name(node):
        case "StreamingRelation":
            name = str(node.sourceName())
            options = dict(_entries(node.dataSource().options()))
            yield FrameSource(FILES if name.startswith("FileSource[") else name, settings | options)
        case "StreamingRelationV2":
            given = node.extraOptions().asCaseSensitiveMap()
            yield FrameSource(str(node.sourceName()), {str(key).lower(): str(given[key]) for key in given})


def _entries(scala_map: Any) -> Iterator[tuple[str, str]]:
    entries = scala_map.toSeq()
    for index in range(entries.size()):
        entry = entries.apply(index)
        yield str(entry._1()).lower(), str(entry._2())
