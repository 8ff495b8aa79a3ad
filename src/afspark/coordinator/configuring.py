"""What all tasks of an operator have to know, from the pipeline, the options of the run and the checkpoint."""

from __future__ import annotations

from pyspark import cloudpickle

from afspark.coordinator.run_options import RunOptions
from afspark.graph.node import Node
from afspark.graph.pipeline import Pipeline
from afspark.protocol.bad_items import BadRules
from afspark.protocol.operator_config import OperatorConfig
from afspark.store import QueryIdentity, Store


def operator_config(
    node: Node,
    pipeline: Pipeline,
    options: RunOptions,
    identity: QueryIdentity,
    *,
    store: Store,
    epoch: str,
) -> OperatorConfig:
    """What the tasks of the operator at ``node`` have to know, for one run of its query."""
    return OperatorConfig(
        query_id=identity.query_id,
        fingerprint=identity.fingerprint,
        operator_name=node.name,
        workers=node.workers,
        checkpoint=options.checkpoint,
        store=store,
        epoch=epoch,
        segments=options.segments,
        emit=node.emits,
        faults=options.faults,
        window=node.window,
        keyed=node.keyed,
        successors=tuple(one.addressee for one in pipeline.nodes if node.name in {edge.origin for edge in one.inputs}),
        titles=pipeline.titles,
        input_names=pipeline.input_names(node),
        input_order=pipeline.input_order(node),
        appends=node.appends,
        feeds_back=node.feeds_back,
        pushed=any(edge.origin in pipeline.pushed for edge in node.inputs),
        retained=any(edge.origin in pipeline.retained for edge in node.inputs),
        exact=node.tolerance.exact,
        losable_items=pipeline.losable_items(node),
        bad=BadRules(
            choices=pipeline.on_bad(node),
            limit=node.bad_limit,
            most_bytes=options.quarantine_bytes,
            spares_null_keys=pipeline.spares_null_keys(node),
        ),
        pristine=cloudpickle.dumps(node.operator),  # type: ignore[no-untyped-call]
    )
